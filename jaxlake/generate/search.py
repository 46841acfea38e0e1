"""The first random boards that meet the quotas of one kind, solved or bounded, and the account of the search.

Knows neither configs nor how a lack of boards is made up for.
"""

import math
from collections.abc import Collection, Iterator, Set
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlake.generate.bounded import draw_reachable
from jaxlake.generate.candidates import BLOCK, Shape, draw, fingerprints
from jaxlake.record import Array, Record, record
from jaxlake.solve import solve, without_waiting
from jaxlake.solve.driver import undecided
from jaxlake.types import ABSENT, MAX_STEPS, Instance, Objective, Solution, Status

_LARGEST_BATCH = 64  # Blocks: enough that the few hard instances of a batch fill the lanes of the solver's last stages.
_EXHAUSTED = 8  # Blocks in a row without a new board: all are found, or nearly.


class Quotas(NamedTuple):
    """The numbers of instances that are wanted.

    Attributes:
      waits: the number that need a wait; None for no quota: as many as come.
      interacting: the number that need a wait or cost more than the agents' shortest paths, at least ``waits``; None
        for no quota.
    """

    total: int
    waits: int | None
    interacting: int | None = None


@record
class Found(Record):
    """Solved boards ``[n]`` in the order of their candidates' numbers, none twice."""

    instances: Instance
    solutions: Solution
    needs_wait: np.ndarray

    @property
    def interacts(self) -> np.ndarray:
        """Instances whose agents interact, bool ``[n]``: one must wait, or the cost exceeds the shortest paths'."""
        return np.asarray(self.needs_wait | (self.solutions.cost > self.solutions.lower_bound))


class Account(NamedTuple):
    """The account of a search, counted in whole steps of candidates, blocks by default.

    Attributes:
      candidates: random boards tried.
      known: candidates that were not searched, as excluded or as having occurred before.
      solved: searched candidates that have a plan.
      undecided: numbers of those for which a search ran out of its budget.
    """

    candidates: int
    known: int
    solved: int
    undecided: tuple[int, ...]


def first_boards(
    shape: Shape,
    key: Array,
    quotas: Quotas,
    excluded: Set[bytes],
    budget: int,
    dropped: Collection[int] = (),
    step: int = BLOCK,
    exact: bool = True,
) -> tuple[Found | None, Account]:
    """Try candidate after candidate until the quotas are met, the budget is spent or hardly a new board is left.

    Where a quota is not met, boards that need no wait take the missing places, those that interact first. The result
    does not depend on the size of the batches in which candidates are searched.

    Args:
      quotas: the numbers of boards; fewer come back where there are not as many, None for none.
      excluded: fingerprints of boards that must not occur.
      budget: candidates that may be tried, rounded up to whole steps.
      dropped: numbers of candidates that count as undecided whatever the search says.
      step: candidates are tried in whole steps of so many; few where one takes seconds.
      exact: whether boards are solved; else their agents' shortest paths bound the costs, and they have no plans.
    """
    waits = quotas.waits or 0
    least = waits if quotas.interacting is None else quotas.interacting
    wanted = np.array([waits, least - waits, quotas.total - least])
    had = np.zeros(3, int)
    parts: list[Found] = []
    statuses: list[np.ndarray] = []
    not_decided: list[int] = []
    seen = set(excluded)
    left = -(-budget // step)
    stale = 0
    done = not quotas.total
    while left and not done:
        # At the rates so far, this many more candidates fill the quotas.
        lacking = np.max(np.maximum(wanted - had, 0) * max(len(statuses) * step, 1) / (had + 1))
        steps = min(int(lacking) // step + 1, _LARGEST_BATCH, left)
        for found, status, out_of_budget in _searched(key, len(statuses), steps, step, shape, seen, dropped, exact):
            kinds = _kinds(found, quotas)
            kept = [np.flatnonzero(kinds == kind)[: max(quotas.total - had[kind], 0)] for kind in range(3)]
            parts.append(found[np.sort(np.concatenate(kept))])
            statuses.append(status)
            not_decided.extend(out_of_budget.tolist())
            had += np.bincount(kinds, minlength=3)
            left -= 1
            stale = 0 if len(status) else stale + 1
            done = bool(np.all(had >= wanted)) or stale == _EXHAUSTED
            if done:
                break
    searched = np.concatenate([*statuses, np.zeros(0, np.int32)])
    account = Account(
        candidates=len(statuses) * step,
        known=len(statuses) * step - len(searched),
        solved=int(np.sum(searched == Status.SOLVED)),
        undecided=tuple(not_decided),
    )
    if not account.solved:
        return None, account
    found = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return found[_chosen(_kinds(found, quotas), wanted)], account


def _searched(
    key: Array, first: int, steps: int, step: int, shape: Shape, seen: set[bytes], dropped: Collection[int], exact: bool
) -> Iterator[tuple[Found, np.ndarray, np.ndarray]]:
    """Per step the solvable boards, the ``Status`` of all that are new and the numbers of the undecided ones.

    The new ones are added to ``seen``.
    """
    begin, end = first * step, (first + steps) * step
    block = begin // BLOCK * BLOCK
    drawn: Any = (draw if exact else draw_reachable)(key, block, -(-(end - block) // BLOCK) * BLOCK, shape)
    drawn = jax.tree.map(lambda leaf: leaf[begin - block : end - block], drawn)
    fresh = []
    for index, fingerprint in enumerate(fingerprints(drawn if exact else drawn[0])):
        if fingerprint not in seen:
            seen.add(fingerprint)
            fresh.append(index)
    place = np.array(fresh, np.int64)
    numbers = begin + place
    drawn = jax.tree.map(lambda leaf: leaf[place], drawn)
    boards, statuses = solved(drawn, shape.objective, shape.max_steps) if exact else _bounded(drawn, shape)
    out_of_budget = (statuses == Status.OUT_OF_BUDGET) | np.isin(numbers, list(dropped))
    statuses = np.where(out_of_budget, Status.OUT_OF_BUDGET, statuses)
    for number in range(steps):
        in_step = place // step == number
        yield boards[in_step & (statuses == Status.SOLVED)], statuses[in_step], numbers[in_step & out_of_budget]


def solved(
    instances: Instance, objective: Objective = Objective.SUM_OF_COSTS, max_steps: int = MAX_STEPS
) -> tuple[Found, np.ndarray]:
    """Return boards with their optima, and the ``Status`` of each, int32 ``[n]``; it covers the need of a wait too."""
    solutions = solve(instances, objective, max_steps)
    without = without_waiting(instances, solutions, objective)
    statuses = np.where(without == Status.OUT_OF_BUDGET, without, solutions.status)
    return Found(instances=instances, solutions=solutions, needs_wait=without == Status.UNSOLVABLE), statuses


def _bounded(drawn: tuple[Instance, np.ndarray], shape: Shape) -> tuple[Found, np.ndarray]:
    """Return the boards with lower bounds, and ``SOLVED`` for those whose goals can be reached."""
    instances, lengths = drawn
    total = np.sum if shape.objective is Objective.SUM_OF_COSTS else np.max
    bounds = total(np.maximum(lengths, 0), axis=1).astype(np.int32)
    solutions = undecided(len(lengths), instances.max_agents, max_steps=0).replace(lower_bound=bounds)
    reached = np.all(lengths[:, : shape.kind.num_agents] != ABSENT, axis=1)
    found = Found(instances=instances, solutions=solutions, needs_wait=np.zeros(len(lengths), bool))
    return found, np.where(reached, Status.SOLVED, Status.UNSOLVABLE)


def _kinds(found: Found, quotas: Quotas) -> np.ndarray:
    """int ``[n]``: 0 needs a wait, 1 interacts without, 2 neither; never 0 or 1 if there is no quota for it."""
    waits = found.needs_wait & (quotas.waits is not None)
    interacts = found.interacts if quotas.interacting is not None else waits
    return np.where(waits, 0, np.where(interacts, 1, 2))


def _chosen(kinds: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return ascending indices of the first of every kind, and of the first without a wait where there are too few."""
    waiting, interacting, others = (np.flatnonzero(kinds == kind) for kind in range(3))
    waiting = waiting[: wanted[0]]
    interacting = interacting[: wanted[0] + wanted[1] - len(waiting)]
    chosen = np.concatenate([waiting, interacting, others[: wanted[2]]])
    spare = np.setdiff1d(np.flatnonzero(kinds), chosen)[: wanted.sum() - len(chosen)]
    return np.sort(np.concatenate([chosen, spare]))


def rounded(value: float) -> int:
    """Return the nearest whole number, halves upwards; ``round`` takes them to the even number."""
    return math.floor(value + 0.5)

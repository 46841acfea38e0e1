"""Exact solving on the host: runs the batched search in stages, each for what the one before left undecided."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxlake.solve.corridor import deadlocked
from jaxlake.solve.tree import MAX_HORIZON, UNBOUNDED, search
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Objective, Plan, Solution, Status

_ROOTS = 1024
"""Instances per batch of independent shortest paths: with two agents 86 to 90 % are decided by them."""

_STAGES = ((256, 8), (64, 128), (16, 1024))
"""(instances per batch, expansions) for the rest, of which 94 % are decided by the first stage.

Batches have a fixed size, so four programs serve every call, and shrink, because a batch runs as long as its hardest
instance: 20,000 boards of sides 3 to 6 take 0.2, 0.2, 0.2 and 0.4 s in the four on 2 cores.
"""


def solve(instances: Instance, objective: Objective = Objective.SUM_OF_COSTS, max_steps: int = MAX_STEPS) -> Solution:
    """Optimal plans for a batch, in its order; numpy arrays.

    ``OUT_OF_BUDGET`` is rare for two agents (0.1 % of boards of sides 3 to 6 with up to half the cells holes, 0.06 % of
    sides 3 to 10) and means a long way back to a passing place; ``UNSOLVABLE`` is always proved for two. With more
    agents, those that block each other without any pair of them doing so stay undecided.

    Args:
      instances: ``[batch]``, any size of batch.
      objective: what an optimal plan minimises.
      max_steps: the horizon. An instance whose optimum may need more steps is ``OUT_OF_BUDGET``.

    Raises:
      ValueError: for arrays or a horizon larger than the search's number formats.
    """
    bounds = np.full(len(instances.size), UNBOUNDED, np.int32)
    return _staged(instances, bounds, True, objective, max_steps)


def needs_wait(instances: Instance, solutions: Solution, objective: Objective = Objective.SUM_OF_COSTS) -> np.ndarray:
    """bool ``[batch]``: every optimal plan contains a wait before an agent's (last) arrival.

    Meaningful where the solution is ``SOLVED``; False where that search ran out of its budget, which
    ``without_waiting`` tells apart.
    """
    solved = np.asarray(solutions.status) == Status.SOLVED
    return solved & (without_waiting(instances, solutions, objective) == Status.UNSOLVABLE)


def without_waiting(
    instances: Instance, solutions: Solution, objective: Objective = Objective.SUM_OF_COSTS
) -> np.ndarray:
    """The ``Status``, int32 ``[batch]``, of looking for plans as cheap as the optimum in which nobody waits.

    Args:
      instances: ``[batch]``.
      solutions: what ``solve`` found for them under the same objective. Where it is not ``SOLVED`` its own status is
        repeated.
      objective: as in ``solve``.
    """
    status = np.array(solutions.status)
    asked = status == Status.SOLVED
    if objective is Objective.SUM_OF_COSTS:
        # At the lower bound everyone walks a shortest path. Not so for the makespan: one with time to spare may wait.
        asked &= np.asarray(solutions.cost) > np.asarray(solutions.lower_bound)
    indices = np.flatnonzero(asked)
    some = jax.tree.map(lambda part: np.asarray(part)[indices], instances)
    max_steps = solutions.plan.paths.shape[-1] - 1
    status[indices] = _staged(some, np.asarray(solutions.cost)[indices], False, objective, max_steps).status
    return status


def _staged(
    instances: Instance, cost_bound: np.ndarray, may_wait: bool, objective: Objective, max_steps: int
) -> Solution:
    if instances.max_size > MAX_SIZE or instances.max_agents > MAX_AGENTS or max_steps > MAX_HORIZON:
        raise ValueError(
            f"max_size {instances.max_size}, max_agents {instances.max_agents} and max_steps {max_steps} must be at "
            f"most {MAX_SIZE}, {MAX_AGENTS} and {MAX_HORIZON}"
        )
    batch = len(cost_bound)
    padded, bounds = _with_nobody(instances), np.append(cost_bound, 0).astype(np.int32)
    result = _undecided(batch, instances.max_agents, max_steps)

    def take(chunk: np.ndarray) -> Instance:
        return jax.tree.map(lambda part: part[chunk], padded)

    def run(pending: np.ndarray, lanes: int, expansions: int) -> np.ndarray:
        """Searches the pending instances, writes what is found, and returns the indices of those still undecided."""
        found = _in_batches(
            lambda chunk: search(take(chunk), bounds[chunk], may_wait, max_steps, expansions, objective), pending, lanes
        )
        if found is not None:
            for whole, part in zip(jax.tree.leaves(result), jax.tree.leaves(found), strict=True):
                whole[pending] = part
        return pending[result.status[pending] == Status.OUT_OF_BUDGET]

    pending = run(np.arange(batch), _ROOTS, 0)
    stuck = _in_batches(lambda chunk: deadlocked(take(chunk)), pending, _STAGES[0][0])
    if stuck is not None:
        result.status[pending[stuck]] = Status.UNSOLVABLE
        pending = pending[~stuck]
    for lanes, expansions in _STAGES:
        pending = run(pending, lanes, expansions)
    return result


def _in_batches(function: Callable[[np.ndarray], Any], indices: np.ndarray, lanes: int) -> Any:
    """The function's results for the indices, in numpy; None for no index. Batches are filled up with index -1."""
    if not len(indices):
        return None
    filled = np.concatenate([indices, np.full(-len(indices) % lanes, -1, indices.dtype)])
    parts = [function(chunk) for chunk in filled.reshape(-1, lanes)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(indices)], *parts)


def _with_nobody(instances: Instance) -> Instance:
    """The instances as numpy arrays, and behind them one without agents, which costs the search nothing."""
    nobody = np.full((1, instances.max_agents), ABSENT, np.int32)
    zero = np.zeros(1, np.int32)
    no_holes = np.zeros((1, instances.max_size**2), bool)
    last = Instance(size=zero, num_agents=zero, holes=no_holes, starts=nobody, goals=nobody)
    return jax.tree.map(lambda part, end: np.concatenate([np.asarray(part), end]), instances, last)


def _undecided(batch: int, max_agents: int, max_steps: int) -> Solution:
    plan = Plan(
        parsable=np.zeros(batch, bool),
        num_named=np.zeros(batch, np.int32),
        paths=np.full((batch, max_agents, max_steps + 1), ABSENT, np.int32),
        lengths=np.zeros((batch, max_agents), np.int32),
    )
    return Solution(
        status=np.full(batch, Status.OUT_OF_BUDGET, np.int32),
        plan=plan,
        cost=np.full(batch, ABSENT, np.int32),
        lower_bound=np.full(batch, ABSENT, np.int32),
        expansions=np.zeros(batch, np.int32),
    )

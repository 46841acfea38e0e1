"""Exact solving on the host: runs the batched search in stages, each for what the one before left undecided."""

import jax
import numpy as np

from jaxlake.solver.corridor import deadlocked
from jaxlake.solver.tree import UNBOUNDED, search
from jaxlake.types import ABSENT, MAX_STEPS, Instance, Objective, Plan, Solution, Status

_STAGES = ((1024, 0), (256, 8), (64, 128), (16, 1024))
"""(instances per batch, expansions): nine of ten instances have no conflict at the root, few need a large tree."""


def solve(
    instances: Instance, objective: Objective = Objective.SUM_OF_COSTS, max_steps: int = MAX_STEPS
) -> Solution:
    """Optimal plans for a batch, in its order; numpy arrays.

    Args:
      instances: ``[batch]``, any size of batch.
      objective: what an optimal plan minimises.
      max_steps: the horizon, at most 127. An instance whose optimum may lie beyond it is ``OUT_OF_BUDGET``.
    """
    batch = len(instances.size)
    return _staged(instances, np.full(batch, UNBOUNDED, np.int32), True, objective, max_steps)


def needs_wait(
    instances: Instance, solutions: Solution, objective: Objective = Objective.SUM_OF_COSTS
) -> np.ndarray:
    """bool ``[batch]``: every optimal plan contains a wait before an agent's (last) arrival.

    Meaningful where the solution is ``SOLVED``; False where that search ran out of its budget, which
    ``without_waiting`` tells apart.
    """
    return without_waiting(instances, solutions, objective) == Status.UNSOLVABLE


def without_waiting(
    instances: Instance, solutions: Solution, objective: Objective = Objective.SUM_OF_COSTS
) -> np.ndarray:
    """The ``Status``, int32 ``[batch]``, of looking for plans as cheap as the optimum in which nobody waits.

    Args:
      instances: ``[batch]``.
      solutions: what ``solve`` found for them under the same objective; where it is not ``SOLVED``, neither is this
        and its status is repeated.
      objective: as in ``solve``.
    """
    status = np.array(solutions.status)
    asked = status == Status.SOLVED
    if objective is Objective.SUM_OF_COSTS:
        # At the lower bound every agent walks a shortest path. Not so for the makespan: one with time to spare may wait.
        asked &= np.asarray(solutions.cost) > np.asarray(solutions.lower_bound)
    indices = np.flatnonzero(asked)
    max_steps = solutions.plan.paths.shape[-1] - 1
    some = jax.tree.map(lambda part: np.asarray(part)[indices], instances)
    found = _staged(some, np.asarray(solutions.cost)[indices], False, objective, max_steps)
    status[indices] = found.status
    return status


def _staged(
    instances: Instance, cost_bound: np.ndarray, may_wait: bool, objective: Objective, max_steps: int
) -> Solution:
    batch = len(cost_bound)
    bare = _with_padding(instances)
    bounds = np.append(cost_bound, 0).astype(np.int32)
    result = _blank(batch, instances.max_agents, max_steps)
    pending = np.arange(batch)
    for stage, (lanes, expansions) in enumerate(_STAGES):
        if stage == 1:
            stuck = np.concatenate([
                np.asarray(deadlocked(jax.tree.map(lambda part: part[chunk], bare)))[: len(pending)] for chunk in _chunks(pending, lanes, batch)
            ] or [np.zeros(0, bool)])[: len(pending)]
            result.status[pending[stuck]] = Status.UNSOLVABLE
            pending = pending[~stuck]
        parts = []
        for chunk in _chunks(pending, lanes, batch):
            part = jax.tree.map(lambda part: part[chunk], bare)
            parts.append(search(part, bounds[chunk], may_wait, max_steps, expansions, objective))
        for chunk, part in zip(_chunks(pending, lanes, batch), parts, strict=True):
            real = chunk < batch
            def write(whole, piece):
                whole[chunk[real]] = np.asarray(piece)[real]
            jax.tree.map(write, result, part)
        pending = pending[result.status[pending] == Status.OUT_OF_BUDGET]
    return result


def _chunks(indices: np.ndarray, lanes: int, padding: int) -> list[np.ndarray]:
    missing = -len(indices) % lanes
    padded = np.concatenate([indices, np.full(missing, padding, indices.dtype)])
    return list(padded.reshape(-1, lanes))


def _with_padding(instances: Instance) -> Instance:
    """The instances as numpy arrays and one without agents behind them."""
    nobody = np.full((1, instances.max_agents), ABSENT, np.int32)
    one = np.zeros(1, np.int32)
    extra = Instance(size=one, num_agents=one, holes=np.zeros((1, instances.max_size**2), bool), starts=nobody, goals=nobody)
    return jax.tree.map(lambda part, end: np.concatenate([np.asarray(part), end]), instances, extra)


def _blank(batch: int, max_agents: int, max_steps: int) -> Solution:
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

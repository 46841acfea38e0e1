"""Exact search over the joint positions of one instance, in numpy; for the few that the batched searches leave over.

A* in the order of the estimated total cost, over all joint positions at once that share it. Only cells that agents can
get to count, so crowded boards, where Conflict-Based Search fails or cannot prove that there is no plan, are small.
"""

import numpy as np

from jaxlake.levels import distance_fields
from jaxlake.solve.tree import UNBOUNDED
from jaxlake.types import ABSENT, Instance, Objective, Status

_STATES = 1 << 22
"""Joint positions at most: 8 bytes each. Three agents fit on any board up to 10x10, four up to 44 free cells and five
up to 20."""

_STEPS = 3_000_000
"""Joint steps looked at before an instance is given up: about a second."""

_TOGETHER = 256
"""Joint positions whose steps are listed together, up to 3,125 each for five agents."""

_FAR = 1 << 20


def search_exhaustively(
    instance: Instance, cost_bound: int, may_wait: bool, objective: Objective
) -> tuple[Status, np.ndarray | None]:
    """Find an optimal plan of at most a given cost, of any length.

    Args:
      instance: one, in numpy, with at least one agent.
      cost_bound: ``tree.UNBOUNDED`` for none.
      may_wait: whether agents may wait before their last arrival.

    Returns:
      ``SOLVED`` and the agents' cells over time, int ``[steps + 1, agents]``; or without a plan ``UNSOLVABLE`` as
      proved, or ``OUT_OF_BUDGET`` for too many joint positions or steps.
    """
    agents = int(instance.num_agents)
    near = _neighbours(instance)
    steps_to_go = np.asarray(distance_fields(instance))[:agents].astype(int)
    away = np.where(steps_to_go == ABSENT, _FAR, steps_to_go)
    if np.any(away[np.arange(agents), instance.starts[:agents]] == _FAR):
        return Status.UNSOLVABLE, None

    # An agent's place is the number of its cell among those in reach, or `parked`, at no cost, on its goal for good.
    reach = np.flatnonzero(np.any(away < _FAR, axis=0))
    parked = len(reach)
    places = parked + 1
    if places**agents > _STATES:
        return Status.OUT_OF_BUDGET, None
    number = np.full(len(near), -1)
    number[reach] = np.arange(parked)
    starts, goals = number[instance.starts[:agents]], number[instance.goals[:agents]]
    waits = np.append(np.arange(parked) if may_wait else np.full(parked, -1), parked)
    options = np.column_stack([np.append(number[near[reach]], np.full((1, 4), -1), axis=0), waits])
    cell = np.column_stack([np.tile(np.arange(parked), (agents, 1)), goals])
    to_go = np.column_stack([away[:, reach], np.zeros(agents, int)])
    # The makespan asks for parking only to tell the waits after an agent's last arrival from those before.
    parks = objective is Objective.SUM_OF_COSTS or not may_wait
    total = np.sum if objective is Objective.SUM_OF_COSTS else np.max
    limit = cost_bound if cost_bound < UNBOUNDED else np.inf

    weights = places ** np.arange(agents)
    start, end = int(weights @ starts), int(weights @ (np.full(agents, parked) if parks else goals))
    estimates = np.full(places**agents, _FAR, np.int32)
    parents = np.empty(places**agents, np.int32)
    each = np.arange(agents)[:, None]
    estimates[start] = int(total(to_go[np.arange(agents), starts]))
    queue, steps = {int(estimates[start]): [np.array([start])]}, 0
    while queue:
        estimate = min(queue)
        if estimate > limit:
            break
        if estimates[end] == estimate:
            return Status.SOLVED, reach[_walk_back(parents, start, end, weights, cell)]
        states = np.unique(np.concatenate(queue.pop(estimate)))
        states = states[estimates[states] == estimate]
        for some in np.split(states, range(_TOGETHER, len(states), _TOGETHER)):
            at = some // weights[:, None] % places
            rows, after = _joint_steps(at, options, cell)
            steps += len(rows)
            if steps > _STEPS:
                return Status.OUT_OF_BUDGET, None
            grown = total((at < parked).astype(int), axis=0) - total(to_go[each, at], axis=0)
            found = [(some[rows], weights @ after, estimate + grown[rows] + total(to_go[each, after], axis=0))]
            for agent in range(agents if parks else 0):
                home = some[at[agent] == goals[agent]]
                found.append((home, home + (parked - goals[agent]) * weights[agent], np.full(len(home), estimate)))
            before, following, estimated = map(np.concatenate, zip(*found, strict=True))
            for value in np.unique(estimated).tolist():
                better = (estimated == value) & (estimates[following] > value)
                estimates[following[better]] = value
                parents[following[better]] = before[better]
                queue.setdefault(value, []).append(following[better])
    return Status.UNSOLVABLE, None


def _neighbours(instance: Instance) -> np.ndarray:
    """Return the free cells next to each cell, ``[cells + 1, 4]``; ``cells`` for none, and none for holes."""
    size, cells = instance.max_size, instance.max_size**2
    axis = np.arange(size) < instance.size
    free = ~instance.holes.reshape(size, size) & axis[:, None] & axis
    grid = np.pad(np.where(free, np.arange(cells).reshape(size, size), cells), 1, constant_values=cells)
    near = np.stack([grid[:-2, 1:-1], grid[2:, 1:-1], grid[1:-1, :-2], grid[1:-1, 2:]], axis=-1)
    near = np.where(free[..., None], near, cells).reshape(cells, 4)
    return np.append(near, np.full((1, 4), cells), axis=0)


def _joint_steps(at: np.ndarray, options: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All joint steps without a conflict.

    Args:
      at: places ``[agents, states]``.
      options: the places next to each, ``[places, 5]``, -1 for none.
      cell: the cell of each agent's places, ``[agents, places]``.

    Returns:
      which state each step starts from, ``[steps]``, and the places that it ends at, ``[agents, steps]``.
    """
    rows, after = np.arange(at.shape[1]), np.empty((0, at.shape[1]), int)
    for agent in range(len(at)):
        ends = options[at[agent, rows]]
        here, there = cell[agent, at[agent, rows]], cell[agent, ends]
        possible = ends >= 0
        for other in range(agent):
            taken, left = cell[other, after[other]], cell[other, at[other, rows]]
            possible &= there != np.where(here == taken, left, taken)[:, None]
            possible &= there != taken[:, None]
        row, option = np.nonzero(possible)
        rows, after = rows[row], np.vstack([after[:, row], ends[row, option]])
    return rows, after


def _walk_back(parents: np.ndarray, start: int, end: int, weights: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Return the cells of the agents over time, ``[steps + 1, agents]``."""
    states = [end]
    while states[-1] != start:
        states.append(int(parents[states[-1]]))
    cells = cell[np.arange(len(cell)), np.array(states[::-1])[:, None] // weights % cell.shape[1]]
    # Who parks stays where it is, which takes no time; all other steps lead elsewhere.
    path: np.ndarray = cells[np.append(True, np.any(cells[1:] != cells[:-1], axis=1))]
    return path

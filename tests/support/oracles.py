"""Exact solvers that share nothing with the one under test: joint search in plain Python, and w9-pathfinding.

They are slow and their inputs small; nothing here runs under JAX. ``w9-pathfinding`` is imported only when asked for.
"""

import heapq
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from jaxlake.levels import stack
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, Instance, Objective

HORIZON = 200
"""Longest path that w9 may return, in steps. A plan that costs no more than this is optimal without a limit, too."""

Joint = tuple[int, ...]


class Undecided(Exception):
    """The solver ran out of time."""


def random_instance(
    rng: np.random.Generator,
    size: int,
    num_agents: int,
    hole_ratio: float,
    *,
    overlapping: bool,
    max_size: int = MAX_SIZE,
    max_agents: int = MAX_AGENTS,
) -> Instance:
    """A board of side ``size`` with ``floor(hole_ratio * (size**2 - 2 * num_agents))`` holes, padded.

    Starts and goals are on different cells, all ``2 * num_agents`` of them; if ``overlapping``, starts differ from one
    another and goals do, but an agent may start on any goal, its own included.
    """
    cells = [row * max_size + column for row in range(size) for column in range(size)]
    count = int(hole_ratio * (size**2 - 2 * num_agents) + 1e-9)
    order = rng.permutation(cells)
    holes = np.zeros(max_size**2, bool)
    holes[order[:count]] = True
    free = order[count:]
    ends = np.full((2, max_agents), ABSENT, np.int32)
    ends[0, :num_agents] = free[:num_agents]
    ends[1, :num_agents] = rng.permutation(free)[:num_agents] if overlapping else free[num_agents : 2 * num_agents]
    return Instance(size=np.int32(size), num_agents=np.int32(num_agents), holes=holes, starts=ends[0], goals=ends[1])


def random_boards(
    rng: np.random.Generator, count: int, shapes: Sequence[tuple[int, int]], holes: float = 0.5, **padding: int
) -> Instance:
    """``[count]`` boards of these sizes and agents in turn, of which up to a share of the cells are holes."""
    return stack(
        [
            random_instance(rng, *shapes[number % len(shapes)], rng.uniform(0, holes), overlapping=True, **padding)
            for number in range(count)
        ]
    )


def moves(instance: Instance) -> dict[int, list[int]]:
    """For each free cell the cells that an agent on it may be on one step later, itself first."""
    size, stride = int(instance.size), instance.max_size
    cells = (row * stride + column for row, column in itertools.product(range(size), repeat=2))
    free = {cell for cell in cells if not instance.holes[cell]}
    steps = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    return {
        cell: [
            (row + down) * stride + column + right
            for down, right in steps
            if 0 <= row + down < size and 0 <= column + right < size and (row + down) * stride + column + right in free
        ]
        for cell in free
        for row, column in [divmod(cell, stride)]
    }


def ends(instance: Instance) -> tuple[Joint, Joint]:
    """Starts and goals of the agents that are there."""
    count = int(instance.num_agents)
    return tuple(map(int, instance.starts[:count])), tuple(map(int, instance.goals[:count]))


def distances(near: dict[int, list[int]], goal: int) -> dict[int, int]:
    """Steps from each cell that ``goal`` can be reached from, in an empty board."""
    found, frontier = {goal: 0}, [goal]
    for cell in frontier:
        for other in near[cell]:
            if other not in found:
                found[other] = found[cell] + 1
                frontier.append(other)
    return found


def path_lengths(instance: Instance) -> list[int]:
    """Steps of each agent's shortest path."""
    near = moves(instance)
    return [distances(near, goal)[start] for start, goal in zip(*ends(instance), strict=True)]


def least_cost(instance: Instance, objective: Objective, may_wait: bool = True, bound: float = np.inf) -> int | None:
    """Least cost by Dijkstra over joint positions and who has parked; None where none is at most ``bound``."""
    near = moves(instance)
    start, goals = ends(instance)
    nobody = (False,) * len(start)
    best, queue = {(start, nobody): 0}, [(0, start, nobody)]
    while queue:
        cost, positions, parked = heapq.heappop(queue)
        if cost > bound:
            return None
        if all(parked):
            return cost
        if cost > best[positions, parked]:
            continue
        states = []
        for agent, (at, goal) in enumerate(zip(positions, goals, strict=True)):
            if at == goal and not parked[agent]:
                states.append((cost, positions, parked[:agent] + (True,) + parked[agent + 1 :]))
        step = 1 if objective is Objective.MAKESPAN else parked.count(False)
        for after in joint_moves(near, positions, parked):
            waits = any(a == b and not p for a, b, p in zip(after, positions, parked, strict=True))
            if may_wait or not waits:
                states.append((cost + step, after, parked))
        for cost_of, *state in states:
            if cost_of < best.get(tuple(state), np.inf):
                best[tuple(state)] = cost_of
                heapq.heappush(queue, (cost_of, *state))
    return None


def joint_moves(near: dict[int, list[int]], positions: Joint, parked: tuple[bool, ...]) -> Iterator[Joint]:
    """Where the agents can be one step later: parked ones stay, and no two share a cell or change places."""
    options = [[at] if p else near[at] for at, p in zip(positions, parked, strict=True)]
    pairs = list(itertools.combinations(range(len(positions)), 2))
    for after in itertools.product(*options):
        if len(set(after)) == len(after) and not any(
            after[i] == positions[j] and after[j] == positions[i] for i, j in pairs
        ):
            yield after


def w9_sum_of_costs(instance: Instance, solver: str, max_time: float) -> int | None:
    """The optimum by one of w9-pathfinding's solvers, ``ICTS`` or ``MultiAgentAStar``; None where it proves no plan.

    Raises:
      Undecided: after ``max_time`` seconds.
    """
    from w9_pathfinding import mapf
    from w9_pathfinding.envs import Grid

    size, stride = int(instance.size), instance.max_size
    board = np.asarray(instance.holes).reshape(stride, stride)[:size, :size]
    # edge_collision is off by default, and then agents may change places.
    grid = Grid(weights=np.where(board, -1.0, 1.0).tolist(), edge_collision=True)
    starts, goals = ([divmod(cell, stride)[::-1] for cell in cells] for cells in ends(instance))
    try:
        paths = getattr(mapf, solver)(grid).mapf(starts, goals, max_length=HORIZON, max_time=max_time)
    except RuntimeError as error:
        raise Undecided from error
    cost = sum(map(last_arrival, paths))
    if cost > HORIZON:
        raise Undecided
    return cost if paths else None


def last_arrival(path: list) -> int:
    """Steps until a path reaches its last cell for good."""
    length = len(path)
    while length > 1 and path[length - 2] == path[-1]:
        length -= 1
    return length - 1

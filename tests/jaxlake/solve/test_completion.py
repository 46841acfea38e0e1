"""Costs of the best completion of partly written plans against A* in plain Python, `verify`, and hand-worked boards."""

import functools
import heapq
import itertools

import jax
import numpy as np
import oracles
import pytest

from jaxlake import levels
from jaxlake.board_text import from_text
from jaxlake.solve import INFINITE, completion_costs
from jaxlake.types import ABSENT, OUTSIDE, Instance, Plan
from jaxlake.verify import verify

BOARDS, PLANS, SIZE, SLOTS, STEPS = 16, 4, 4, 3, 9  # of all batches here, so that one program is compiled

Path = list[int]


def search(instance: Instance, forced: list[Path], rest: int) -> int | None:
    """The least sum of costs where agents begin with the paths given, the first ``rest`` of them whole; None for none.

    A* over time, cells and who has parked. Time stops when nobody is forced any more.
    """
    near = oracles.moves(instance)
    starts, goals = oracles.ends(instance)
    to_goal = [oracles.distances(near, goal) for goal in goals]
    forced = [forced[agent] if agent < len(forced) else [] for agent in range(len(starts))]
    if any(path[:1] not in ([], [start]) for path, start in zip(forced, starts, strict=True)):
        return None
    if any(not path for path in forced[:rest]):
        return None
    horizon = max(map(len, forced))

    def options(agent: int, at: int, time: int) -> Path:
        if time < len(forced[agent]):
            return [forced[agent][time]] if forced[agent][time] in near[at] else []
        return [at] if agent < rest else near[at]

    best: dict[tuple, int] = {}
    queue: list[tuple] = []

    def push(cost: int, time: int, at: tuple[int, ...], parked: tuple[bool, ...]) -> None:
        park = [(p, True) if cell == goal else (p,) for cell, goal, p in zip(at, goals, parked, strict=True)]
        for flags in set(itertools.product(*park)):
            state = (min(time, horizon), at, flags)
            left = [0 if p else table.get(cell) for cell, table, p in zip(at, to_goal, flags, strict=True)]
            if None not in left and cost < best.get(state, cost + 1):
                best[state] = cost
                heapq.heappush(queue, (cost + sum(left), cost, state))

    if any(start in starts[:agent] for agent, start in enumerate(starts)):
        return None
    push(0, 0, starts, (False,) * len(starts))
    while queue:
        _, cost, state = heapq.heappop(queue)
        time, at, parked = state
        if cost > best[state]:
            continue
        if all(parked) and time >= horizon - 1:
            return cost
        choices = [options(agent, cell, time + 1) for agent, cell in enumerate(at)]
        for after in itertools.product(*choices):
            stays = all(b == a for a, b, p in zip(at, after, parked, strict=True) if p)
            swaps = any(after[i] == at[j] and after[j] == at[i] for i, j in itertools.combinations(range(len(at)), 2))
            if stays and len(set(after)) == len(after) and not swaps:
                push(cost + parked.count(False), time + 1, after, parked)
    return None


def expected(instance: Instance, paths: list[Path], agent: int, count: int) -> int:
    if agent > len(paths) or (agent == len(paths) and count) or (agent < len(paths) and count > len(paths[agent])):
        return INFINITE
    written = paths[:agent] + ([paths[agent][:count]] if agent < len(paths) else [])
    found = search(instance, written, agent)
    return INFINITE if found is None else found


def random_path(rng: np.random.Generator, instance: Instance, agent: int) -> Path:
    """A walk that mostly nears its goal, and may rest there and leave it; sometimes broken in one of several ways."""
    near = oracles.moves(instance)
    starts, goals = oracles.ends(instance)
    table = oracles.distances(near, goals[agent])
    path = [starts[agent]]
    length = rng.integers(1, STEPS + 2)
    purpose = rng.choice([0.3, 0.9, 1])
    while len(path) < length:
        ahead = near[path[-1]]
        if rng.random() < purpose:
            least = min(table.get(cell, 99) for cell in ahead)
            ahead = [cell for cell in ahead if table.get(cell, 99) == least]
        path.append(int(rng.choice(ahead)))
    if rng.random() < 0.7 and goals[agent] in path:
        path = path[: len(path) - path[::-1].index(goals[agent])]
    fault = rng.random()
    if fault < 0.1:
        path[rng.integers(len(path))] = int(rng.integers(SIZE**2))
    elif fault < 0.14:
        path[rng.integers(len(path))] = OUTSIDE
    elif fault < 0.18:
        path = []
    return path


def random_paths(rng: np.random.Generator, instance: Instance) -> list[Path]:
    """Half of the time those of a valid plan, if there is one in so many draws."""
    agents = range(int(instance.num_agents))
    draws = [[random_path(rng, instance, agent) for agent in agents] for _ in range(40 if rng.random() < 0.5 else 1)]
    return next((paths for paths in draws if search(instance, paths, len(paths)) is not None), draws[0])


def plans_of(instances: Instance, paths: list[list[list[Path]]]) -> Plan:
    boards, slots = instances.starts.shape
    cells = np.full((boards, PLANS, slots, STEPS + 1), ABSENT, np.int32)
    lengths = np.zeros((boards, PLANS, slots), np.int32)
    for board, plans in enumerate(paths):
        for plan, written in enumerate(plans):
            for agent, path in enumerate(written):
                cells[board, plan, agent, : len(path)] = path
                lengths[board, plan, agent] = len(path)
    named = np.broadcast_to(instances.num_agents[:, None], lengths.shape[:2]).astype(np.int32)
    return Plan(parsable=np.ones(lengths.shape[:2], bool), num_named=named, paths=cells, lengths=lengths)


@functools.cache
def case(agents: int) -> tuple[Instance, list[list[list[Path]]], Plan, np.ndarray]:
    """Boards, the paths of their plans, these as a ``Plan``, and what comes of them."""
    rng = np.random.default_rng(agents)
    instances = oracles.random_boards(rng, BOARDS, [(3, agents), (4, agents)], 0.4, max_size=SIZE, max_agents=SLOTS)
    paths = [[random_paths(rng, instance) for _ in range(PLANS)] for instance in instances]
    plans = plans_of(instances, paths)
    found = completion_costs(instances, plans)
    assert found.dtype == np.int32 and found.shape == (BOARDS, PLANS, SLOTS + 1, STEPS + 2)
    return instances, paths, plans, np.asarray(found)


def drawn(text: str, *written: list[list[tuple[int, int]]]) -> list[np.ndarray]:
    """What the plans on a board cost, int32 ``[agents + 1, steps + 2]`` each; (row, column) as texts write it."""
    instance = from_text(text, max_size=SIZE, max_agents=SLOTS)
    paths = [[[row * SIZE + column for row, column in path] for path in plan] for plan in written]
    instances = levels.stack([instance] * BOARDS)
    found = np.asarray(completion_costs(instances, plans_of(instances, [paths] * BOARDS)))
    return list(found[0, : len(written)])


@pytest.mark.parametrize("agents", [1, 2])
def test_every_entry_of_two_agents_equals_a_search(agents):
    instances, paths, _, found = case(agents)
    finite = 0
    for board, plan in itertools.product(range(BOARDS), range(PLANS)):
        for agent, count in itertools.product(range(agents + 1), range(STEPS + 2)):
            wanted = expected(instances[board], paths[board][plan], agent, count)
            assert found[board, plan, agent, count] == wanted, (board, plan, agent, count)
            finite += wanted < INFINITE
    assert finite > 200


def test_entries_of_three_agents_are_bounds_and_exact_where_one_is_free():
    instances, paths, _, found = case(3)
    below, equal = [], []
    for board, plan in itertools.product(range(BOARDS), range(0, PLANS, 4)):  # a search of all completions each
        for agent, count in itertools.product(range(4), range(STEPS + 2)):
            wanted = expected(instances[board], paths[board][plan], agent, count)
            bound = found[board, plan, agent, count]
            if agent >= 2:
                assert bound == wanted, (board, plan, agent, count)
            assert bound <= wanted, (board, plan, agent, count)
            if wanted < INFINITE:
                (equal if bound == wanted else below).append(wanted - bound)
    assert len(equal) > 4 * len(below) > 0  # though the boards are so small that all three are in each other's way


@pytest.mark.parametrize("agents", [2, 3])
def test_the_whole_plan_costs_what_verify_says(agents):
    instances, _, plans, found = case(agents)
    each = jax.tree.map(lambda leaf: np.repeat(leaf[:, None], PLANS, axis=1), instances)
    cost = np.asarray(verify(each, plans, np.int32(ABSENT)).cost)
    assert 5 < np.sum(cost == ABSENT) < cost.size - 5
    np.testing.assert_array_equal(found[:, :, agents, 0], np.where(cost == ABSENT, INFINITE, cost))


def test_the_cell_after_which_the_other_must_wait_costs_a_step():
    # Whoever is second in the corridor's mouth (1,1) waits a step; a wait of a before that is a step lost for nothing.
    board = """
        a#.#
        ...A
        b#B#
        ####
    """
    a, b = [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)], [(2, 0), (2, 0), (1, 0), (1, 1), (1, 2), (2, 2)]
    late = [(0, 0), (0, 0), (0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]
    first, second = drawn(board, [a, b], [late, b])
    assert first[0, :6].tolist() == [4 + 5] * 6 and first[1, :7].tolist() == [9] * 7 and first[2, 0] == 9
    # With one wait b goes first and a comes to no harm; with two a loses a step.
    assert second[0, :8].tolist() == [9, 9, 9, 10, 10, 10, 10, 10]
    # b need not have waited for such an a.
    assert second[1, :7].tolist() == [10, 10, 11, 11, 11, 11, 11] and second[2, 0] == 11


def test_resting_on_the_goal_is_charged_if_the_agent_has_to_leave_it_again():
    # a stands on its goal, in b's only way: it steps into the bay (1,1) as b passes, and back.
    board = """
        ba.. .AB.
        #.## #.##
        #### ####
        #### ####
    """
    slow, stays = [(0, 1), (1, 1), (1, 1), (0, 1)], [(0, 1), (0, 1), (0, 1)]
    first, second, third = drawn(board, [slow, [(0, 0), (0, 1), (0, 2)]], [stays, []], [stays[:1], []])
    assert first[0, :5].tolist() == [4, 4, 4, 5, 5] and first[1, :4].tolist() == [5] * 4 and first[2, 0] == 5
    # Each rest is charged to a, which has to leave, and to b, which waits for it.
    assert second[0, :4].tolist() == [4, 4, 6, 8]
    assert (second[1:] == INFINITE).all()  # written whole, a stays for good
    assert third[0, :3].tolist() == [4, 4, INFINITE] and (third[1:] == INFINITE).all()

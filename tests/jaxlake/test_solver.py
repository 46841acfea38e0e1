"""The solver against brute force over joint states, and on boards worked out by hand."""

import heapq
import itertools

import jax
import numpy as np
import pytest

from jaxlake.board_text import from_text
from jaxlake.solve import needs_wait, solve, waits, without_waiting
from jaxlake.types import ABSENT, Instance, Objective, Status
from jaxlake.verify import verify

# One shape for the whole module, and the generator's tests, so that the solver is compiled once per objective.
MAX_SIZE, MAX_AGENTS = 5, 3


def random_boards(rng: np.random.Generator, count: int, sizes: list[int], agents: list[int]) -> Instance:
    """Starts differ and goals differ, but an agent may start on any goal, its own included."""
    instances = []
    for _ in range(count):
        size, num_agents = rng.choice(sizes), rng.choice(agents)
        inside = np.array([row * MAX_SIZE + column for row in range(size) for column in range(size)])
        free = rng.permutation(inside)[: max(num_agents + 1, round(len(inside) * rng.uniform(0.5, 1)))]
        holes = np.zeros(MAX_SIZE**2, bool)
        holes[np.setdiff1d(inside, free)] = True
        ends = np.full((2, MAX_AGENTS), ABSENT, np.int32)
        ends[:, :num_agents] = [rng.permutation(free)[:num_agents] for _ in range(2)]
        instances.append(
            Instance(size=np.int32(size), num_agents=np.int32(num_agents), holes=holes, starts=ends[0], goals=ends[1])
        )
    return stack(instances)


def stack(instances: list[Instance]) -> Instance:
    return jax.tree.map(lambda *parts: np.stack(parts), *instances)


def brute_force(instance: Instance, objective: Objective, may_wait: bool = True, bound: float = np.inf) -> int | None:
    """Least cost by Dijkstra over joint positions and, per agent, whether it has committed to stay on its goal."""
    n, size = int(instance.num_agents), int(instance.size)
    free = {
        row * MAX_SIZE + column
        for row, column in itertools.product(range(size), repeat=2)
        if not instance.holes[row * MAX_SIZE + column]
    }
    goals = tuple(instance.goals[:n].tolist())
    moves = {}
    for cell in free:
        row, column = divmod(cell, MAX_SIZE)
        near = [(row, column)] * may_wait + [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        moves[cell] = [
            r * MAX_SIZE + c for r, c in near if 0 <= r < size and 0 <= c < size and r * MAX_SIZE + c in free
        ]

    def commitments(positions, parked):
        choices = [
            (True,) if p else (False, True) if at == g else (False,)
            for at, g, p in zip(positions, goals, parked, strict=True)
        ]
        return itertools.product(*choices)

    start = tuple(instance.starts[:n].tolist())
    best = {(start, parked): 0 for parked in commitments(start, (False,) * n)}
    queue = [(0, *state) for state in best]
    heapq.heapify(queue)
    while queue:
        cost, positions, parked = heapq.heappop(queue)
        if cost > bound:
            return None
        if all(parked):
            return cost
        if cost > best[positions, parked]:
            continue
        cost += 1 if objective is Objective.MAKESPAN else n - sum(parked)
        options = [[at] if p else moves[at] for at, p in zip(positions, parked, strict=True)]
        for after in itertools.product(*options):
            if len(set(after)) < n or any(
                after[i] == positions[j] and after[j] == positions[i] for i in range(n) for j in range(i)
            ):
                continue
            for state in ((after, choice) for choice in commitments(after, parked)):
                if cost < best.get(state, np.inf):
                    best[state] = cost
                    heapq.heappush(queue, (cost, *state))
    return None


@pytest.mark.heavy
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    ("count", "sizes", "agents"),
    [(250, [2, 3, 4], [1, 2]), (40, [5], [2]), (60, [2, 3], [3]), (30, [4], [3])],
    ids=["two agents", "two agents on 5x5", "three agents", "three agents on 4x4"],
)
def test_the_optimum_and_the_need_to_wait_equal_brute_force(objective, count, sizes, agents):
    instances = random_boards(np.random.default_rng(count), count, sizes, agents)
    solutions = solve(instances, objective)
    verdicts = verify(instances, solutions.plan, solutions.cost, objective)
    waits = needs_wait(instances, solutions, objective)
    missed = 0
    for index in range(count):
        instance = jax.tree.map(lambda part, at=index: part[at], instances)
        optimum = brute_force(instance, objective)
        if solutions.status[index] == Status.SOLVED:
            assert solutions.cost[index] == optimum
            assert verdicts.optimal[index]
            assert waits[index] == (brute_force(instance, objective, may_wait=False, bound=optimum) is None)
        else:
            assert solutions.cost[index] == ABSENT
            assert not solutions.plan.lengths[index].any()
            if solutions.status[index] == Status.UNSOLVABLE:
                assert optimum is None
            missed += optimum is not None
    assert missed <= max(1, 0.05 * count)  # The rest is solved, or has no plan: only for pairs is that always proved.


def solve_one(board: str | Instance, objective: Objective = Objective.SUM_OF_COSTS):
    """Status, cost, whether every optimal plan waits, and the paths as coordinates."""
    instance = from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS) if isinstance(board, str) else board
    batch = stack([instance])
    solution = solve(batch, objective)
    paths = [
        [divmod(int(cell), MAX_SIZE) for cell in path[:length]]
        for path, length in zip(solution.plan.paths[0], solution.plan.lengths[0], strict=True)
        if length
    ]
    return Status(solution.status[0]), solution.cost[0], bool(needs_wait(batch, solution, objective)[0]), paths


def with_ends(size: int, starts: list[int], goals: list[int], holes: tuple[int, ...] = ()) -> Instance:
    board = np.zeros(MAX_SIZE**2, bool)
    board[list(holes)] = True
    padding = [ABSENT] * (MAX_AGENTS - len(starts))
    return Instance(
        size=np.int32(size),
        num_agents=np.int32(len(starts)),
        holes=board,
        starts=np.array(starts + padding, np.int32),
        goals=np.array(goals + padding, np.int32),
    )


def test_agents_in_each_others_way_in_a_corridor_are_proved_unsolvable():
    board = """
        aB.bA
        #####
        #####
        #####
        #####
    """
    assert solve_one(board)[0] is Status.UNSOLVABLE


def test_a_bay_in_the_corridor_makes_the_exchange_possible():
    board = """
        aB.bA
        ##.##
        #####
        #####
        #####
    """
    # Time 2: a on (0,2) would meet b, so b is in the bay by then: (0,2) at 1, bay at 2, (0,2) at 3, (0,1) at 4.
    assert solve_one(board)[:3] == (Status.SOLVED, 4 + 4, False)


def test_an_agent_without_any_way_is_unsolvable():
    board = """
        a#A
        .#.
        b#B
    """
    assert solve_one(board)[0] is Status.UNSOLVABLE


def test_an_agent_on_its_goal_moves_aside_and_comes_back():
    # Corridor (0,0)..(0,4) with a bay at (1,1). Agent 1 starts on its goal (0,1), in agent 0's way.
    holes = tuple(cell for cell in range(5, 25) if cell != 6)
    instance = with_ends(5, starts=[0, 1], goals=[4, 1], holes=holes)
    status, cost, waits, paths = solve_one(instance)
    # Agent 1 is in the bay at time 1, when agent 0 is on its goal, and follows it back there at time 2.
    assert (status, cost, waits) == (Status.SOLVED, 4 + 2, False)
    assert paths == [[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)], [(0, 1), (1, 1), (0, 1)]]


def test_an_agent_on_its_goal_and_in_nobodys_way_stays():
    status, cost, waits, paths = solve_one(with_ends(3, starts=[0, 12], goals=[2, 12]))
    assert (status, cost, waits) == (Status.SOLVED, 2, False)
    assert paths[1] == [(2, 2)]


@pytest.mark.heavy
def test_three_agents_rotate_in_one_step():
    # 0 1     agent 0: 0 -> 1, agent 1: 1 -> 6, agent 2: 6 -> 5; the fourth cell of the square is free.
    # 5 6
    assert solve_one(with_ends(2, starts=[0, 1, 6], goals=[1, 6, 5]))[:3] == (Status.SOLVED, 3, False)


def test_agents_follow_each_other_without_a_gap():
    board = """
        abcAB
        ####C
        #####
        #####
        #####
    """
    assert solve_one(board)[:3] == (Status.SOLVED, 3 + 3 + 3, False)


def test_crossing_agents_wait_for_one_another():
    board = """
        #b#
        a.A
        #B#
    """
    status, cost, waits, _ = solve_one(board)
    assert (status, cost, waits) == (Status.SOLVED, 2 + 3, True)


def test_agents_that_turn_around_a_square_need_no_wait():
    # 0 1    Exchanging 0 and 1: one agent goes 0 -> 1, the other around by 1 -> 6 -> 5 -> 0.
    # 5 6
    assert solve_one(with_ends(2, starts=[0, 1], goals=[1, 0]))[:3] == (Status.SOLVED, 1 + 3, False)


def test_an_agent_with_time_to_spare_has_to_wait_at_the_lower_bound_of_the_makespan():
    board = """
        ##b##
        #a..A
        ##B##
        #####
        #####
    """
    # Agent 0 needs all 3 steps and is on the crossing at time 1, when an agent 1 without a wait would be there too.
    assert solve_one(board, Objective.MAKESPAN)[:3] == (Status.SOLVED, 3, True)


@pytest.mark.heavy
def test_an_optimum_beyond_the_horizon_is_undecided_and_not_refuted():
    board = """
        a....
        ####.
        .....
        .####
        A.b.B
    """
    batch = stack([from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS)])
    assert solve(batch).cost.tolist() == [12 + 2]
    assert solve(batch, max_steps=11).status.tolist() == [Status.OUT_OF_BUDGET]


@pytest.mark.heavy
def test_two_of_three_agents_that_cannot_pass_each_other_are_proved_unsolvable():
    board = """
        aB.bA
        #####
        c....
        ....C
        #####
    """
    assert solve_one(board)[0] is Status.UNSOLVABLE


def test_a_plan_that_waits_is_told_from_one_that_does_not():
    boards = ["#b#\na.A\n#B#", "a.A\n...\nb.B"]
    batch = stack([from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS) for board in boards])
    assert waits(solve(batch)).tolist() == [True, False]


@pytest.mark.heavy
def test_results_come_in_the_order_of_the_instances_whatever_the_batch():
    instances = random_boards(np.random.default_rng(5), 300, [2, 3, 4], [1, 2, 3])
    order = np.random.default_rng(6).permutation(300)
    whole = solve(instances)
    shuffled = solve(jax.tree.map(lambda part: part[order], instances))
    for field in ("status", "cost", "lower_bound"):
        np.testing.assert_array_equal(getattr(whole, field)[order], getattr(shuffled, field))
    np.testing.assert_array_equal(whole.plan.paths[order], shuffled.plan.paths)
    empty = solve(jax.tree.map(lambda part: part[:0], instances))
    assert empty.status.shape == (0,) and empty.plan.paths.shape == (0, MAX_AGENTS, 65)


def test_without_waiting_repeats_the_status_of_what_was_not_solved():
    boards = ["aB.bA\n#####\n#####\n#####\n#####", "#b#\na.A\n#B#", "a.A\n...\nb.B"]
    batch = stack([from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS) for board in boards])
    found = without_waiting(batch, solve(batch))
    assert found.tolist() == [Status.UNSOLVABLE, Status.UNSOLVABLE, Status.SOLVED]


def test_one_agent_slot_is_solved_and_needs_no_wait():
    batch = stack([from_text(board, max_size=3, max_agents=1) for board in ("a.A\n...\n...", "a#A\n.#.\n.#.")])
    solutions = solve(batch)
    assert solutions.cost.tolist() == [2, ABSENT]
    assert needs_wait(batch, solutions).tolist() == [False, False]

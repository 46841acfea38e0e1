"""The solver against brute force over joint states, and on boards worked out by hand."""

import itertools

import jax
import numpy as np
import oracles
import pytest
from tree_search import search

from jaxlake.board_text import from_text
from jaxlake.levels import stack
from jaxlake.solve import needs_wait, solve, waits
from jaxlake.solve.tree import UNBOUNDED
from jaxlake.types import ABSENT, Objective, Status
from jaxlake.verify import verify

# One shape for the whole module, and the generator's tests, so that the solver is compiled once per objective.
MAX_SIZE, MAX_AGENTS = 5, 3


@pytest.mark.heavy
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    ("count", "sizes", "agents"),
    [(250, [2, 3, 4], [1, 2]), (40, [5], [2]), (60, [2, 3], [3]), (30, [4], [3])],
    ids=["two agents", "two agents on 5x5", "three agents", "three agents on 4x4"],
)
def test_the_optimum_and_the_need_to_wait_equal_brute_force(objective, count, sizes, agents):
    shapes = list(itertools.product(sizes, agents))
    padding = {"max_size": MAX_SIZE, "max_agents": MAX_AGENTS}
    instances = oracles.random_boards(np.random.default_rng(count), count, shapes, **padding)
    solutions = solve(instances, objective)
    verdicts = verify(instances, solutions.plan, solutions.cost, objective)
    waits = needs_wait(instances, solutions, objective)
    missed = 0
    for index in range(count):
        instance = jax.tree.map(lambda part, at=index: part[at], instances)
        optimum = oracles.least_cost(instance, objective)
        if solutions.status[index] == Status.SOLVED:
            assert solutions.cost[index] == optimum
            assert verdicts.optimal[index]
            assert waits[index] == (oracles.least_cost(instance, objective, may_wait=False, bound=optimum) is None)
        else:
            assert solutions.cost[index] == ABSENT
            assert not solutions.plan.lengths[index].any()
            if solutions.status[index] == Status.UNSOLVABLE:
                assert optimum is None
            missed += optimum is not None
    # The rest is solved, or has no plan: only for pairs is that always proved.
    assert missed <= max(1, 0.05 * count) and (max(agents) > 2 or (solutions.status != Status.OUT_OF_BUDGET).all())


def solve_one(board: str, objective: Objective = Objective.SUM_OF_COSTS):
    """Status, cost and whether every optimal plan waits; all below the rows is holes."""
    rows = board.split("/")
    size = len(rows[0].split()[0])
    rows += [" ".join(["#" * size] * len(rows[0].split()))] * (size - len(rows))
    batch = stack([from_text(rows, max_size=MAX_SIZE, max_agents=MAX_AGENTS)])
    solution = solve(batch, objective)
    return Status(solution.status[0]), solution.cost[0], bool(needs_wait(batch, solution, objective)[0])


# Two drawings where agents start on goals. Status, cost, and whether every optimal plan waits.
SOLVED, UNSOLVABLE = Status.SOLVED, Status.UNSOLVABLE
BOARDS = {
    # At time 2 a would meet b on (0,2), so b is in the bay by then, back on (0,2) at 3 and on (0,1) at 4.
    "a bay makes the exchange possible": ("aB.bA/##.##", (SOLVED, 4 + 4, False)),
    "no way at all": ("a#A/.#./b#B", (UNSOLVABLE, ABSENT, False)),
    "an agent on its goal in nobody's way stays": ("a.. ..A/... .../..b ..B", (SOLVED, 2, False)),
    "a crossing": ("#b#/a.A/#B#", (SOLVED, 2 + 3, True)),
    "three rotate in one step": ("ab .A/.c CB", (SOLVED, 3, False)),
    "two of three cannot pass": ("aB.bA/#####/c..../....C", (UNSOLVABLE, ABSENT, False)),
}


@pytest.mark.parametrize("name", BOARDS)
def test_boards_worked_out_by_hand(name):
    board, expected = BOARDS[name]
    assert solve_one(board) == expected


def test_paths_are_planned_anew_when_a_makespan_has_room_for_them():
    """Within 2 steps both meet in the middle, on either child no path is left; within 3 the first one waits."""
    batch = stack([from_text("#b#\na.A\n#B#")])
    found = search(batch, np.array([UNBOUNDED], np.int32), np.bool_(True), 7, 20, Objective.MAKESPAN)
    assert (found.cost.tolist(), found.expansions.tolist(), found.plan.lengths.tolist()) == ([3], [1], [[4, 3]])


@pytest.mark.heavy
def test_an_agent_with_time_to_spare_has_to_wait_at_the_lower_bound_of_the_makespan():
    # Agent 0 needs all 3 steps and is on the crossing at time 1, when an agent 1 without a wait would be there too.
    assert solve_one("##b##/#a..A/##B##", Objective.MAKESPAN) == (SOLVED, 3, True)


def test_a_plan_that_waits_is_told_from_one_that_does_not():
    boards = ["#b#\na.A\n#B#", "a.A\n...\nb.B"]
    batch = stack([from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS) for board in boards])
    assert waits(solve(batch)).tolist() == [True, False]


@pytest.mark.heavy
def test_one_agent_slot_is_solved_and_needs_no_wait():
    batch = stack([from_text(board, max_size=3, max_agents=1) for board in ("a.A\n...\n...", "a#A\n.#.\n.#.")])
    solutions = solve(batch)
    assert solutions.cost.tolist() == [2, ABSENT]
    assert needs_wait(batch, solutions).tolist() == [False, False]

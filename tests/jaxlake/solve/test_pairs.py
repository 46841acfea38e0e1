"""The search for pairs against brute force over joint states, the constraint tree, and boards worked out by hand."""

import itertools

import jax
import numpy as np
import oracles
import pytest
from tree_search import search

from jaxlake.board_text import from_text
from jaxlake.levels import stack
from jaxlake.solve.pairs import search_pairs
from jaxlake.solve.tree import UNBOUNDED
from jaxlake.types import ABSENT, Instance, Objective, Status
from jaxlake.verify import verify

# Shapes and batches of ``solve``, so that the search is compiled only a few times, and for the tests of that, too.
MAX_SIZE, MAX_AGENTS, MAX_STEPS, BATCH = 5, 3, 64, 1024


SHAPES = [*itertools.product(range(2, 6), (1, 2, 2, 2, 2))]


def find(instances: Instance, objective=Objective.SUM_OF_COSTS, bounds=None, may_wait=True, max_steps=MAX_STEPS):
    count = len(instances.size)
    bounds = np.full(count, UNBOUNDED, np.int32) if bounds is None else bounds
    filled = np.resize(np.arange(count), -(-count // BATCH) * BATCH)
    found = search_pairs(instances[filled], bounds[filled], np.bool_(may_wait), max_steps, objective)
    return found[:count]


def one(board: str, **asked):
    """Status, cost and paths as coordinates."""
    found = find(stack([from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS)]), **asked)[0]
    paths = [
        [divmod(int(cell), MAX_SIZE) for cell in path[:length]]
        for path, length in zip(found.plan.paths[:2], found.plan.lengths[:2], strict=True)
    ]
    return Status(int(found.status)), int(found.cost), paths


@pytest.mark.slow
@pytest.mark.parametrize("objective", Objective)
def test_search_agrees_with_the_constraint_tree_on_boards_of_every_size(objective):
    instances = oracles.random_boards(
        np.random.default_rng(2), 1200, [(size, 2) for size in range(3, 11)], max_agents=MAX_AGENTS
    )
    found = find(instances, objective, max_steps=64)
    bounds = np.full(1200, UNBOUNDED, np.int32)
    tree = jax.tree.map(np.asarray, search(instances, bounds, np.bool_(True), 64, 20, objective))
    assert (found.status != Status.OUT_OF_BUDGET).all()
    assert verify(instances, found.plan, found.cost, objective).optimal[found.status == Status.SOLVED].all()
    decided = tree.status != Status.OUT_OF_BUDGET
    assert decided.mean() > 0.9
    for field in ("status", "cost"):
        np.testing.assert_array_equal(getattr(found, field)[decided], getattr(tree, field)[decided])
    np.testing.assert_array_equal(found.lower_bound, tree.lower_bound)

    bounds = np.maximum(found.cost, 0)
    still = find(instances, objective, bounds, may_wait=False, max_steps=64)
    tree = jax.tree.map(np.asarray, search(instances, bounds, np.bool_(False), 64, 20, objective))
    decided = tree.status != Status.OUT_OF_BUDGET
    np.testing.assert_array_equal(still.status[decided], tree.status[decided])


def test_a_cost_bound_below_the_optimum_refutes():
    board = "#b#\na.A\n#B#"
    assert one(board, bounds=np.array([4], np.int32))[0] is Status.UNSOLVABLE
    assert one(board, bounds=np.array([5], np.int32))[0] is Status.SOLVED


@pytest.mark.heavy
def test_an_optimum_beyond_the_horizon_is_undecided_and_not_refuted():
    board = """
        a....
        ....A
        .....
        .....
        ..b.B
    """
    assert one(board)[:2] == (Status.SOLVED, 5 + 2)
    assert one(board, max_steps=4)[:2] == (Status.OUT_OF_BUDGET, ABSENT)
    assert one(board, max_steps=4, bounds=np.array([6], np.int32))[0] is Status.UNSOLVABLE


@pytest.mark.heavy
def test_among_optimal_plans_one_within_the_horizon_is_found():
    # Either agent may give way; a has 4 steps to go and b has 2, so only b's waiting keeps the makespan at 4.
    board = """
        ##b##
        a...A
        ##B##
        #####
        #####
    """
    assert one(board, max_steps=4)[:2] == (Status.SOLVED, 4 + 2)
    board = """
        #b###
        #.###
        a...A
        #B###
        #####
    """
    status, cost, paths = one(board, max_steps=4)
    assert (status, cost) == (Status.SOLVED, 4 + 3) and len(paths[0]) == 5


def test_no_agents_are_solved_at_once_and_three_are_left_undecided():
    padding = {"max_size": MAX_SIZE, "max_agents": MAX_AGENTS}
    instance = oracles.random_instance(np.random.default_rng(0), 5, 3, 0.0, overlapping=False, **padding)
    none = np.full(3, ABSENT, np.int32)
    found = find(stack([instance.replace(num_agents=np.int32(0), starts=none, goals=none), instance]))
    assert found.status.tolist() == [Status.SOLVED, Status.OUT_OF_BUDGET]
    assert found.cost.tolist() == [0, ABSENT] and found.plan.lengths.tolist() == [[0] * 3] * 2


def test_the_other_instances_of_a_batch_change_nothing():
    instances = oracles.random_boards(np.random.default_rng(1), 400, SHAPES, max_size=MAX_SIZE, max_agents=MAX_AGENTS)
    order = np.random.default_rng(3).permutation(400)
    whole, shuffled, part = find(instances), find(instances[order]), find(instances[np.arange(7)])
    jax.tree.map(np.testing.assert_array_equal, whole[order], shuffled)
    jax.tree.map(np.testing.assert_array_equal, whole[np.arange(7)], part)

"""The solver against independent exact ones: stored optima, and joint search in plain Python, which w9 confirms.

The stored instances, of 96 for each size, number of agents and hole ratio, are those that w9-pathfinding's CBS, A* and
ICTS decided in some seconds each; the script that asked them is in the repository's history (make_oracle_data.py).
"""

import functools
from pathlib import Path

import numpy as np
import oracles
import pytest

from jaxlake import solve, verify
from jaxlake.types import ABSENT, MAX_SIZE, Instance, Objective, Status

pytestmark = pytest.mark.heavy  # the joint searches compile for a quarter of a minute each

FILE = Path(__file__).parents[1] / "data" / "optima.npz"
STRIDE = 15
"""Every so manieth stored instance is in the fast test: six or seven of each size, number of agents and hole ratio."""


@functools.cache
def stored() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


def stored_instances(indices: np.ndarray) -> Instance:
    data = stored()
    return Instance(
        size=data["size"][indices].astype(np.int32),
        num_agents=data["num_agents"][indices].astype(np.int32),
        holes=np.unpackbits(data["holes"][indices], axis=-1, count=MAX_SIZE**2).astype(bool),
        starts=data["starts"][indices].astype(np.int32),
        goals=data["goals"][indices].astype(np.int32),
    )


def compare(instances: Instance, optima: np.ndarray) -> float:
    """Asserts that what the solver decides is right, and returns the share that it does not decide."""
    solutions = solve(instances)
    solved = solutions.status == Status.SOLVED
    np.testing.assert_array_equal(solutions.cost[solved], optima[solved])
    assert (optima[solutions.status == Status.UNSOLVABLE] == ABSENT).all()
    assert verify(instances, solutions.plan, optima).optimal[solved].all()
    return float((solutions.status == Status.OUT_OF_BUDGET)[optima != ABSENT].mean())


def test_the_solver_agrees_with_a_sample_of_the_stored_optima():
    indices = np.arange(0, len(stored()["optimum"]), STRIDE)
    assert compare(stored_instances(indices), stored()["optimum"][indices]) <= 0.02


@pytest.mark.slow
def test_the_solver_agrees_with_all_stored_optima():
    indices = np.arange(len(stored()["optimum"]))
    assert compare(stored_instances(indices), stored()["optimum"]) <= 0.02


def test_the_joint_search_in_plain_python_agrees_with_w9():
    pytest.importorskip("w9_pathfinding")
    shapes = [(3, 2), (4, 2), (5, 2), (3, 3), (4, 3), (3, 4)]
    for instance in oracles.random_boards(np.random.default_rng(31), 120, shapes):
        try:
            optimum = oracles.w9_sum_of_costs(instance, "MultiAgentAStar", max_time=0.2)
        except oracles.Undecided:
            continue
        assert optimum == oracles.least_cost(instance, Objective.SUM_OF_COSTS)

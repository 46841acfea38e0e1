"""The solver against independent exact ones: stored optima, joint search in plain Python, w9, and boards by hand.

The stored instances, of 96 for each size, number of agents and hole ratio, are those that w9-pathfinding's CBS, A* and
ICTS decided in some seconds each; the script that asked them is in the repository's history (make_oracle_data.py).
"""

import functools
from pathlib import Path

import jax
import numpy as np
import oracles
import pytest

from jaxlake import from_text, solve, stack, verify
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, Instance, Objective, Status

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


def test_the_stored_instances_are_those_of_the_seed():
    """A quarter may start agents on goals, and an eighth may separate an agent from its goal."""
    data, size, agents, percent = stored(), 4, 3, 10
    rng, drawn = np.random.default_rng([20, size, agents, percent]), []
    while len(drawn) < 96:
        instance = oracles.random_instance(rng, size, agents, percent / 100, overlapping=len(drawn) % 4 == 3)
        near = oracles.moves(instance)
        if len(drawn) % 8 == 0 or all(
            start in oracles.distances(near, goal) for start, goal in zip(*oracles.ends(instance), strict=True)
        ):
            drawn.append(instance)
    here = (data["size"] == size) & (data["num_agents"] == agents) & (data["hole_percent"] == percent)
    jax.tree.map(np.testing.assert_array_equal, stored_instances(np.flatnonzero(here)), stack(drawn))


def compare(instances: Instance, optima: np.ndarray, objective: Objective = Objective.SUM_OF_COSTS) -> float:
    """Asserts that what the solver decides is right, and returns the share that it does not decide."""
    solutions = solve(instances, objective)
    solved = solutions.status == Status.SOLVED
    np.testing.assert_array_equal(solutions.cost[solved], optima[solved])
    assert (optima[solutions.status == Status.UNSOLVABLE] == ABSENT).all()
    assert verify(instances, solutions.plan, optima, objective).optimal[solved].all()
    undecided = solutions.status == Status.OUT_OF_BUDGET
    for what, these in (("with a plan", optima != ABSENT), ("without a plan", optima == ABSENT)):
        print(f"{np.sum(undecided & these)} of {these.sum()} instances {what} are undecided")
    return float(undecided[optima != ABSENT].mean())


def test_the_solver_agrees_with_a_sample_of_the_stored_optima():
    indices = np.arange(0, len(stored()["optimum"]), STRIDE)
    assert compare(stored_instances(indices), stored()["optimum"][indices]) <= 0.02


@pytest.mark.slow
def test_the_solver_agrees_with_all_stored_optima():
    indices = np.arange(len(stored()["optimum"]))
    assert compare(stored_instances(indices), stored()["optimum"]) <= 0.02


def least_makespan(instance: Instance) -> int | None:
    return oracles.least_cost(instance, Objective.MAKESPAN)


@pytest.mark.slow
def test_stored_instances_without_a_plan_have_none_by_exhaustive_search_either():
    # Only where all joint positions can be visited: at most 14 free cells for up to four agents.
    data = stored()
    checked = 0
    for index in np.flatnonzero((data["optimum"] == ABSENT) & (data["num_agents"] <= 4)):
        instance = jax.tree.map(lambda part: part[0], stored_instances(np.array([index])))
        if instance.size**2 - instance.holes.sum() <= 14:
            assert least_makespan(instance) is None
            checked += 1
    assert checked > 50


@functools.cache
def small_instances() -> list[Instance]:
    rng = np.random.default_rng(31)
    shapes = [(3, 2), (4, 2), (5, 2), (3, 3), (4, 3), (3, 4)]
    return [
        oracles.random_instance(rng, *shapes[index % 6], float(rng.choice([0.1, 0.3, 0.5])), overlapping=index % 4 < 2)
        for index in range(120)
    ]


@pytest.mark.parametrize(
    ("objective", "oracle"),
    [(Objective.SUM_OF_COSTS, oracles.least_sum_of_costs), (Objective.MAKESPAN, least_makespan)],
    ids=["sum of costs", "makespan"],
)
def test_the_solver_agrees_with_joint_search_in_plain_python(objective, oracle):
    optima = [oracle(instance) for instance in small_instances()]
    optima = np.array([ABSENT if optimum is None else optimum for optimum in optima], np.int32)
    assert np.sum(optima == ABSENT) >= 5
    assert compare(stack(small_instances()), optima, objective) <= 0.02


def test_the_joint_search_in_plain_python_agrees_with_w9():
    pytest.importorskip("w9_pathfinding")
    for instance in small_instances():
        try:
            optimum = oracles.w9_sum_of_costs(instance, "MultiAgentAStar", max_time=0.2)
        except oracles.Undecided:
            continue
        assert optimum == oracles.least_sum_of_costs(instance)


# Rows above holes, sum of costs and makespan worked out by hand; None where no plan is, which the solver proves.
BOARDS = {
    "agents cannot swap in a corridor": ("ab### BA###", None),
    "a third agent between two that cannot pass changes nothing": ("a.c.b B.C.A", None),
    # Both would reach the middle at 2. So agent 0 waits a step, and agent 1 is in the bay at 3 and out of it at 4.
    "agents pass each other by a bay in the middle": ("a...b B...A/##.## ##.##", (5 + 6, 6)),
    # Agent 0 is in the bay at 2, and out of it at 5, when agent 1 is past; then it has four steps to go.
    "agents pass each other by a bay near one end": ("a....b B....A/#.#### #.####", (9 + 5, 9)),
    "a parked agent moves aside and comes back": ("ab... .B..A/#.### #.###", (4 + 2, 4)),
    # Agent 1 leaves its goal for the bay two cells on, lets agent 0 past, and goes back: 3 out, at least 3 home.
    "a parked agent runs ahead to a bay when there is none beside it": ("ab... .B..A/###.# ###.#", (4 + 6, 6)),
    "four agents rotate on a full square": ("ab DA/dc CB", (4, 1)),
    # Each moves one cell on; the sixth cell takes agent 4, and nobody has to wait for anybody.
    "five agents rotate on a ring of six cells": ("abc .AB/.ed EDC", (5, 1)),
    "five agents rotate by two cells around a hole": ("abc ..A/.#d .#B/..e EDC", (10, 2)),
    "a chain follows its leader through a corridor without a gap": ("abcd. .ABCD", (4, 1)),
    "a chain turns a corner together": ("cba.. ...../####. ####C/####. ####B/####. ####A/####. ####.", (5 * 3, 5)),
    # Side by side on an open board: one walks straight, the other around it.
    "agents that change places where there is room": (".... ..../.ab. .BA./.... ..../.... ....", (1 + 3, 3)),
    "nobody moves where everybody starts on its goal": ("abc ABC/d.. D../... ...", (0, 0)),
}


@pytest.mark.parametrize("name", BOARDS)
def test_boards_worked_out_by_hand(name):
    board, expected = BOARDS[name]
    rows = board.split("/")
    size = len(rows[0].split()[0])
    rows += ["#" * size + " " * (" " in board) + "#" * size * (" " in board)] * (size - len(rows))
    instance = from_text(rows, max_size=MAX_SIZE, max_agents=MAX_AGENTS)
    if expected is None:
        assert least_makespan(instance) is None
        assert solve(instance).status == Status.UNSOLVABLE
        return
    assert (oracles.least_sum_of_costs(instance), least_makespan(instance)) == expected
    for objective, cost in zip((Objective.SUM_OF_COSTS, Objective.MAKESPAN), expected, strict=True):
        assert compare(stack([instance]), np.array([cost], np.int32), objective) == 0

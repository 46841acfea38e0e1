"""The search over joint positions against brute force in plain Python and w9, and behind the other searches."""

import jax
import numpy as np
import oracles
import pytest

from jaxlake.board_text import from_text
from jaxlake.solve import driver
from jaxlake.solve.exhaustive import search_exhaustively
from jaxlake.solve.tree import UNBOUNDED
from jaxlake.types import ABSENT, Instance, Objective, Status
from jaxlake.verify import verify


def boards(seed: int, count: int, shapes: list[tuple[int, int]]) -> Instance:
    return oracles.random_boards(np.random.default_rng(seed), count, shapes, 1)


def arrivals(path: np.ndarray, instance: Instance) -> list[int]:
    """When each agent arrives for good, after a check that the path joins starts and goals by legal joint steps."""
    start, goals = oracles.ends(instance)
    joint = [tuple(map(int, cells)) for cells in path]
    assert joint[0] == start and joint[-1] == goals
    near = oracles.moves(instance)
    for before, after in zip(joint[:-1], joint[1:], strict=True):
        assert after in oracles.joint_moves(near, before, (False,) * len(start))
    return [oracles.last_arrival([cells[agent] for cells in joint]) for agent in range(len(start))]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("objective", "total"), [(Objective.SUM_OF_COSTS, sum), (Objective.MAKESPAN, max)], ids=["sum of costs", "makespan"]
)
def test_optimum_equals_plain_search_and_the_bound_below_it_is_refuted(objective, total):
    unsolvable = 0
    for instance in boards(3, 60, [(2, 2), (3, 3), (3, 4), (4, 3), (3, 5), (5, 1)]):
        status, path = search_exhaustively(instance, UNBOUNDED, True, objective)
        optimum = oracles.least_cost(instance, objective)
        if optimum is None:
            assert (status, path) == (Status.UNSOLVABLE, None)
            unsolvable += 1
            continue
        assert status is Status.SOLVED
        assert total(arrivals(path, instance)) == optimum
        assert search_exhaustively(instance, optimum, True, objective)[0] is Status.SOLVED
        assert search_exhaustively(instance, optimum - 1, True, objective) == (Status.UNSOLVABLE, None)
    assert 5 <= unsolvable <= 40


@pytest.mark.parametrize("objective", Objective)
def test_without_waiting_nobody_waits_before_the_last_arrival(objective):
    found = dearer = 0
    for instance in boards(4, 60, [(3, 3), (4, 3), (3, 4)]):
        path = search_exhaustively(instance, UNBOUNDED, False, objective)[1]
        if path is None:
            continue
        last = arrivals(path, instance)
        for agent, end in enumerate(last):
            assert (path[1 : end + 1, agent] != path[:end, agent]).all()
        total = sum if objective is Objective.SUM_OF_COSTS else max
        best = total(arrivals(search_exhaustively(instance, UNBOUNDED, True, objective)[1], instance))
        assert total(last) >= best
        found, dearer = found + 1, dearer + (total(last) > best)
    assert found > 20 and dearer > 0


def test_too_many_joint_positions_are_left_undecided():
    instance = oracles.random_instance(np.random.default_rng(0), 10, 5, 0.1, overlapping=False)
    assert search_exhaustively(instance, UNBOUNDED, True, Objective.MAKESPAN) == (Status.OUT_OF_BUDGET, None)


@pytest.mark.parametrize("objective", Objective)
def test_what_the_constraint_trees_leave_over_is_decided_within_the_horizon(objective, monkeypatch):
    monkeypatch.setattr(driver, "_STAGES", ())  # So everything is left over.
    texts = ["abc BAC\n.#. .#.\n... ...", "abc ABC\n.#. .#.\n... ...", "abc ...\n.#. .#.\n... BCA"]
    boards = [from_text(text, max_size=3, max_agents=4) for text in texts]
    batch = jax.tree.map(lambda *parts: np.stack(parts), *boards)
    optima = [oracles.least_cost(board, objective) for board in boards]
    assert optima[:2] == [None, 0]  # The ring turns, but keeps the order of the agents.
    solutions = driver.solve(batch, objective)
    np.testing.assert_array_equal(solutions.cost, [ABSENT if cost is None else cost for cost in optima])
    np.testing.assert_array_equal(solutions.status == Status.SOLVED, solutions.cost != ABSENT)
    assert verify(batch, solutions.plan, solutions.cost, objective).optimal.tolist() == solutions.plan.parsable.tolist()
    short = driver.solve(batch, objective, max_steps=1)
    expected = [Status.UNSOLVABLE, Status.SOLVED, Status.UNSOLVABLE if optima[2] is None else Status.OUT_OF_BUDGET]
    assert short.status.tolist() == expected

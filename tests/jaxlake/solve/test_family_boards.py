"""The solver on boards of every family, beside A* over joint positions in plain Python."""

import jax
import oracles
import pytest

from jaxlake import Family, Kind, solve
from jaxlake.generate.candidates import Shape, draw
from jaxlake.types import Status


@pytest.mark.heavy
@pytest.mark.parametrize("family", Family)
def test_the_optimum_of_a_familys_boards_is_that_of_joint_search(family):
    for agents, density, count in ((2, 0.0, 6), (2, 0.5, 6), (3, 0.4, 3)):
        shape = Shape(Kind(family, 5, agents), density, 10, 5)  # the padding of the oracles
        boards = draw(jax.random.key(agents), 0, 128, shape)[:count]
        found = solve(boards)
        for index, instance in enumerate(boards):
            least = oracles.least_sum_of_costs(instance)
            assert found.status[index] == (Status.UNSOLVABLE if least is None else Status.SOLVED)
            assert least is None or found.cost[index] == least

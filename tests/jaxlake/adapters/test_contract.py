"""What all adapters must do alike, against the core and moves worked out by hand; their own files have the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import LevelBank, Params, lifelong, observations, rewards, stack, testing
from jaxlake.env import Lake
from jaxlake.testing import MAX_SIZE, check_truncation, check_walk
from jaxlake.types import ABSENT, Action
from tests.support.faces import FACES

CELLS = [  # Where the moves of `testing.WALK` lead the two agents, worked out by hand.
    [(0, 1), (3, 2)],
    [(1, 1), (2, 2)],
    [(1, 0), (2, 3)],
    [(1, 1), (2, 2)],
    [(1, 1), (2, 2)],
    [(2, 1), (2, 3)],
    [(3, 1), (1, 3)],
    [(3, 2), (0, 3)],
    [(3, 3), (0, 3)],
]
LAKE = Lake(observe=observations.flat)
OBSERVED = {"gymnax": observations.planes, "jaxued": observations.one_hot}
OWN = {
    "losses": lambda state: state.losses[:, None],
    "fallen": lambda state: state.fallen[:, None],
    "time": lambda state: state.losses[:, None] / 2,
}


@pytest.fixture(scope="module")
def bank():
    return testing.bank(testing.BOARD)


@pytest.mark.parametrize("name", FACES)
def test_a_walk_in_every_direction_is_the_cores_and_solving_in_the_last_step_terminates(name):
    observe = observations.planes if name.startswith("gymnas") else OBSERVED.get(name, observations.flat)
    check_walk(FACES[name], observe)


def test_the_walk_leads_where_its_moves_say():
    state, _ = jax.jit(LAKE.reset)(testing.bank(testing.BOARD).at(0)[0])
    step = jax.jit(LAKE.step)
    for moves, cells in zip(testing.WALK, CELLS, strict=True):
        state, _ = step(state, np.array([*moves, Action.WAIT]))
        assert state.positions.tolist() == [row * MAX_SIZE + column for row, column in cells] + [ABSENT]


@pytest.mark.parametrize("name", FACES)
def test_running_out_of_steps_truncates(name):
    check_truncation(FACES[name], len(testing.WALK))  # in the program of the walk


REACHED = [(1, 0), (1, 1), (0, 1), (0, 1), (0, 0), (0, 1), (0, 0), (0, 0), (1, 0)]
"""Goals that the walk reaches of the lists below, worked out by hand from `CELLS`."""


@pytest.mark.parametrize("name", [name for name in FACES if name != "jaxued"])
def test_a_lifelong_walk_is_paid_for_each_goal_and_ends_with_its_time(name):
    lists = np.array([[(0, 1), (1, 1), (3, 3)], [(2, 2), (2, 3), (-1, -1)], [(-1, -1)] * 3])
    tasks = np.where(lists[..., 0] < 0, ABSENT, lists[..., 0] * MAX_SIZE + lists[..., 1])
    board = lifelong.board(testing.bank(testing.BOARD).instances[0], tasks)
    levels = LevelBank.build(stack([board]), with_distances=True)
    lake = Lake(observe=observations.flat, reward=rewards.reached, goals="listed")
    face = FACES[name](levels, Params(max_steps=len(REACHED)), lake)
    walk = [[*moves, Action.WAIT] for moves in testing.WALK]
    for number, seen in enumerate(testing.play(face, walk), 1):
        paid = np.array([*REACHED[number - 1], 0.0])
        assert np.array_equal(seen.rewards, paid if np.ndim(seen.rewards) else paid.sum()), number
        assert tuple(map(bool, seen.ends)) == (False, number == len(REACHED))


def test_jaxueds_levels_are_not_lifelong():
    pytest.importorskip("jaxued")
    from jaxlake.adapters.jaxued import UnderspecifiedLake

    with pytest.raises(ValueError, match="goals = 'drawn' must be 'once': JaxUED's levels have no lists of goals"):
        UnderspecifiedLake(lake=Lake(reward=rewards.reached, goals="drawn"))


def test_an_adapter_that_pays_or_moves_otherwise_is_found_out():
    def late(bank, params):  # it plays one step more
        return FACES["jumanji"](bank, params.replace(max_steps=params.max_steps + 1))

    def clockwise(bank, params):
        face = FACES["jumanji"](bank, params)
        return face._replace(step=lambda carry, moves, key: face.step(carry, (moves + 1) % 4, key))

    def led_by_the_absent(bank, params):
        face = FACES["jumanji"](bank, params)
        return face._replace(
            step=lambda carry, moves, key: face.step(
                carry, moves.at[0].set(jnp.where(moves[2] == Action.WAIT, moves[0], moves[2])), key
            )
        )

    def narrow(bank, params):
        face = FACES["jumanji"](bank, params)
        low, high = (np.full((3, 37), bound) for bound in face.box())
        low[:, :12] = 0.9  # all coordinates
        return face._replace(box=lambda: (low, high))

    with pytest.raises(AssertionError, match="terminated, truncated, after step 3"):
        check_truncation(late)
    for wrong, message in (
        (clockwise, "cells, after step 1"),
        (led_by_the_absent, "cells, after step 1"),
        (narrow, "observation within its bounds, after step 1"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_walk(wrong)


@pytest.mark.parametrize("name", FACES)
def test_bounds_are_tight_where_they_are_known(bank, name):
    low, high = FACES[name](bank, Params()).box()
    expected = (0, 3) if name in ("gymnax", "gymnasium", "gymnasium's batches") else (-1, 1)
    assert (np.min(low), np.max(high)) == ((0, 1) if name == "jaxued" else expected)
    if name != "jaxued":
        for part, expected in (("losses", (-(2**15), 2**15 - 1)), ("fallen", (0, 1)), ("time", (-np.inf, np.inf))):
            box = FACES[name](bank, Params(), Lake(observe=OWN[part])).box()
            assert (np.min(box[0]), np.max(box[1])) == expected


@pytest.mark.parametrize("name", ["jaxmarl", "pettingzoo"])
@pytest.mark.parametrize("observe", [observations.planes, lambda state: state.time])
def test_an_observation_that_is_not_one_per_agent_is_refused(bank, name, observe):
    with pytest.raises(ValueError, match="the observation is"):  # Planes are three, as the agents are.
        FACES[name](bank, Params(), Lake(observe=observe)).box()

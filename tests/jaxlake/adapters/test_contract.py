"""What all adapters must do alike, against the core and moves worked out by hand; their own files have the rest."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import Params, observations
from jaxlake.env import Lake
from jaxlake.types import ABSENT, Action
from tests.support import faces
from tests.support.faces import FACES, MAX_SIZE

UP, DOWN, LEFT, RIGHT, WAIT = Action
WALK = [  # Moves of the two agents, and where these lead.
    (UP, DOWN, (0, 1), (3, 2)),
    (DOWN, UP, (1, 1), (2, 2)),
    (LEFT, RIGHT, (1, 0), (2, 3)),
    (RIGHT, LEFT, (1, 1), (2, 2)),
    (WAIT, WAIT, (1, 1), (2, 2)),
    (DOWN, RIGHT, (2, 1), (2, 3)),
    (DOWN, UP, (3, 1), (1, 3)),
    (RIGHT, UP, (3, 2), (0, 3)),
    (RIGHT, WAIT, (3, 3), (0, 3)),
]
OBSERVED = {"gymnax": observations.planes, "jaxued": observations.one_hot}
OWN = {
    "losses": lambda state: state.losses[:, None],
    "fallen": lambda state: state.fallen[:, None],
    "time": lambda state: state.losses[:, None] / 2,
}


@pytest.fixture(scope="module")
def bank():
    return faces.bank(faces.WALK)


def played(face, *games):
    """What the adapter shows after each of the moves of each of the games ``[steps, agents]``."""
    reset, step = (face.reset, face.step) if face.on_host else (jax.jit(face.reset), jax.jit(face.step))
    for moves in games:
        carry = reset(jax.random.key(0))
        for number, chosen in enumerate(moves):
            carry = step(carry, jnp.asarray(chosen, jnp.int32), jax.random.key(number))
            yield face.seen(jax.device_get(carry))


@functools.cache
def core(observe):
    """What the core shows after each move of the walk."""
    lake = Lake(observe=observe)
    step, (state, _) = jax.jit(lake.step), lake.reset(faces.bank(faces.WALK).at(0)[0])
    shown = []
    for first, second, *_ in WALK:
        state, timestep = step(state, np.array([first, second, WAIT]))
        shown.append((np.asarray(state.positions), timestep))
    return shown


@pytest.mark.parametrize("name", FACES)
def test_a_walk_is_the_cores_and_terminates_and_as_many_steps_without_a_solution_truncate(bank, name):
    observe = observations.planes if name.startswith("gymnas") else OBSERVED.get(name, observations.flat)
    moves = [[first, second, WAIT] for first, second, *_ in WALK]
    steps = [*played(FACES[name](bank, Params(max_steps=len(WALK))), moves, [[WAIT] * 3] * len(WALK))]
    walked, waited = steps[: len(WALK)], steps[len(WALK) :]
    for number, (seen, (positions, timestep)) in enumerate(zip(walked, core(observe), strict=True), 1):
        *_, first, second = WALK[number - 1]
        last = number == len(WALK)
        assert np.array_equal(seen.ends, (last, False))
        paid = np.sum(seen.rewards) if np.ndim(seen.rewards) == 0 else np.asarray(seen.rewards).tolist()
        assert paid == ((2 * last) if np.ndim(seen.rewards) == 0 else [last, last, 0])
        if seen.cells is not None:
            cells = [row * MAX_SIZE + column for row, column in (first, second)]
            assert np.asarray(seen.cells).tolist() == positions.tolist() == [*cells, ABSENT]
            np.testing.assert_array_equal(np.asarray(seen.mask, bool), timestep.legal_actions)
        if seen.observation is not None:
            np.testing.assert_array_equal(seen.observation, timestep.observation)
    assert [tuple(map(bool, seen.ends)) for seen in waited] == [(False, False)] * (len(WALK) - 1) + [(False, True)]
    assert not any(np.any(seen.rewards) for seen in waited)


@pytest.mark.parametrize("name", FACES)
def test_bounds_are_tight_where_they_are_known(bank, name):
    low, high = FACES[name](bank, Params()).box()
    expected = (0, 3) if name in ("gymnax", "gymnasium", "gymnasium's batches") else (-1, 1)
    assert (np.min(low), np.max(high)) == ((0, 1) if name == "jaxued" else expected)
    if name != "jaxued":
        for part, expected in (("losses", (-(2**15), 2**15 - 1)), ("fallen", (0, 1)), ("time", (-np.inf, np.inf))):
            box = FACES[name](bank, Params(), Lake(observe=OWN[part])).box()
            assert (np.min(box[0]), np.max(box[1])) == expected


@pytest.mark.parametrize("name", [name for name in FACES if name != "jaxued"])
def test_an_observation_that_is_not_one_array_is_refused(bank, name):
    with pytest.raises(ValueError, match="the observation is .* must be (one|an) array"):
        FACES[name](bank, Params(), Lake(observe=lambda state: (state.positions, state.time))).box()


@pytest.mark.parametrize("name", ["jaxmarl", "pettingzoo"])
@pytest.mark.parametrize("observe", [observations.planes, lambda state: state.time])
def test_an_observation_that_is_not_one_per_agent_is_refused(bank, name, observe):
    with pytest.raises(ValueError, match="the observation is"):  # Planes are three, as the agents are.
        FACES[name](bank, Params(), Lake(observe=observe)).box()

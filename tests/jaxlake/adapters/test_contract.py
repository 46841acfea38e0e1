"""What all adapters must do alike, against the core and moves worked out by hand; their own files have the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import Kind, LevelBank, Params, observations, solve
from jaxlake.adapters.text import path_reward, trl_rows
from jaxlake.env import Lake
from jaxlake.generate.candidates import Shape, draw
from jaxlake.text import AnswerFormat, PromptStyle, answer
from jaxlake.types import ABSENT, Action, Status
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
KINDS = ("4", "rooms7x3", "corridor5x4")  # In the last, agents start where others go.


@pytest.fixture(scope="module")
def bank():
    return faces.bank(faces.WALK)


def played(face, moves):
    """What the adapter shows after each of the moves ``[steps, agents]``."""
    reset, step = (face.reset, face.step) if face.on_host else (jax.jit(face.reset), jax.jit(face.step))
    carry = reset(jax.random.key(0))
    for number, chosen in enumerate(moves):
        carry = step(carry, jnp.asarray(chosen, jnp.int32), jax.random.key(number))
        yield face.seen(jax.device_get(carry))


@pytest.mark.parametrize("name", FACES)
def test_a_walk_in_every_direction_is_the_cores_and_solving_in_the_last_step_terminates(bank, name):
    observe = observations.planes if name.startswith("gymnas") else OBSERVED.get(name, observations.flat)
    lake = Lake(observe=observe)
    step = jax.jit(lake.step)
    state, timestep = lake.reset(bank.at(0)[0])
    moves = [[first, second, WAIT] for first, second, *_ in WALK]
    for number, seen in enumerate(played(FACES[name](bank, Params(max_steps=len(WALK))), moves), 1):
        *_, first, second = WALK[number - 1]
        state, timestep = step(state, np.array(moves[number - 1]))
        last = number == len(WALK)
        assert np.array_equal(seen.ends, (last, False))
        paid = np.sum(seen.rewards) if np.ndim(seen.rewards) == 0 else np.asarray(seen.rewards).tolist()
        assert paid == ((2 * last) if np.ndim(seen.rewards) == 0 else [last, last, 0])
        if seen.cells is not None:
            cells = [row * MAX_SIZE + column for row, column in (first, second)]
            assert np.asarray(seen.cells).tolist() == np.asarray(state.positions).tolist() == [*cells, ABSENT]
            np.testing.assert_array_equal(np.asarray(seen.mask, bool), timestep.legal_actions)
        if seen.observation is not None:
            np.testing.assert_array_equal(seen.observation, timestep.observation)


@pytest.mark.parametrize("name", FACES)
def test_running_out_of_steps_truncates(bank, name):
    steps = list(played(FACES[name](bank, Params(max_steps=3)), [[WAIT] * 3] * 3))
    assert [tuple(map(bool, seen.ends)) for seen in steps] == [(False, False), (False, False), (False, True)]
    assert not any(np.any(seen.rewards) for seen in steps)


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


@pytest.fixture(scope="module")
def levels():
    """A board of each kind, on arrays of one shape."""
    drawn = [draw(jax.random.key(0), 0, 128, Shape(Kind.of(kind), 0.1, 7, 4)) for kind in KINDS]
    return jax.tree.map(lambda *parts: np.stack([part[0] for part in parts]), *drawn)


@pytest.mark.heavy
@pytest.mark.parametrize("name", FACES)
def test_boards_of_several_families_sizes_and_agents_are_played(levels, name):
    (seen,) = played(FACES[name](LevelBank.build(levels), Params()), [[WAIT] * 4])
    assert not any(seen.ends) and np.asarray(seen.cells).tolist() in levels.starts.tolist()


@pytest.mark.heavy
def test_an_optimal_answer_in_words_is_paid_in_full_on_each(levels):
    found = solve(levels)
    assert (found.status == Status.SOLVED).all()
    rows = trl_rows(levels, found.cost, PromptStyle.VERBOSE, AnswerFormat.MOVES)
    answers = [answer(plan, 7, AnswerFormat.MOVES) for plan in found.plan]
    assert path_reward(answers, level=[row["level"] for row in rows]) == [1.0] * len(KINDS)

"""The Jumanji face: Jumanji's own checks and wrappers on it, and one step in each direction against the core."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("jumanji")

from jumanji.env import Environment  # noqa: E402
from jumanji.testing.env_not_smoke import check_env_does_not_smoke, check_env_specs_does_not_smoke  # noqa: E402
from jumanji.types import StepType  # noqa: E402
from jumanji.wrappers import AutoResetWrapper, MultiToSingleWrapper  # noqa: E402

from jaxlake.adapters.jumanji import JumanjiLake  # noqa: E402
from jaxlake.render import rgb  # noqa: E402
from jaxlake.state import Params  # noqa: E402
from jaxlake.testing import BOARD, MAX_SIZE, bank  # noqa: E402
from jaxlake.types import ABSENT, Action  # noqa: E402
from tests.support.faces import ONE_STEP  # noqa: E402

UP, DOWN, LEFT, RIGHT, WAIT = Action
SOLVING = jnp.array([RIGHT, RIGHT, WAIT])


@cache
def lake_of(*boards: str, max_steps: int = 8) -> JumanjiLake:
    return JumanjiLake(bank(*boards), params=Params(max_steps=max_steps))


@partial(jax.jit, static_argnums=0)
def reset(env: Environment, key: jax.Array):
    return env.reset(key)


@partial(jax.jit, static_argnums=0)
def step(env: Environment, state, actions: jax.Array):
    return env.step(state, actions)


@pytest.mark.heavy
def test_a_random_episode_passes_jumanjis_own_checks():
    check_env_does_not_smoke(lake_of(BOARD))
    check_env_specs_does_not_smoke(lake_of(BOARD))


@pytest.mark.heavy
def test_slips_draw_from_the_key_in_the_state():
    env = JumanjiLake(bank(BOARD), params=Params(max_steps=8, slip=1.0))
    states, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 64))
    after, _ = jax.jit(jax.vmap(env.step))(states, jnp.tile(jnp.array([UP, WAIT, WAIT]), (64, 1)))
    columns = (after.episode.positions[:, 0] - MAX_SIZE).tolist()  # Always beside the way up, in row 1.
    assert set(columns) == {0, 2} and 12 < columns.count(0) < 52  # Half of 64; 12 is 5 standard deviations away.
    assert (jax.random.key_data(after.key) != jax.random.key_data(states.key)).any(axis=1).all()


def test_the_auto_reset_of_jumanji_keeps_the_last_observation():
    env = AutoResetWrapper(lake_of(ONE_STEP), next_obs_in_extras=True)
    start, first = reset(env, jax.random.key(0))
    state, timestep = step(env, start, SOLVING)
    assert timestep.step_type == StepType.LAST and state.episode.time == 0
    assert (timestep.observation.agents_view == first.observation.agents_view).all()
    seen = timestep.extras["next_obs"]
    assert seen.step_count == 1 and seen.agents_view[0, :2].tolist() == pytest.approx([0 / MAX_SIZE, 1 / MAX_SIZE])


def test_multi_to_single_sums_the_rewards():
    env = MultiToSingleWrapper(lake_of(ONE_STEP))
    state, _ = reset(env, jax.random.key(0))
    _, timestep = step(env, state, SOLVING)
    assert timestep.reward == 2 and timestep.discount == 0


def test_states_are_rendered():
    env = lake_of(ONE_STEP)
    state, _ = reset(env, jax.random.key(0))
    after, _ = step(env, state, jnp.array([RIGHT, WAIT, WAIT]))
    instance = jax.tree.map(np.asarray, state.episode.instance)
    for drawn, positions in ((state, state.episode.positions), (after, jnp.array([1, 2 * MAX_SIZE, ABSENT]))):
        np.testing.assert_array_equal(env.render(drawn), rgb(instance, positions=np.asarray(positions)))

"""The JaxUED face: one step in each direction against the core, and JaxUED's own wrappers and level sampler on it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("jaxued")

from jaxued.environments import UnderspecifiedEnv  # noqa: E402
from jaxued.level_sampler import LevelSampler  # noqa: E402
from jaxued.wrappers import AutoReplayWrapper, AutoResetWrapper  # noqa: E402

from jaxlake.adapters.gymnax import join_actions  # noqa: E402
from jaxlake.adapters.jaxued import UnderspecifiedLake  # noqa: E402
from jaxlake.env import Lake, Params, State, TimeStep  # noqa: E402
from jaxlake.levels import LevelBank, stack  # noqa: E402
from jaxlake.render import from_text  # noqa: E402
from jaxlake.types import ABSENT, Action, Instance  # noqa: E402

MAX_SIZE, MAX_AGENTS = 5, 3
WALK = """
    ...B
    .a..
    ..b.
    ...A
"""
ONE_STEP = """
    aA.
    ...
    bB.
"""
CORNER = """
    #aA
    ...
    bB.
"""
UP, DOWN, LEFT, RIGHT, WAIT = Action


@pytest.fixture
def tree_map(monkeypatch):
    """What JaxUED 0.0.1 calls and JAX has dropped."""
    monkeypatch.setattr(jax, "tree_map", jax.tree.map, raising=False)


@cache  # An environment is a static argument of its own ``step``: each new one compiles.
def lake() -> UnderspecifiedLake:
    return UnderspecifiedLake(MAX_AGENTS)


def level(board: str) -> Instance:
    return jax.tree.map(jnp.asarray, from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS))


def joint(*actions: Action) -> jax.Array:
    return join_actions(jnp.array(actions))


@jax.jit
def core_step(actions: jax.Array) -> tuple[State, TimeStep]:
    return Lake().step(Lake().reset(level(WALK))[0], actions)


@pytest.mark.parametrize(
    "action, opposite, cells",
    [
        (UP, DOWN, [(0, 1), (3, 2)]),
        (DOWN, UP, [(2, 1), (1, 2)]),
        (LEFT, RIGHT, [(1, 0), (2, 3)]),
        (RIGHT, LEFT, [(1, 2), (2, 1)]),
        (WAIT, WAIT, [(1, 1), (2, 2)]),
    ],
)
def test_a_step_in_each_direction_is_the_cores(action, opposite, cells):
    env = lake()
    _, state = env.reset_to_level(jax.random.key(0), level(WALK))
    observation, state, *_ = env.step(jax.random.key(1), state, joint(action, opposite, WAIT))
    core, timestep = core_step(jnp.array([action, opposite, WAIT]))
    expected = [row * MAX_SIZE + column for row, column in cells] + [ABSENT]
    assert state.positions.tolist() == core.positions.tolist() == expected
    assert (observation == timestep.observation).all()


def test_the_interface_is_that_of_jaxued_and_nothing_resets_by_itself():
    env = lake()
    assert isinstance(env, UnderspecifiedEnv) and env.action_space(env.default_params).n == 125
    _, state = env.reset_to_level(jax.random.key(0), level(ONE_STEP))
    _, state, reward, done, info = env.step(jax.random.key(1), state, joint(RIGHT, RIGHT, WAIT))
    assert reward == 2 and done and not info["truncated"]
    assert info["rewards"].tolist() == [1, 1, 0]
    assert state.positions.tolist() == [0 * MAX_SIZE + 1, 2 * MAX_SIZE + 1, ABSENT]


def test_running_out_of_steps_is_done_and_told_apart():
    env, params = lake(), Params(max_steps=jnp.int32(1))
    _, state = env.reset_to_level(jax.random.key(0), level(ONE_STEP), params)
    _, _, reward, done, info = env.step(jax.random.key(1), state, joint(WAIT, WAIT, WAIT), params)
    assert done and info["truncated"] and reward == 0


def test_auto_replay_plays_the_same_level_again(tree_map):
    env = AutoReplayWrapper(lake())
    levels = stack([level(ONE_STEP), level(CORNER)])
    keys = jax.random.split(jax.random.key(0), 2)
    first, start = jax.vmap(env.reset_to_level)(keys, levels)
    actions = jnp.array([joint(RIGHT, RIGHT, WAIT)] * 2)

    def step(state, _):
        observation, state, reward, done, _ = jax.vmap(env.step)(keys, state, actions)
        return state, (observation, reward, done)

    state, (observations, rewards, dones) = jax.lax.scan(step, start, length=3)
    assert dones.all() and (rewards == 2).all() and (observations == first).all()
    assert state.env_state.time.tolist() == [0, 0]
    assert (state.env_state.instance.holes == levels.holes).all()


def test_auto_reset_draws_its_levels_from_a_bank(tree_map):
    bank = LevelBank.build(stack([level(WALK)]))
    env = AutoResetWrapper(lake(), lambda key: bank.draw(key)[0])
    old, new = jax.random.PRNGKey(0), jax.random.PRNGKey(1)  # This wrapper takes raw keys only.
    _, state = env.reset_to_level(old, level(ONE_STEP))
    _, state, _, done, _ = env.step(new, state, joint(RIGHT, RIGHT, WAIT))
    assert done and state.env_state.instance.size == 4
    assert state.env_state.positions.tolist() == bank.instances.starts[0].tolist()


def test_the_level_sampler_replays_the_level_with_the_higher_score(tree_map):
    almost_greedy = {"temperature": 0.02}  # The second of two levels has a weight of 2 ** -50.
    sampler = LevelSampler(4, staleness_coeff=0.0, prioritization_params=almost_greedy, duplicate_check=True)
    buffer = sampler.initialize(level(WALK))
    batch = jax.tree.map(jnp.asarray, stack([level(ONE_STEP), level(CORNER), level(ONE_STEP)]))
    buffer, indices = sampler.insert_batch(buffer, batch, jnp.array([0.1, 0.9, 0.2]))
    assert buffer["size"] == 2 and indices.tolist() == [0, 1, 0]
    _, (replayed, levels) = sampler.sample_replay_levels(buffer, jax.random.key(0), 8)
    assert replayed.tolist() == [1] * 8
    assert (np.asarray(levels.holes) == np.asarray(level(CORNER).holes)).all()
    _, states = jax.vmap(lake().reset_to_level)(jax.random.split(jax.random.key(1), 8), levels)
    assert states.positions.tolist() == [level(CORNER).starts.tolist()] * 8

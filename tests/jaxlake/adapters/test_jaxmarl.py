"""The JaxMARL face: its interface, its baselines' wrappers on it, and what JaxMARL alone asks for."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("jaxmarl")

from jaxmarl.environments.multi_agent_env import MultiAgentEnv  # noqa: E402
from jaxmarl.environments.spaces import Space  # noqa: E402
from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper  # noqa: E402

from jaxlake import observations  # noqa: E402
from jaxlake.adapters.jaxmarl import MultiAgentLake  # noqa: E402
from jaxlake.env import Lake  # noqa: E402
from jaxlake.state import Params  # noqa: E402
from jaxlake.testing import BOARD, MAX_AGENTS, MAX_SIZE, bank  # noqa: E402
from jaxlake.types import ABSENT, Action  # noqa: E402


@cache  # An environment is a static argument of its own ``step``: each new one compiles.
def lake_of(*boards: str) -> MultiAgentLake:
    return MultiAgentLake(bank(*boards), params=Params(max_steps=2))


def actions(*chosen: Action) -> dict[str, jax.Array]:
    return {f"agent_{agent}": jnp.int32(action) for agent, action in enumerate(chosen)}


def test_the_environment_has_the_shape_that_jaxmarl_asks_of_its_own():
    env = lake_of(BOARD)
    assert isinstance(env, MultiAgentEnv) and env.agents == ["agent_0", "agent_1", "agent_2"]
    key = jax.random.key(0)
    first, state = env.reset(key)
    sampled = {agent: env.action_space(agent).sample(key) for agent in env.agents}
    second, state, rewards, dones, infos = env.step(key, state, sampled)
    for agent in env.agents:
        space = env.observation_space(agent)
        assert space == env.observation_spaces[agent] and isinstance(space, Space)
        assert isinstance(env.action_space(agent), Space) and env.action_space(agent).n == 5
        for observation in (first[agent], second[agent]):
            assert space.contains(observation)
            assert (observation.shape, observation.dtype) == (space.shape, space.dtype)
        assert rewards[agent].shape == dones[agent].shape == () and dones[agent].dtype == bool
    assert set(first) == set(second) == set(rewards) == set(env.agents)
    assert set(dones) == {*env.agents, "__all__"}
    assert state.step == 1 and not state.done
    assert {value.shape for value in infos.values()} == {(MAX_AGENTS,)}


def test_actions_may_have_the_axis_of_one_that_the_baselines_leave():
    env = lake_of(BOARD)
    _, state = env.reset(jax.random.key(0))
    left = {agent: jnp.array([Action.LEFT]) for agent in env.agents}
    _, state, *_ = env.step(jax.random.key(1), state, left)
    assert state.episode.positions.tolist() == [1 * MAX_SIZE + 0, 2 * MAX_SIZE + 1, ABSENT]


def test_a_central_critic_sees_the_whole_board_from_each_agents_place_and_the_time():
    env = MultiAgentLake(bank(BOARD), Lake(observe=observations.window(1)), params=Params(max_steps=4))
    _, state = env.reset(jax.random.key(0))
    _, state, *_ = env.step(jax.random.key(1), state, actions(Action.UP, Action.DOWN, Action.WAIT))
    seen = env.get_world_state(state)
    assert seen.shape == (MAX_AGENTS, env.world_state_size()) and seen.dtype == jnp.float32
    assert seen[:, :3].tolist() == np.eye(3).tolist() and seen[:, -1].tolist() == [0.25] * 3
    others = np.array([3, 2, -MAX_SIZE, -MAX_SIZE, 3, 3, 0, 3]) / MAX_SIZE  # Agent 1, nobody, goals of agents 0 and 1.
    np.testing.assert_allclose(seen[0, 3:13], [0, 1 / MAX_SIZE, *others], rtol=1e-6)
    wrapped = LogWrapper(env)
    assert wrapped.world_state_size() == env.world_state_size()


def test_an_absent_agent_is_done_and_can_only_wait():
    env = lake_of(BOARD)
    _, state = env.reset(jax.random.key(0))
    allowed = env.get_avail_actions(state)
    assert allowed["agent_0"].tolist() == [True] * 5
    assert allowed["agent_2"].tolist() == [False] * 4 + [True]
    _, _, _, dones, _ = env.step(jax.random.key(1), state, actions(Action.UP, Action.UP, Action.WAIT))
    assert dones["agent_2"] and not dones["agent_0"] and not dones["__all__"]


@pytest.mark.heavy
def test_the_rollout_manager_of_the_q_learning_baselines_takes_it():
    env = lake_of(BOARD)
    manager = CTRolloutManager(env, batch_size=4)
    observation, state = manager.batch_reset(jax.random.key(0))
    chosen = {agent: manager.batch_sample(jax.random.key(1), agent) for agent in env.agents}
    observation, state, rewards, _, _ = manager.batch_step(jax.random.key(2), state, chosen)
    width = env.observation_space("agent_0").shape[0]
    assert observation["__all__"].shape == (4, MAX_AGENTS * width)
    assert observation["agent_1"].shape == (4, width + MAX_AGENTS)
    assert rewards["__all__"].shape == (4,)

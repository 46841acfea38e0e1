"""The JaxMARL face: its interface, one step in each direction against the core, and IPPO that learns through it."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("jaxmarl")
optax = pytest.importorskip("optax")

from jaxmarl.environments.multi_agent_env import MultiAgentEnv  # noqa: E402
from jaxmarl.environments.spaces import Space  # noqa: E402
from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper  # noqa: E402

from jaxlake import observations  # noqa: E402
from jaxlake.adapters.jaxmarl import MultiAgentLake  # noqa: E402
from jaxlake.board_text import from_text  # noqa: E402
from jaxlake.env import Lake  # noqa: E402
from jaxlake.levels import LevelBank, stack  # noqa: E402
from jaxlake.state import Params, State, TimeStep  # noqa: E402
from jaxlake.types import ABSENT, Action  # noqa: E402

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


def bank(*boards: str, max_size: int = MAX_SIZE, max_agents: int = MAX_AGENTS) -> LevelBank:
    return LevelBank.build(stack([from_text(board, max_size=max_size, max_agents=max_agents) for board in boards]))


@cache  # An environment is a static argument of its own ``step``: each new one compiles.
def lake_of(*boards: str) -> MultiAgentLake:
    return MultiAgentLake(bank(*boards), params=Params(max_steps=2))


def actions(*chosen: Action) -> dict[str, jax.Array]:
    return {f"agent_{agent}": jnp.int32(action) for agent, action in enumerate(chosen)}


def test_the_environment_has_the_shape_that_jaxmarl_asks_of_its_own():
    env = lake_of(WALK)
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


@jax.jit
def core_step(actions: jax.Array) -> tuple[State, TimeStep]:
    return Lake().step(Lake().reset(from_text(WALK, max_size=MAX_SIZE, max_agents=MAX_AGENTS))[0], actions)


@pytest.mark.parametrize(
    "action, opposite, cells",
    [
        (Action.UP, Action.DOWN, [(0, 1), (3, 2)]),
        (Action.DOWN, Action.UP, [(2, 1), (1, 2)]),
        (Action.LEFT, Action.RIGHT, [(1, 0), (2, 3)]),
        (Action.RIGHT, Action.LEFT, [(1, 2), (2, 1)]),
        (Action.WAIT, Action.WAIT, [(1, 1), (2, 2)]),
    ],
)
def test_a_step_in_each_direction_is_the_cores(action, opposite, cells):
    env = lake_of(WALK)
    _, state = env.reset(jax.random.key(0))
    _, state, *_ = env.step(jax.random.key(1), state, actions(action, opposite, Action.WAIT))
    core, _ = core_step(jnp.array([action, opposite, Action.WAIT]))
    expected = [row * MAX_SIZE + column for row, column in cells] + [ABSENT]
    assert state.episode.positions.tolist() == core.positions.tolist() == expected


def test_actions_may_have_the_axis_of_one_that_the_baselines_leave():
    env = lake_of(WALK)
    _, state = env.reset(jax.random.key(0))
    left = {agent: jnp.array([Action.LEFT]) for agent in env.agents}
    _, state, *_ = env.step(jax.random.key(1), state, left)
    assert state.episode.positions.tolist() == [1 * MAX_SIZE + 0, 2 * MAX_SIZE + 1, ABSENT]


def test_bounds_are_tight():
    space = lake_of(WALK).observation_space("agent_0")
    assert (space.low, space.high) == (-1, 1)
    own = MultiAgentLake(bank(WALK), Lake(observe=lambda state: state.positions)).observation_space("agent_0")
    assert (own.low, own.high) == (-(2**31), 2**31 - 1)


def test_a_central_critic_sees_the_whole_board_from_each_agents_place_and_the_time():
    env = MultiAgentLake(bank(WALK), Lake(observe=observations.window(1)), params=Params(max_steps=4))
    _, state = env.reset(jax.random.key(0))
    _, state, *_ = env.step(jax.random.key(1), state, actions(Action.UP, Action.DOWN, Action.WAIT))
    seen = env.get_world_state(state)
    assert seen.shape == (MAX_AGENTS, env.world_state_size()) and seen.dtype == jnp.float32
    assert seen[:, :3].tolist() == np.eye(3).tolist() and seen[:, -1].tolist() == [0.25] * 3
    others = np.array([3, 2, -MAX_SIZE, -MAX_SIZE, 3, 3, 0, 3]) / MAX_SIZE  # Agent 1, nobody, goals of agents 0 and 1.
    np.testing.assert_allclose(seen[0, 3:13], [0, 1 / MAX_SIZE, *others], rtol=1e-6)
    wrapped = LogWrapper(env)
    assert wrapped.world_state_size() == env.world_state_size()


def test_a_solved_board_rewards_and_starts_the_next_episode():
    env = lake_of(ONE_STEP)
    first, start = env.reset(jax.random.key(0))
    observation, state, rewards, dones, infos = env.step(
        jax.random.key(1), start, actions(Action.RIGHT, Action.RIGHT, Action.WAIT)
    )
    assert all(dones.values()) and infos["solved"].all() and not infos["truncated"].any()
    assert [float(rewards[agent]) for agent in env.agents] == [1, 1, 0]
    assert infos["sum_of_costs"].tolist() == [2, 2, 2]
    assert state.step == 0 and state.episode.positions.tolist() == start.episode.positions.tolist()
    assert all((observation[agent] == first[agent]).all() for agent in env.agents)


def test_the_time_limit_is_done_and_told_apart_as_truncated():
    env = lake_of(WALK)
    _, state = env.reset(jax.random.key(0))
    waiting = actions(Action.WAIT, Action.WAIT, Action.WAIT)
    _, state, _, dones, infos = env.step(jax.random.key(1), state, waiting)
    assert not dones["__all__"] and not infos["truncated"].any()
    _, state, rewards, dones, infos = env.step(jax.random.key(2), state, waiting)
    assert dones["__all__"] and infos["truncated"].all() and not infos["solved"].any()
    assert not any(rewards.values()) and state.step == 0


def test_a_given_state_replaces_the_drawn_reset():
    env = lake_of(ONE_STEP)
    _, other = lake_of(WALK).reset(jax.random.key(0))
    _, start = env.reset(jax.random.key(0))
    observation, state, *_ = env.step(
        jax.random.key(1), start, actions(Action.RIGHT, Action.RIGHT, Action.WAIT), reset_state=other
    )
    assert state.episode.positions.tolist() == other.episode.positions.tolist()
    assert all((observation[agent] == env.get_obs(other)[agent]).all() for agent in env.agents)


def test_an_absent_agent_is_done_and_can_only_wait():
    env = lake_of(WALK)
    _, state = env.reset(jax.random.key(0))
    allowed = env.get_avail_actions(state)
    assert allowed["agent_0"].tolist() == [True] * 5
    assert allowed["agent_2"].tolist() == [False] * 4 + [True]
    _, _, _, dones, _ = env.step(jax.random.key(1), state, actions(Action.UP, Action.UP, Action.WAIT))
    assert dones["agent_2"] and not dones["agent_0"] and not dones["__all__"]


def test_resets_draw_every_level_of_the_bank():
    env = lake_of(WALK, ONE_STEP)
    _, states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 32))
    assert set(states.episode.instance.size.tolist()) == {3, 4}


@pytest.mark.heavy
def test_the_rollout_manager_of_the_q_learning_baselines_takes_it():
    env = lake_of(WALK)
    manager = CTRolloutManager(env, batch_size=4)
    observation, state = manager.batch_reset(jax.random.key(0))
    chosen = {agent: manager.batch_sample(jax.random.key(1), agent) for agent in env.agents}
    observation, state, rewards, _, _ = manager.batch_step(jax.random.key(2), state, chosen)
    width = env.observation_space("agent_0").shape[0]
    assert observation["__all__"].shape == (4, MAX_AGENTS * width)
    assert observation["agent_1"].shape == (4, width + MAX_AGENTS)
    assert rewards["__all__"].shape == (4,)


def test_an_observation_without_agents_in_front_is_refused():
    for max_agents in (2, 3):  # The planes are three, so with three agents their shape alone looks right.
        with pytest.raises(ValueError, match="one array with an axis of agents in front"):
            MultiAgentLake(bank(ONE_STEP, max_agents=max_agents), Lake(observe=observations.planes))


# Independent PPO with shared parameters, as JaxMARL's baselines have it (they are not in its package); it touches the
# environment through JaxMARL's interface only.
NUM_ENVS, NUM_STEPS, UPDATES, EPOCHS, MINIBATCHES = 64, 32, 30, 4, 4
DISCOUNT, LAMBDA, CLIP, ENTROPY, LEARNING_RATE = 0.97, 0.95, 0.2, 0.01, 2e-3
CROWDED = (
    """
    a.B
    .#.
    b.A
    """,
    """
    ab.
    ...
    .BA
    """,
    """
    #aA
    b..
    B.#
    """,
)


def network(params: dict, observation: jax.Array, allowed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities ``[..., 5]`` over what is allowed, and the value ``[...]``."""

    def layers(name: str) -> jax.Array:
        hidden = jnp.tanh(observation @ params[name][0])
        return jnp.tanh(hidden @ params[name][1]) @ params[name][2]

    return jax.nn.log_softmax(jnp.where(allowed, layers("actor"), -1e9)), layers("critic")[..., 0]


def initial(key: jax.Array, features: int) -> dict:
    orthogonal = jax.nn.initializers.orthogonal
    keys = iter(jax.random.split(key, 6))
    return {
        name: [
            orthogonal(2**0.5)(next(keys), (features, 64)),
            orthogonal(2**0.5)(next(keys), (64, 64)),
            orthogonal(scale)(next(keys), (64, outputs)),
        ]
        for name, outputs, scale in (("actor", 5, 0.01), ("critic", 1, 1.0))
    }


def batched(env, values: dict[str, jax.Array]) -> jax.Array:
    return jnp.stack([values[agent] for agent in env.agents], axis=1).reshape(NUM_ENVS * env.num_agents, -1)


def loss(params: dict, batch: dict[str, jax.Array]) -> jax.Array:
    log_probs, values = network(params, batch["observation"], batch["allowed"])
    ratio = jnp.exp(jnp.take_along_axis(log_probs, batch["action"][:, None], 1)[:, 0] - batch["log_prob"])
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    actor = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
    clipped = batch["value"] + jnp.clip(values - batch["value"], -CLIP, CLIP)
    critic = jnp.maximum((values - batch["target"]) ** 2, (clipped - batch["target"]) ** 2).mean() / 2
    entropy = -(jnp.exp(log_probs) * log_probs * batch["allowed"]).sum(-1).mean()
    return actor + critic / 2 - ENTROPY * entropy


def train(env, key: jax.Array) -> jax.Array:
    """Mean return of the episodes that ended in each update ``[UPDATES]``."""
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(LEARNING_RATE, eps=1e-5))
    init_key, reset_key, key = jax.random.split(key, 3)
    params = initial(init_key, env.observation_space(env.agents[0]).shape[0])
    observation, state = jax.vmap(env.reset)(jax.random.split(reset_key, NUM_ENVS))

    def step(params, carry, key):
        state, observation = carry
        act_key, step_key = jax.random.split(key)
        seen = batched(env, observation)
        allowed = batched(env, jax.vmap(env.get_avail_actions)(state.env_state))
        log_probs, value = network(params, seen, allowed)
        action = jax.random.categorical(act_key, log_probs)
        chosen = dict(zip(env.agents, action.reshape(NUM_ENVS, -1).T, strict=True))
        step_keys = jax.random.split(step_key, NUM_ENVS)
        observation, state, reward, done, info = jax.vmap(env.step)(step_keys, state, chosen)
        return (state, observation), {
            "observation": seen,
            "allowed": allowed,
            "action": action,
            "log_prob": jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0],
            "value": value,
            "reward": batched(env, reward)[:, 0],
            "done": batched(env, done)[:, 0],
            "ended": info["returned_episode"],
            "returned": info["returned_episode_returns"],
        }

    def advantages(last_value, steps):
        def back(carry, step):
            advantage, following = carry
            alive = 1 - step["done"]
            delta = step["reward"] + DISCOUNT * following * alive - step["value"]
            advantage = delta + DISCOUNT * LAMBDA * alive * advantage
            return (advantage, step["value"]), advantage

        return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), steps, reverse=True)[1]

    def descend(carry, batch):
        params, moments = carry
        changes, moments = optimizer.update(jax.grad(loss)(params, batch), moments)
        return (optax.apply_updates(params, changes), moments), None

    def epoch(steps, carry, key):
        shuffled = jax.tree.map(lambda leaf: jax.random.permutation(key, leaf.reshape(-1, *leaf.shape[2:])), steps)
        batches = jax.tree.map(lambda leaf: leaf.reshape(MINIBATCHES, -1, *leaf.shape[1:]), shuffled)
        return jax.lax.scan(descend, carry, batches)

    def update(carry, key):
        params, moments, state, observation = carry
        act_key, learn_key = jax.random.split(key)
        (state, observation), steps = jax.lax.scan(
            partial(step, params), (state, observation), jax.random.split(act_key, NUM_STEPS)
        )
        ended, returned = steps.pop("ended"), steps.pop("returned")
        allowed = batched(env, jax.vmap(env.get_avail_actions)(state.env_state))
        last_value = network(params, batched(env, observation), allowed)[1]
        steps["advantage"] = advantages(last_value, steps)
        steps["target"] = steps["advantage"] + steps["value"]
        (params, moments), _ = jax.lax.scan(
            partial(epoch, steps), (params, moments), jax.random.split(learn_key, EPOCHS)
        )
        return (params, moments, state, observation), (returned * ended).sum() / ended.sum()

    carry = (params, optimizer.init(params), state, observation)
    return jax.lax.scan(update, carry, jax.random.split(key, UPDATES))[1]


@pytest.mark.heavy
def test_independent_ppo_learns_through_the_interface():
    levels = bank(*CROWDED, max_size=3, max_agents=2)
    env = LogWrapper(MultiAgentLake(levels, params=Params(max_steps=10)))
    returns = np.asarray(jax.jit(partial(train, env))(jax.random.key(0)))
    random_play, learned = returns[0], returns[-5:].mean()  # Nothing is learned yet in the first update.
    assert random_play < 0.2 and learned > 0.9, f"return {random_play:.2f} at first, {learned:.2f} at last"

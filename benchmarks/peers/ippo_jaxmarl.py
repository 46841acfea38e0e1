"""JaxMARL's independent PPO without recurrence, in our own words; trains some updates for every line of JSON.

JaxMARL's package has environments and wrappers, only its repository the baselines. This computes what
`baselines/IPPO/ippo_ff_mpe.py` of FLAIROx/JaxMARL does (commit 014b4f0, the last to change it), with the constants of
`config/ippo_ff_mpe.yaml` and with its tools: flax.linen, distrax, optax, and JaxMARL's wrapper that logs returns. All
agents share an actor and a critic of two layers of 64 each; the environments' own `step` under vmap resets them; every
epoch permutes the whole batch. Left out: hydra, and the log to Weights & Biases after each update, a call to the host.
The original trains all updates in one program; here a request trains some, and the next goes on. From the same key both
have the same returns and losses to the last bit over six updates of MPE, and to two decimals the same returns after
each 60 of 300. In turns with the original it trained 1.00 times as many steps a second on our adapter, 1.15 on MPE.

Argument: JSON of settings. All need `environments`, `steps`, `epochs`, `minibatches`, `learning_rate`, `updates` (of a
request), `anneal_over` (updates in all) and `one_trunk` (of layers for actor and critic, which is not JaxMARL's way).
`levels`, an .npz of the fields of an `Instance`, are played by the laboratory's rules and seen by its `radius`, at most
`episode_steps` long; without them it is MPE_simple_spread_v3. The answer: environment steps a second, and the mean
return of the episodes that each environment ended last.

With `test_levels`, such a file too, agents see a window of that radius with the steps to their goals, are paid for
coming nearer, and block each other as by default. The answer then also has means over the test levels, each played
`test_steps` long by the policy's draws: `success` and `arrived`, as shares, and `ratio`, the sum of costs of the solved
over that of the agents' shortest paths; and the cells `[times, agents]` of the first level.

Levels with lists of goals, a `LifelongInstance`, are lifelong play with goals drawn: agents are paid 1 for each goal
that they reach, and the answer has only `throughput`, goals that all agents of a test level reach in a step.
"""

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxmarl
import numpy as np
import optax
from flax.linen.initializers import orthogonal
from flax.training.train_state import TrainState
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.wrappers.baselines import LogWrapper, MPELogWrapper
from protocol import serve_requests

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # jaxlake, which is not installed here

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE, MAX_GRADIENT_NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
WIDTH, LAYERS = 64, 2


def main() -> None:
    settings = SimpleNamespace(**json.loads(sys.argv[1]))
    env = MPELogWrapper(jaxmarl.make("MPE_simple_spread_v3"))
    if hasattr(settings, "levels"):
        env = LogWrapper(lake(settings))
    test = tester(settings) if hasattr(settings, "test_levels") else None
    learner = Learner(env, settings)
    carry = jax.jit(learner.init)(jax.random.key(0))
    train = jax.jit(learner.train)

    def answer() -> dict:
        nonlocal carry
        start = time.perf_counter()
        carry, metrics = jax.block_until_ready(train(carry))
        seconds = time.perf_counter() - start
        rate = settings.updates * settings.steps * settings.environments / seconds
        answer = {"rate": rate, "return": float(metrics["returned_episode_returns"][-1])}
        return answer | (test(learner.network, carry[0].params) if test else {})

    serve_requests(answer)


def lake(settings: SimpleNamespace) -> MultiAgentEnv:
    """Return our adapter with the laboratory's rules and observation, on the levels of the file."""
    from jaxlake.adapters.jaxmarl import MultiAgentLake
    from jaxlake.env import Lake
    from jaxlake.levels import LevelBank
    from jaxlake.state import Params, State
    from rl.students.turns.network import Surroundings, flatten

    surroundings = Surroundings(settings.radius, settings.episode_steps)

    def observe(state: State) -> jax.Array:
        return flatten(surroundings(state))

    large, levels = hasattr(settings, "test_levels"), read_levels(settings.levels)
    rules = many_agents(settings, levels) if large else Lake("fall", "end", observe)
    bank = LevelBank.build(levels, with_distances=large)
    return MultiAgentLake(bank, rules, Params(max_steps=settings.episode_steps))


def read_levels(path: str) -> Any:
    """Return the levels of a file, with lists of goals where it has them."""
    from jaxlake.types import Instance, LifelongInstance

    fields = np.load(path)
    return LifelongInstance(**fields) if "tasks" in fields else Instance(**fields)


def many_agents(settings: SimpleNamespace, levels: Any) -> Any:
    """Return the rules and observation for boards of any size."""
    from jaxlake import observations, rewards
    from jaxlake.env import Lake
    from jaxlake.types import LifelongInstance

    window = observations.window(settings.radius, project_goal=True, distances=True)

    def observe(state: Any) -> jax.Array:
        seen = window(state).astype(jnp.float32)
        near = jnp.clip(seen[:, observations.STEPS_TO_GOAL] / settings.radius, -2, 2)
        return jnp.concatenate([jnp.minimum(seen[:, :4], 1), near[:, None]], axis=1).reshape(len(seen), -1)

    if isinstance(levels, LifelongInstance):
        return Lake(observe=observe, reward=rewards.reached, goals="drawn")
    nearer = rewards.shaped(0.1)

    def reward(transition: Any) -> jax.Array:
        # With `GAMMA` as its discount, `shaped` pays for waiting far away, and 64 steps end before that evens out.
        return nearer(transition) + 0.05 * rewards.cost(transition)

    return Lake(observe=observe, reward=reward)


def tester(settings: SimpleNamespace) -> Callable[[nn.Module, dict], dict]:
    """Return what plays the test levels."""
    from jaxlake.levels import LevelBank
    from jaxlake.rules import GoalRule
    from jaxlake.state import Params

    levels = read_levels(settings.test_levels)
    rules = many_agents(settings, levels)
    bank = LevelBank.build(levels, with_distances=True)

    @functools.partial(jax.jit, static_argnums=0)
    def play(network: nn.Module, parameters: dict) -> tuple:
        params = Params(max_steps=settings.test_steps)
        state, first = jax.vmap(lambda level, fields: rules.reset(level, params, fields))(
            bank.instances, bank.distances
        )

        def step(carry: tuple, key: jax.Array) -> tuple:
            state, seen = carry
            policy, _ = network.apply(parameters, seen)
            goal_keys = jax.random.split(jax.random.fold_in(key, 1), len(bank))
            state, timestep = jax.vmap(rules.step)(state, policy.sample(seed=key), goal_keys)
            return (state, timestep.observation), state.positions[0]

        keys = jax.random.split(jax.random.key(7), settings.test_steps)
        (state, _), cells = jax.lax.scan(step, (state, first.observation), keys)
        return state, jnp.concatenate([bank.instances.starts[:1], cells])

    def test(network: nn.Module, parameters: dict) -> dict:
        state, cells = play(network, parameters)
        if rules.goals is not GoalRule.ONCE:
            return {"throughput": float(state.goals_reached.sum(axis=1).mean() / settings.test_steps)}
        home, costs = np.asarray(state.positions == levels.goals), np.asarray(state.arrivals.sum(axis=1))
        shortest = np.take_along_axis(np.asarray(bank.distances), levels.starts[..., None], 2)[..., 0].sum(axis=1)
        solved = home.all(axis=1)
        ratio = float(np.mean((costs / shortest)[solved])) if solved.any() else None
        arrived = float(home.mean())
        return {"success": float(solved.mean()), "arrived": arrived, "ratio": ratio, "cells": cells.tolist()}

    return test


class ActorCritic(nn.Module):
    """Distribution of actions and value of each row."""

    actions: int
    one_trunk: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[distrax.Categorical, jax.Array]:
        def trunk() -> jax.Array:
            hidden = x
            for _ in range(LAYERS):
                hidden = nn.tanh(nn.Dense(WIDTH, kernel_init=orthogonal(2**0.5))(hidden))
            return hidden

        actor = trunk()
        logits = nn.Dense(self.actions, kernel_init=orthogonal(0.01))(actor)
        critic = actor if self.one_trunk else trunk()
        value = nn.Dense(1, kernel_init=orthogonal(1.0))(critic)
        return distrax.Categorical(logits=logits), value.squeeze(-1)


class Transition(NamedTuple):
    """What all agents saw, did and got in one step, a row an agent: `[agents * environments, ...]`."""

    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array
    info: dict


class Learner:
    """One network for all agents of an environment."""

    def __init__(self, env: LogWrapper, settings: SimpleNamespace) -> None:
        self.env, self.settings = env, settings
        first = env.agents[0]
        self.network = ActorCritic(env.action_space(first).n, settings.one_trunk)
        self.features = env.observation_space(first).shape
        updates_a_rollout = settings.epochs * settings.minibatches

        def learning_rate(count: jax.Array) -> jax.Array:
            return settings.learning_rate * (1 - (count // updates_a_rollout) / settings.anneal_over)

        self.optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRADIENT_NORM), optax.adam(learning_rate, eps=1e-5))

    def init(self, key: jax.Array) -> tuple:
        """Return parameters with their optimizer, environments, what they show, and a key."""
        key, parameters_key = jax.random.split(key)
        key, reset_key = jax.random.split(key)
        parameters = self.network.init(parameters_key, jnp.zeros(self.features))
        train_state = TrainState.create(apply_fn=self.network.apply, params=parameters, tx=self.optimizer)
        obs, states = jax.vmap(self.env.reset)(jax.random.split(reset_key, self.settings.environments))
        return train_state, states, obs, jax.random.split(key)[1]

    def train(self, carry: tuple) -> tuple[tuple, dict]:
        """Make the updates of a request; metrics are `[updates]`."""
        return jax.lax.scan(self.update, carry, None, self.settings.updates)

    def update(self, carry: tuple, _: None) -> tuple[tuple, dict]:
        """Play a rollout and learn from it."""
        (train_state, states, obs, key), rollout = jax.lax.scan(self.step, carry, None, self.settings.steps)
        _, last_value = self.network.apply(train_state.params, self.stack(obs))
        advantages = gae(rollout, last_value)

        def epoch(carry: tuple, _: None) -> tuple[tuple, dict]:
            train_state, key = carry
            key, order_key = jax.random.split(key)
            batch = (rollout, advantages, advantages + rollout.value)
            order = jax.random.permutation(order_key, advantages.size)

            def shuffled(x: jax.Array) -> jax.Array:
                rows = x.reshape((advantages.size, *x.shape[2:]))
                return jnp.take(rows, order, axis=0).reshape((self.settings.minibatches, -1, *x.shape[2:]))

            train_state, losses = jax.lax.scan(self.minibatch, train_state, jax.tree.map(shuffled, batch))
            return (train_state, key), losses

        (train_state, key), losses = jax.lax.scan(epoch, (train_state, key), None, self.settings.epochs)
        metrics = jax.tree.map(jnp.mean, rollout.info | losses)
        return (train_state, states, obs, key), metrics

    def step(self, carry: tuple, _: None) -> tuple[tuple, Transition]:
        """Play one step of all environments."""
        train_state, states, obs, key = carry
        key, action_key = jax.random.split(key)
        key, step_key = jax.random.split(key)
        rows = self.stack(obs)
        policy, value = self.network.apply(train_state.params, rows)
        action = policy.sample(seed=action_key)
        log_prob = policy.log_prob(action)
        by_agent = action.reshape(self.env.num_agents, self.settings.environments, -1)
        actions = {agent: by_agent[index] for index, agent in enumerate(self.env.agents)}
        keys = jax.random.split(step_key, self.settings.environments)
        obs, states, reward, done, info = jax.vmap(self.env.step)(keys, states, actions)
        done, reward = self.stack(done)[:, 0], self.stack(reward)[:, 0]
        info = jax.tree.map(jnp.ravel, info)
        return (train_state, states, obs, key), Transition(done, action, value, reward, log_prob, rows, info)

    def stack(self, by_agent: dict[str, jax.Array]) -> jax.Array:
        """Return a row an agent and environment, the first agent's in front."""
        rows = jnp.stack([by_agent[agent] for agent in self.env.agents])
        return rows.reshape(self.env.num_agents * self.settings.environments, -1)

    def minibatch(self, train_state: TrainState, batch: tuple) -> tuple[TrainState, dict]:
        """Take one step of the optimizer."""
        rows, advantages, targets = batch

        def loss(parameters: dict) -> tuple[jax.Array, dict]:
            policy, value = self.network.apply(parameters, rows.obs)
            ratio = jnp.exp(policy.log_prob(rows.action) - rows.log_prob)
            gain = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            actor = -jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gain).mean()
            near = rows.value + jnp.clip(value - rows.value, -CLIP, CLIP)
            critic = 0.5 * jnp.maximum((value - targets) ** 2, (near - targets) ** 2).mean()
            entropy = policy.entropy().mean()
            total = actor + VALUE * critic - ENTROPY * entropy
            return total, {"actor": actor, "critic": critic, "entropy": entropy, "ratio": ratio}

        (total, losses), gradients = jax.value_and_grad(loss, has_aux=True)(train_state.params)
        return train_state.apply_gradients(grads=gradients), losses | {"total": total}


def gae(rollout: Transition, last_value: jax.Array) -> jax.Array:
    """Return generalized advantage estimates, `[steps, rows]`."""

    def back(carry: tuple, step: Transition) -> tuple[tuple, jax.Array]:
        later, next_value = carry
        goes_on = 1 - step.done
        advantage = step.reward + GAMMA * next_value * goes_on - step.value + GAMMA * GAE_LAMBDA * goes_on * later
        return (advantage, step.value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), rollout, reverse=True, unroll=8)[1]


main()

"""JaxUED's 13x13 Maze, replaying its level at the end of an episode. Arguments: batch, steps."""

import sys

import jax
from jaxued.environments.maze import Maze, make_level_generator
from jaxued.wrappers import AutoReplayWrapper
from protocol import serve_scan

batch, steps = map(int, sys.argv[1:])
env = AutoReplayWrapper(Maze())
params = env.default_params
keys = jax.random.split(jax.random.key(0), batch)
levels = jax.vmap(make_level_generator(13, 13, 25))(keys)
observation, state = jax.jit(jax.vmap(env.reset_to_level, in_axes=(0, 0, None)))(keys, levels, params)
actions = jax.random.randint(jax.random.key(1), (steps, batch), 0, env.action_space(params).n)


def step(carry, actions):
    key, state, _ = carry
    key, use = jax.random.split(key)
    keys = jax.random.split(use, batch)
    observation, state, *_ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, actions, params)
    return key, state, observation


serve_scan(jax, step, (jax.random.key(2), state, observation), actions)

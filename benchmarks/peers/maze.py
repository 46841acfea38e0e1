"""JaxUED's 13x13 Maze, replaying its level at the end of an episode. Arguments: batch, steps."""

import sys

import jax

jax.tree_map = jax.tree.map  # JaxUED 0.0.1 calls it; JAX no longer has it.

from jaxued.environments.maze import Maze, make_level_generator  # noqa: E402
from jaxued.wrappers import AutoReplayWrapper  # noqa: E402
from protocol import serve_scan  # noqa: E402

batch, steps = map(int, sys.argv[1:3])
env = AutoReplayWrapper(Maze())
params = env.default_params
keys = jax.random.split(jax.random.key(0), batch)
levels = jax.vmap(make_level_generator(13, 13, 25))(keys)
observation, state = jax.jit(jax.vmap(env.reset_to_level, in_axes=(0, 0, None)))(keys, levels, params)
inputs = (
    jax.random.split(jax.random.key(1), (steps, batch)),
    jax.random.randint(jax.random.key(2), (steps, batch), 0, env.action_space(params).n),
)


def step(carry, inputs):
    observation, state, *_ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(inputs[0], carry[0], inputs[1], params)
    return state, observation


serve_scan(jax, step, (state, observation), inputs)

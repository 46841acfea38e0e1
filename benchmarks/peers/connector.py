"""Jumanji's Connector with its own auto-reset. Arguments: batch, steps, side, number of agents."""

import sys

import jax
from jumanji.environments.routing.connector.env import Connector
from jumanji.environments.routing.connector.generator import RandomWalkGenerator, UniformRandomGenerator
from jumanji.wrappers import VmapAutoResetWrapper
from protocol import serve_scan

batch, steps, side, agents = map(int, sys.argv[1:])
# On large boards, walks of as many agents do not compile within minutes.
generator = RandomWalkGenerator if side <= 10 else UniformRandomGenerator
env = VmapAutoResetWrapper(Connector(generator=generator(grid_size=side, num_agents=agents), time_limit=64))
state, first = jax.jit(env.reset)(jax.random.split(jax.random.key(0), batch))
actions = jax.random.randint(jax.random.key(1), (steps, batch, agents), 0, 5)


def step(carry, actions):
    state, time_step = env.step(carry[0], actions)
    return state, time_step.observation


serve_scan(jax, step, (state, first.observation), actions)

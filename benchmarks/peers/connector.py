"""Jumanji's Connector, 8x8 with 4 agents, with its own auto-reset. Arguments: batch, steps."""

import sys

import jax
from jumanji.environments.routing.connector.env import Connector
from jumanji.environments.routing.connector.generator import RandomWalkGenerator
from jumanji.wrappers import VmapAutoResetWrapper
from protocol import serve_scan

batch, steps = map(int, sys.argv[1:])
env = VmapAutoResetWrapper(Connector(generator=RandomWalkGenerator(grid_size=8, num_agents=4), time_limit=64))
state, first = jax.jit(env.reset)(jax.random.split(jax.random.key(0), batch))
actions = jax.random.randint(jax.random.key(1), (steps, batch, 4), 0, 5)


def step(carry, actions):
    state, time_step = env.step(carry[0], actions)
    return state, time_step.observation


serve_scan(jax, step, (state, first.observation), actions)

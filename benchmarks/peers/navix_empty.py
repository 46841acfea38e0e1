"""Navix-Empty-8x8, which resets by itself. Arguments: batch, steps."""

import sys

import jax
import navix
from protocol import serve_scan

batch, steps = map(int, sys.argv[1:3])
env = navix.make("Navix-Empty-8x8-v0")
first = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), batch))
actions = jax.random.randint(jax.random.key(1), (steps, batch), 0, env.action_space.n)
serve_scan(jax, jax.vmap(env.step), first, actions)

"""POGEMA, one environment in Python. Arguments: batch (ignored), steps (plays 64 steps / agents), side, agents."""

import sys

import numpy as np
from pogema import GridConfig, pogema_v0
from protocol import serve

steps, side, agents = map(int, sys.argv[2:])
count = 64 * steps // agents
env = pogema_v0(
    GridConfig(size=side, num_agents=agents, density=0.15, seed=0, max_episode_steps=64, on_target="nothing")
)
env.reset()
actions = np.random.default_rng(0).integers(0, 5, (count, agents)).tolist()


def repeat():
    for joint in actions:
        _, _, terminated, truncated, _ = env.step(joint)
        if all(terminated) or all(truncated):
            env.reset()


serve({"compile_s": None, "bytes": None}, count, repeat)

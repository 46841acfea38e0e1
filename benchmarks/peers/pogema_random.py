"""POGEMA, 8x8 with 4 agents, one environment in Python. Arguments: batch (ignored), steps (16 times as many played)."""

import sys

import numpy as np
from pogema import GridConfig, pogema_v0
from protocol import serve

count = 16 * int(sys.argv[2])
env = pogema_v0(GridConfig(size=8, num_agents=4, density=0.15, seed=0, max_episode_steps=64, on_target="nothing"))
env.reset()
actions = np.random.default_rng(0).integers(0, 5, (count, 4)).tolist()


def repeat():
    for joint in actions:
        _, _, terminated, truncated, _ = env.step(joint)
        if all(terminated) or all(truncated):
            env.reset()


serve({"compile_s": None, "bytes": None}, count, repeat)

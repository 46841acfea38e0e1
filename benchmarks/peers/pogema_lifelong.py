"""POGEMA with ``on_target="restart"``: plays a map, starts, lists of goals and joint actions that it is sent."""

import warnings

import numpy as np
from pogema import GridConfig, pogema_v0
from protocol import serve_requests

warnings.simplefilter("ignore")  # It warns of each list that begins again.


def play(rows: list[str], starts: list, goals: list, actions: list) -> dict:
    """Return the goals that each agent reached, and the cells ``[row, column]`` of all after each step."""
    config = GridConfig(
        map="\n".join(rows),
        agents_xy=starts,
        targets_xy=goals,
        num_agents=len(starts),
        on_target="restart",
        collision_system="soft",
        max_episode_steps=len(actions) + 1,
        seed=0,
    )
    env = pogema_v0(config)
    env.reset()
    reached, cells = np.zeros(len(starts), int), []
    for joint in actions:
        reached += np.array(env.step(list(joint))[1], int)
        cells.append([list(map(int, cell)) for cell in env.unwrapped.grid.get_agents_xy(ignore_borders=True)])
    return {"reached": reached.tolist(), "cells": cells}


serve_requests(play)

"""Small lifelong boards, and the lakes that play them."""

import numpy as np

from jaxlake import Instance, Lake, distance_fields, from_text, lifelong, rewards
from jaxlake.levels import build
from jaxlake.types import ABSENT

BOARD = """
    a..B
    .##.
    b..A
    ...#
"""
LISTS = np.array([[11, 0, 13, 3], [3, 8, ABSENT, ABSENT]], np.int32)
SLOTS = 3
DRAWN = Lake(reward=rewards.reached, goals="drawn")
LISTED = Lake(reward=rewards.reached, goals="listed")


def board(tasks=LISTS):
    tasks = tasks if tasks is None else np.vstack([tasks, np.full_like(tasks[:1], ABSENT)])
    return lifelong.board(from_text(BOARD, max_agents=SLOTS), tasks)


def random_board(seed: int, size: int, agents: int, holes: int) -> Instance:
    """A board whose free cells are connected."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(size**2)
        free = order[holes:]
        instance = build(size, np.isin(np.arange(size**2), order[:holes]), free[:agents], free[-agents:])
        if (np.asarray(distance_fields(instance)) >= 0).sum() == agents * len(free):
            return instance

"""Lifelong boards: the source of their agents' next goals. Plays nothing: ``Lake(goals=...)`` does.

In lifelong play (RHCR, the League of Robot Runners, POGEMA's ``on_target="restart"``) an agent that reaches its goal
gets another one in the same step, and the measure is the throughput, goals reached a step.
"""

import zlib

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import levels
from jaxlake.record import Array
from jaxlake.types import ABSENT, Instance, LifelongInstance


def board(instance: Instance, tasks: Array | None = None, max_tasks: int | None = None) -> LifelongInstance:
    """Return a board with the goals that its agents get one after another; numpy arrays.

    It floods the board from each start, which compiles a program for each ``max_size`` and ``max_agents``.

    Args:
      instance: no batch axes, at most 181 x 181.
      tasks: int ``[max_agents, tasks]`` cells, the goals of each agent in their order, of which the first is its first
        goal; ``ABSENT`` pads a shorter list at its end. Rows of absent agents are not read. None: all cells that an
        agent can reach, for ``GoalRule.DRAWN``, and the goal of the instance is its first. ``GoalRule.LISTED`` visits
        these cells row by row, from that goal on.
      max_tasks: room for cells, so that boards with more and fewer of them share one compiled program. By default as
        many as the lists have, or all cells of the board.
    """
    levels.validate(instance if tasks is None else instance.replace(goals=instance.starts))
    reached = np.asarray(levels.distance_fields(instance.replace(goals=instance.starts))) != ABSENT
    agents, named = instance.max_agents, np.arange(instance.max_agents) < instance.num_agents
    goals = np.asarray(instance.goals)
    if tasks is None:
        _check(goals[:, None], reached, named[:, None])
        parts, part_of = np.unique(reached, axis=0, return_inverse=True)
        cells, sizes = np.nonzero(parts)[1], parts.sum(axis=1)
        place = np.where(named, (np.cumsum(reached, axis=1) - 1)[np.arange(agents), goals], 0)
        first, count = (np.cumsum(sizes) - sizes)[part_of.ravel()], sizes[part_of.ravel()]
        room = instance.max_size**2
    else:
        tasks = np.asarray(tasks)
        count = np.where(named, (tasks != ABSENT).sum(axis=1), 0)
        listed = np.arange(tasks.shape[1]) < count[:, None]
        _check(tasks, reached, listed)
        cells, first, goals = tasks[listed], np.cumsum(count) - count, np.where(named, tasks[:, 0], ABSENT)
        place, room = np.zeros(agents, int), len(cells)
    room = room if max_tasks is None else max_tasks
    content = np.concatenate([[instance.size], instance.holes, cells]).astype(np.int32)
    made = LifelongInstance(
        **{**vars(instance), "goals": goals.astype(np.int32)},
        tasks=np.pad(cells, (0, room - len(cells)), constant_values=ABSENT).astype(np.int32),
        first=np.where(named, first, 0).astype(np.int32),
        count=np.where(named, count, 0).astype(np.int32),
        place=place.astype(np.int32),
        board=np.asarray(0, np.int32),
        digest=np.asarray(zlib.crc32(content.tobytes()), np.uint32).view(np.int32),
    )
    levels.validate(made, lifelong=True)  # each agent has 2 to 65,536 goals
    return made


def _check(tasks: np.ndarray, reached: np.ndarray, listed: np.ndarray) -> None:
    """Raise ValueError for the first of the listed goals ``[max_agents, tasks]`` that its agent cannot reach."""
    on_board = (tasks >= 0) & (tasks < reached.shape[1])
    reachable = np.take_along_axis(reached, np.where(on_board, tasks, 0), axis=1) & on_board
    if (wrong := listed & ~reachable).any():
        agent, place = np.argwhere(wrong)[0]
        raise ValueError(f"goal {place} of agent {agent} must be a cell that it can reach from its start")


def next_goals(instance: LifelongInstance, arrived: Array, key: Array | None = None) -> LifelongInstance:
    """Return the board after a step, with other goals for the agents that ``arrived``, bool ``[max_agents]``.

    Args:
      key: draws the goals; without one each is the next of its list.
    """
    place, count = instance.place, instance.count
    if key is None:
        chosen = jnp.where(place + 1 < count, place + 1, 0)
    else:
        # The high word of bits * others, where a division would take a fifth of a step. All others are equally likely,
        # but for a bias below count / 2 ** 32. No product overflows up to MAX_GOALS.
        bits, others = _bits_of_agents(key, len(place)), (count - 1).astype(np.uint32)
        high = ((bits >> 16) * others + ((bits & 0xFFFF) * others >> 16)) >> 16
        chosen = high.astype(jnp.int32)
        chosen = jnp.where(chosen < place, chosen, chosen + 1)
    place = jnp.where(arrived, chosen, place)
    tasks, index = jnp.asarray(instance.tasks), (instance.first + place).astype(jnp.uint32)
    goals = tasks.at[(instance.board, index) if tasks.ndim == 2 else index].get(mode="clip")
    changed: LifelongInstance = instance.replace(place=place, goals=jnp.where(arrived, goals, instance.goals))
    return changed


def _bits_of_agents(key: Array, agents: int) -> jax.Array:
    """Return random bits, uint32 ``[agents]``, of one word mixed with each number by MurmurHash3's finalizer (Appleby).

    A step of 32x32 with 32 agents takes 1.24 times a classic one so, and 1.41 times with a word of JAX's an agent.
    """
    bits = jax.random.bits(key, (), np.uint32) + np.arange(agents, dtype=np.uint32) * np.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ bits >> shift) * np.uint32(factor)
    return bits ^ bits >> 16

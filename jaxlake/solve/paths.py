"""Shortest paths for single agents in space and time, under constraints: the low level of Conflict-Based Search.

Sets of cells are bitboards, ``[..., words, lanes]``; a lane is one agent of one instance. Knows neither the constraint
tree nor the meaning of the obstacles.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, Record, record
from jaxlake.solve.bitboard import NOWHERE, is_empty, is_single, lowest, offsets, one_hot, shifted
from jaxlake.solve.lanes import materialize

NARROW = 128
"""Flag of a cell of a path: every path of the same length is there at that time."""


@record
class Query(Record):
    """A question for one agent per lane; ``steps`` is the horizon.

    Attributes:
      start, goal: uint8 ``[lanes]`` cells.
      allowed: uint32 ``[steps + 1, words, lanes]``, where the agent may be at a time.
      occupied: uint32 ``[steps + 1, words, lanes]``, cells that would be a conflict.
      crossed: four of uint32 ``[steps, words, lanes]``, cells that it cannot leave UP, DOWN, LEFT or RIGHT at a time
        without a conflict. One array of all four would be copied for every step: 13 us against 4.
      park_from: int32 ``[lanes]``, the earliest last arrival.
      deadline: int32 ``[lanes]``, the latest; negative for a lane that asks nothing.
      may_wait: bool ``[]``, whether the agent may stay on a cell before its last arrival.
    """

    start: Array
    goal: Array
    allowed: Array
    occupied: Array
    crossed: tuple[Array, ...]
    park_from: Array
    deadline: Array
    may_wait: Array


@record
class Answer(Record):
    """The path found per lane.

    Attributes:
      path: uint8 ``[steps + 1, lanes]`` cells with the flag ``NARROW``; the goal from the arrival on.
      arrival: int32 ``[lanes]``, the last one.
      found: bool ``[lanes]``, there is a path by the deadline.
    """

    path: Array
    arrival: Array
    found: Array


def shortest_paths(query: Query, max_size: int, earliest: bool) -> Answer:
    """Paths that arrive first, or any that keep the deadline; one without a conflict where there is one.

    Three sweeps over time, each as long as the batch's latest arrival: forward the cells that can be reached, backward
    those of them that lead to the goal in time, and to it without a conflict, and forward along one path. To tell
    paths with one conflict or two from the others as well saves no node of the tree, and costs half as much again.

    Args:
      earliest: the paths must arrive as early as any.
    """
    steps, words = query.allowed.shape[0] - 1, query.allowed.shape[1]
    goal = one_hot(query.goal, words)
    may_stay = jnp.where(query.may_wait, jnp.uint32(0xFFFFFFFF), jnp.uint32(0))

    def resting(time: Array) -> tuple[jax.Array, jax.Array]:
        """Cells that may be left at a time, and cells that may be stayed on until the next."""
        parked = jnp.where(time >= query.park_from, goal, jnp.uint32(0))
        early = jnp.where(time == query.park_from - 1, goal, jnp.uint32(0))
        return ~parked, (may_stay & ~early) | parked

    def reach(reached: Array, time: Array) -> Array:
        # Agents that should be parked spread too: to mask before the shifts would be four times as slow, and the sweep
        # backward leaves them out.
        _, stay = resting(time)
        return (spread(reached, max_size) | (reached & stay)) & query.allowed[time + 1]

    def forward(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        time, reached, table, end, done = carry
        reached = materialize(time >= 0, reach, reached, time)
        time += 1
        table = jax.lax.dynamic_update_index_in_dim(table, reached, time, axis=0)
        arrives = ~is_empty(reached & goal) & (time >= query.park_from) & ~done
        arrives &= earliest | (time == query.deadline)
        return time, reached, table, jnp.where(arrives, time, end), done | arrives | (time >= query.deadline)

    reached = one_hot(query.start, words) & query.allowed[0]
    arrives = ~is_empty(reached & goal) & (query.park_from <= 0)
    arrives &= (query.deadline >= 0) & (earliest | (query.deadline == 0))
    table = jnp.zeros_like(query.allowed).at[0].set(reached)
    carry = (
        jnp.int32(0),
        reached,
        table,
        jnp.where(arrives, np.int32(0), np.int32(-1)),
        arrives | (query.deadline <= 0),
    )
    last, _, table, end, _ = jax.lax.while_loop(lambda carry: (carry[0] < steps) & ~jnp.all(carry[-1]), forward, carry)

    def lead(leading: Array, clean: Array, time: Array) -> tuple[jax.Array, jax.Array]:
        leave, stay = resting(time)
        crossed = [part[time] for part in query.crossed]
        leading = (spread(leading, max_size) & leave | (leading & stay)) & table[time]
        clean = (_spread_back(clean, crossed, max_size) & leave | (clean & stay)) & table[time]
        ends = time == end
        return jnp.where(ends, goal, leading), jnp.where(ends, goal, clean & ~query.occupied[time])

    def backward(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        time, leading, clean, tables, narrow = carry
        leading, clean = materialize(time >= 0, lead, leading, clean, time)
        narrow = jax.lax.dynamic_update_index_in_dim(narrow, is_single(leading), time, axis=0)
        tables = tuple(
            jax.lax.dynamic_update_index_in_dim(rows, row, time, axis=0)
            for rows, row in zip(tables, (leading, clean), strict=True)
        )
        return time - 1, leading, clean, tables, narrow

    leading = jnp.where(last == end, goal, jnp.uint32(0))
    rows = jax.lax.dynamic_update_index_in_dim(jnp.zeros_like(query.allowed), leading, last, axis=0)
    narrow = jnp.ones((steps + 1, goal.shape[-1]), bool)
    carry = (last - 1, leading, leading, (rows, rows), narrow)
    _, _, _, (leading, clean), narrow = jax.lax.while_loop(lambda carry: carry[0] >= 0, backward, carry)

    def options(here: Array, time: Array) -> tuple[Array, Array]:
        leave, stay = resting(time)
        moves = [shifted(here & leave, by) for by in offsets(max_size)]
        free = here & stay
        for move, crossed in zip(moves, query.crossed, strict=True):
            free |= jnp.where(is_empty(here & crossed[time]), move, jnp.uint32(0))
        every = moves[0] | moves[1] | moves[2] | moves[3] | (here & stay)
        return free & clean[time + 1], every & leading[time + 1]

    def choose(good: Array, other: Array, here: Array) -> tuple[jax.Array, jax.Array]:
        """Without a conflict before anything else, and moving before waiting."""
        choice = jnp.where(is_empty(good), other, good)
        moving = choice & ~here
        return lowest(jnp.where(is_empty(moving), choice, moving))

    def follow(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        time, here, path = carry
        good, other = materialize(time >= 0, options, here, time)
        following, cell = materialize(time >= 0, choose, good, other, here)
        here = jnp.where(time < end, following, goal)
        cell = jnp.where(time < end, cell, query.goal)
        return time + 1, here, jax.lax.dynamic_update_index_in_dim(path, cell, time + 1, axis=0)

    path = jnp.broadcast_to(query.goal, narrow.shape).at[0].set(query.start)
    _, _, path = jax.lax.while_loop(
        lambda carry: carry[0] < last, follow, (jnp.int32(0), one_hot(query.start, words), path)
    )
    times = jnp.arange(steps + 1, dtype=jnp.int32)[:, None]
    narrow |= times >= end
    away = (path != query.goal) & (times <= end)
    arrival = end if earliest else jnp.max(jnp.where(away, times + 1, 0), axis=0)
    return Answer(path=path | jnp.where(narrow, np.uint8(NARROW), np.uint8(0)), arrival=arrival, found=end >= 0)


def obstacles(cells: Array, words: int) -> jax.Array:
    """Return where any of the agents on uint8 ``[agents, steps, lanes]`` is, ``[steps, words, lanes]``."""
    union: jax.Array = functools.reduce(jnp.bitwise_or, one_hot(cells, words))
    return union


def swaps(cells: Array, max_size: int, words: int) -> tuple[jax.Array, ...]:
    """Cells that cannot be left UP, DOWN, LEFT or RIGHT without swapping, four of uint32 ``[steps, words, lanes]``.

    Args:
      cells: uint8 ``[agents, steps + 1, lanes]``, ``NOWHERE`` for an agent that does not count.
    """
    before, after = cells[:, :-1], cells[:, 1:]
    change = before.astype(jnp.int8) - after.astype(jnp.int8)
    return tuple(
        obstacles(jnp.where(change == offset, after, jnp.uint8(NOWHERE)), words) for offset in offsets(max_size)
    )


def spread(board: Array, max_size: int) -> Array:
    """Return the cells that the sets ``[..., words, lanes]`` can reach by a move, or could have come from."""
    up, down, left, right = (shifted(board, by) for by in offsets(max_size))
    return up | down | left | right


def _spread_back(board: Array, crossed: Sequence[Array], max_size: int) -> Array:
    """Return the cells from which a move without a crossing leads into the sets ``[..., words, lanes]``."""
    parts = [shifted(board, -by) & ~ban for by, ban in zip(offsets(max_size), crossed, strict=True)]
    return parts[0] | parts[1] | parts[2] | parts[3]

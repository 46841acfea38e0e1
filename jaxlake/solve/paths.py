"""Shortest paths for single agents in space and time, under constraints: the low level of Conflict-Based Search.

Arrays are lane-minor, ``[..., lanes]``: a lane is one agent of one instance, and shifting a board by a cell is then a
slice of long contiguous rows.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.types import ABSENT

ALL_MOVES = 0b11111
"""Every way to come to a cell; a single move is ``1 << move``."""

_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
_WAIT = 4

# A cell of the table holds ``conflicts << 3 | move``, so that one minimum carries both. The conflicts of one path, a
# vertex and a swap with 4 agents in each of at most 127 steps, stay below 1,024. int16 throughout: with int32 anywhere
# in the loop the whole of it vectorises half as wide.
_SHIFT = 3
_NEVER = np.int16(1024 << _SHIFT)
_ONE = np.int16(1 << _SHIFT)


@chex.dataclass(frozen=True)
class Query:
    """What is asked of one agent per lane.

    Attributes:
      start, goal: int32 ``[lanes]`` cells.
      others: int8 ``[steps + 1, agents, lanes]`` cells of the other agents, ``ABSENT`` for none.
      forbidden: uint8 ``[steps + 1, cells, lanes]``; bit ``m`` forbids entering the cell at that time by move ``m``.
      not_before: int32 ``[lanes]``, the earliest time at which the agent may stay on its goal for good.
      free_from: int32 ``[lanes]``, the time from which on nothing is forbidden.
      deadline: int32 ``[lanes]``, the latest arrival of interest; negative for a lane that asks nothing.
    """

    start: chex.Array
    goal: chex.Array
    others: chex.Array
    forbidden: chex.Array
    not_before: chex.Array
    free_from: chex.Array
    deadline: chex.Array


@chex.dataclass(frozen=True)
class Answer:
    """The path found per lane.

    Attributes:
      path: int8 ``[steps + 1, lanes]``, the goal from the arrival on.
      arrival: int32 ``[lanes]``, ``ABSENT`` if there is none by the deadline.
      possible: bool ``[lanes]``, an arrival after the deadline is not excluded.
    """

    path: chex.Array
    arrival: chex.Array
    possible: chex.Array


def shortest_paths(free: jax.Array, query: Query, may_wait: jax.Array) -> Answer:
    """The earliest arrivals, and among their paths one with the fewest conflicts with the other agents.

    Dynamic programming forward over time with one table row per step, then a scan backward over the moves chosen; both
    end with the slowest lane.

    Args:
      free: bool ``[max_size, max_size, lanes]``.
      query: what is asked.
      may_wait: bool ``[]``, whether an agent may stay on a cell before its arrival.
    """
    max_size, _, lanes = free.shape
    cells, horizon = max_size * max_size, query.forbidden.shape[0] - 1
    cell = jnp.arange(cells, dtype=jnp.int16).reshape(max_size, max_size, 1)
    lane = jnp.arange(lanes)
    offsets = jnp.array([row * max_size + column for row, column in _MOVES], jnp.int32)
    wait_penalty = jnp.where(may_wait, np.int16(0), _NEVER)

    def step(carry):
        time, row, table, arrival, reached, possible, done = carry
        here, there = (query.others[time + ahead].astype(jnp.int16) for ahead in (0, 1))
        banned = query.forbidden[time + 1].reshape(free.shape)
        conflicts = row & ~np.int16(_ONE - 1)
        best = None
        for move, (down, right) in enumerate(_MOVES):
            cost = _shifted(conflicts, down, right) + jnp.where(banned & np.uint8(1 << move), _NEVER, np.int16(move))
            if move == _WAIT:
                cost += wait_penalty
            else:
                swapped = jnp.where(here - there == down * max_size + right, here, np.int16(ABSENT))
                cost += _count(cell, swapped)
            best = cost if best is None else jnp.minimum(best, cost)
        row = jnp.where(free & (best < _NEVER), best + _count(cell, there), _NEVER)
        # Without the barrier the row is computed twice, for the table and for the next step: 11 ms against 6.
        row = jax.lax.optimization_barrier(row)
        table = jax.lax.dynamic_update_index_in_dim(table, row.reshape(cells, lanes), time + 1, axis=0)
        time += 1

        now_reached = _count_true(row < _NEVER)
        at_goal = row.reshape(cells, lanes)[query.goal, lane] < _NEVER
        arrives = ~done & at_goal & (time >= query.not_before)
        arrival = jnp.where(arrives, time, arrival)
        # Where nothing is forbidden any more and waiting is allowed, a set of cells that does not grow never will.
        stuck = (now_reached == 0) | (may_wait & (time > query.free_from) & (now_reached == reached))
        possible &= done | ~(arrives | stuck)
        done |= arrives | stuck | (time >= query.deadline)
        return time, row, table, arrival, now_reached, possible, done

    can_start = (cell == query.start) & free & (query.forbidden[0].reshape(free.shape) == 0)
    reached = _count_true(can_start)
    arrives = (reached > 0) & (query.start == query.goal) & (query.not_before <= 0) & (query.deadline >= 0)
    possible = (reached > 0) & ~arrives & (query.deadline >= 0)
    carry = (
        jnp.int32(0),
        jnp.where(can_start, np.int16(0), _NEVER),
        jnp.zeros((horizon + 1, cells, lanes), jnp.int16),
        jnp.where(arrives, 0, ABSENT),
        reached,
        possible,
        ~possible | (query.deadline == 0),
    )
    last, _, table, arrival, _, possible, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < horizon) & ~jnp.all(carry[-1]), step, carry
    )

    def back(carry):
        time, here, path = carry
        move = (table[time, here, lane] & (_ONE - 1)).astype(jnp.int32)
        here = jnp.where(time <= arrival, here - offsets[move], here)
        return time - 1, here, jax.lax.dynamic_update_index_in_dim(path, here.astype(jnp.int8), time - 1, axis=0)

    path = jnp.broadcast_to(query.goal.astype(jnp.int8), (horizon + 1, lanes))
    _, _, path = jax.lax.while_loop(lambda carry: carry[0] > 0, back, (last, query.goal, path))
    return Answer(path=path, arrival=arrival, possible=possible)


def move_between(before: jax.Array, after: jax.Array, max_size: int) -> jax.Array:
    """The move, int32, that leads from one cell to a neighbouring one or to itself."""
    return sum(
        jnp.where(after - before == row * max_size + column, move, 0) for move, (row, column) in enumerate(_MOVES)
    ).astype(jnp.int32)


def _shifted(board: jax.Array, down: int, right: int) -> jax.Array:
    """The board's value on the cell that a move comes from; ``_NEVER`` from off the board."""
    size = board.shape[0]
    padded = jnp.pad(board, ((1, 1), (1, 1), (0, 0)), constant_values=_NEVER)
    return padded[1 - down : 1 - down + size, 1 - right : 1 - right + size]


def _count(cell: jax.Array, at: jax.Array) -> jax.Array:
    """Conflicts on each cell, ``[max_size, max_size, lanes]``, with agents at ``[agents, lanes]``, in table units."""
    return sum(jnp.where(cell == at[agent], _ONE, np.int16(0)) for agent in range(at.shape[0]))


def _count_true(board: jax.Array) -> jax.Array:
    """Number of cells per lane, int32; unrolled, since a reduction over leading axes does not vectorise on a CPU."""
    size = board.shape[0]
    rows = sum(board[row].astype(jnp.int16) for row in range(size))
    return sum(rows[column] for column in range(size)).astype(jnp.int32)

"""The joint positions that two agents can reach, step by step, as bitboards; knows nothing of goals and costs.

A set of joint positions holds, for every cell of agent 0, a board of agent 1: one word per row, one bit per column.
Moving agent 1 shifts bits and rows, moving agent 0 shifts whole boards. Boards and rows have empty ones between and
around them, so that a move off the board falls into them and every shift is a plain slice: written with paddings and
gathers instead, a step takes 12 times as long on a CPU.

Arrays are lane-minor, ``[boards, rows, lanes]``; a lane is one instance.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, Record, record
from jaxlake.types import STEPS, Action


@record
class Rules(Record):
    """The joint positions and moves that there are.

    Attributes:
      mask: word ``[size * (size + 1), size, lanes]``, the joint positions that are allowed.
      wait: word ``[]``, all ones where an agent may wait, else 0.
    """

    mask: Array
    wait: Array


def word_type(size: int) -> np.dtype:
    """Return the narrowest word that holds a row of a board of side at most 16."""
    return np.dtype(np.uint8 if size <= 8 else np.uint16)


def rules(free: Array, may_wait: Array) -> Rules:
    """Return the rules of boards whose free cells are bool ``[size, size, lanes]``."""
    size, _, lanes = free.shape
    word = word_type(size)
    column = np.left_shift(1, np.arange(size)).astype(word)
    # Concatenated, both are kept; else each of them would be computed anew for each of the boards.
    rows = [sum(jnp.where(free[r, q], column[q], word.type(0)) for q in range(size)) for r in range(size)]
    rows = jnp.concatenate([jnp.asarray(row)[None] for row in rows])
    guard = jnp.zeros((1, lanes), word)
    present = [jnp.where(free[r], ~word.type(0), word.type(0)) for r in range(size)]
    present = jnp.concatenate([part for row in present for part in (row, guard)])
    # Both agents on one cell: board (r, q) of agent 0 and bit q of row r of agent 1.
    row, own = np.divmod(np.arange(size * (size + 1)), size + 1)
    together = np.where(row[:, None] == np.arange(size), np.append(column, word.type(0))[own][:, None], word.type(0))
    mask = present[:, None] & rows & ~together[:, :, None]
    return Rules(mask=mask, wait=jnp.where(may_wait, ~word.type(0), word.type(0)))


def empty(size: int, lanes: int) -> jax.Array:
    """Return the empty set, with the empty boards and rows around it."""
    return jnp.zeros((_boards(size), size + 2, lanes), word_type(size))


def single(cells: Array, size: int) -> jax.Array:
    """Return the set of one joint position, int32 ``[2, lanes]``."""
    at = _board_of(cells[0], size)
    row, column = jnp.divmod(cells[1], size)
    bit = jnp.left_shift(1, column).astype(word_type(size))
    lane = jnp.arange(cells.shape[1], dtype=jnp.int32)
    return empty(size, len(lane)).at[at, row + 1, lane].set(bit, mode="drop")


def step(now: Array, before: Array, after: Array, spread: Array, rules: Rules) -> tuple[jax.Array, jax.Array]:
    """Add to ``after`` what is reached in one step from ``now`` and is neither in ``now`` nor in ``before``.

    Joint moves can be undone, so a step from the positions at distance t leads to those at t - 1, t and t + 1; three
    sets, for the distances modulo 3, hold all that was reached and allow to walk back.

    Args:
      now, before, after: the sets for the distances t, t - 1 and t + 1.
      spread: scratch space, what ``scratch`` gave or ``step`` returned.

    Returns:
      The new ``after``, and the scratch space.
    """
    size, lanes = now.shape[1] - 2, now.shape[-1]
    word = now.dtype.type
    first, count = size + 2, size * (size + 1)
    own = slice(first, first + count)
    rows = now[own, 1:-1]
    moved = (rows & rules.wait) | (rows << word(1)) | (rows >> word(1)) | now[own, :-2] | now[own, 2:]
    # The update is the last operation of a kernel, which makes the compiler keep it and not compute it five times.
    spread = jax.lax.dynamic_update_slice(spread, moved & rules.mask, (first, 0, 0))

    # Where agent 1 enters the cell that agent 0 leaves, it must not come from where agent 0 goes. ``mask`` has
    # taken those moves out of ``spread``; here they come back, for each way by which agent 0 left.
    entered = [
        _entered(now, +1, avoid=(0, -1)) | _entered(now, -1, avoid=(0, 1)),
        _entered(now, -(size + 1), avoid=(1, 0)),
        _entered(now, +(size + 1), avoid=(-1, 0)),
    ]
    entered = jnp.concatenate(entered).reshape(3, count, 1, lanes)
    row = np.arange(count)[:, None] // (size + 1)
    into = [np.where(np.arange(size) == row + down, ~word(0), word(0))[:, :, None] for down in (0, -1, 1)]
    came = [spread[first + shift : first + shift + count] for shift in (1, -1, size + 1, -(size + 1))]
    reached = (spread[own] & rules.wait) | came[0] | came[1] | came[2] | came[3]
    reached |= (entered[0] & into[0]) | (entered[1] & into[1]) | (entered[2] & into[2])
    new = reached & rules.mask & ~rows & ~before[own, 1:-1]
    return jax.lax.dynamic_update_slice(after, after[own, 1:-1] | new, (first, 1, 0)), spread


def scratch(size: int, lanes: int) -> jax.Array:
    """Zeros for ``step`` to work in."""
    return jnp.zeros((_boards(size), size, lanes), word_type(size))


def views(sets: Sequence[jax.Array], cells: Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return from each of three sets where one agent is while the other one is on a given cell.

    Args:
      cells: int32 ``[2, lanes]``, the agents' cells of interest.

    Returns:
      word ``[3, size, lanes]``, the rows of agent 1 while agent 0 is on its cell; word
      ``[3, size, size + 1, lanes]``, not 0 where agent 0 is while agent 1 is on its cell; and int32 ``[lanes]``, a
      number that grows whenever the first set does.
    """
    # Every stage ends in a concatenation, which the compiler keeps, as it does not keep what goes into several slices.
    size, lanes, word = sets[0].shape[1] - 2, sets[0].shape[-1], sets[0].dtype.type
    across, count = size + 1, size * (size + 1)
    boards = [part[size + 2 : size + 2 + count, 1:-1] for part in sets]
    first = jnp.arange(count, dtype=jnp.int32)[:, None] == _board_of(cells[0], size) - (size + 2)
    first = jnp.where(first, ~word(0), word(0))[:, None]
    row, column = jnp.divmod(cells[1], size)
    bit = jnp.where(row == np.arange(size, dtype=np.int32)[:, None], jnp.left_shift(1, column), 0).astype(word)

    def some(parts: Sequence[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.bitwise_or, parts)

    def block(array: jax.Array, number: int) -> jax.Array:
        return array[number * across : (number + 1) * across]

    kept = jnp.concatenate([some([block(part & first, at) for at in range(size)]) for part in boards])
    kept = kept.reshape(3, across, size, lanes)
    rows = jnp.concatenate([some([kept[number, at] for at in range(across)]) for number in range(3)])

    # Halves of words, which sum up to less than a word holds: at most 8 rows of twice 15, or 16 of twice 255.
    half = word_type(size).itemsize * 4
    words = [part & word((1 << half) - 1) for part in (boards[0], boards[0] >> word(half))]
    weight = sum(part[:, at] for part in words for at in range(size))
    hits = [some([part[:, at] & bit[at] for at in range(size)]) for part in boards]
    hits = jnp.concatenate([*hits, weight]).reshape(4, count, lanes)
    weight = jnp.sum(sum(block(hits[3], at).astype(jnp.int32) for at in range(size)), axis=0, dtype=jnp.int32)
    return rows.reshape(3, size, lanes), hits[:3].reshape(3, size, across, lanes), weight


def predecessor(before: Array, cells: Array, may_wait: Array) -> jax.Array:
    """Return a joint position, int32 ``[2, lanes]``, in ``before`` from which a step leads to the given one.

    There must be one, else the result means nothing. Among several, the first in the order of ``STEPS``, agent 0's
    before agent 1's.
    """
    size, lanes = before.shape[1] - 2, cells.shape[1]
    (row_0, column_0), (row_1, column_1) = jnp.divmod(cells[0], size), jnp.divmod(cells[1], size)
    down, right = np.array(STEPS, np.int32).T[:, :, None]
    # The five boards of agent 0, and in each the three rows that agent 1 can come from; concatenated, they are looked
    # up once and not for each of the 25 moves.
    boards = (row_0 - down) * (size + 1) + column_0 - right + size + 2
    at = (boards * (size + 2) + row_1) * lanes + jnp.arange(lanes, dtype=jnp.int32)
    words = jnp.ravel(before)
    rows = jnp.concatenate([words.at[at + near * lanes].get(mode="promise_in_bounds") for near in range(3)])
    rows = rows.reshape(3, len(STEPS), lanes).astype(jnp.int32)

    source = cells[0] - down * size - right
    best = jnp.full((len(STEPS), lanes), len(STEPS) ** 2 - 1, jnp.int32)
    for move, (down_1, right_1) in enumerate(STEPS):
        column = column_1 - right_1
        possible = (column >= 0) & (rows[1 - down_1] >> jnp.maximum(column, 0) & 1 == 1)
        possible &= (source != cells[1]) | (cells[1] - down_1 * size - right_1 != cells[0])
        possible &= may_wait | ((np.arange(len(STEPS)) != Action.WAIT) & (move != Action.WAIT))[:, None]
        number = np.arange(len(STEPS), dtype=np.int32)[:, None] * len(STEPS) + move
        best = jnp.where(possible, jnp.minimum(best, number), best)
    best = functools.reduce(jnp.minimum, [best[move] for move in range(len(STEPS))])
    steps = [np.int32(down_1 * size + right_1) for down_1, right_1 in STEPS]
    first, second = (
        sum(jnp.where(part == move, step, np.int32(0)) for move, step in enumerate(steps))
        for part in (best // len(STEPS), best % len(STEPS))
    )
    return jnp.asarray(cells - jnp.stack([first, second]))


def _boards(size: int) -> int:
    return size * (size + 1) + 2 * (size + 2) + 1


def _board_of(cell: Array, size: int) -> Array:
    return cell // size * (size + 1) + cell % size + size + 2


def _entered(now: Array, shift: int, avoid: tuple[int, int]) -> jax.Array:
    """Return the bit of agent 0's cell where agent 1 can enter it from a neighbour other than ``avoid``.

    word ``[size, size + 1, lanes]``; what stands at a cell belongs to agent 0 at that cell plus ``shift``.
    """
    size, lanes = now.shape[1] - 2, now.shape[-1]
    word = now.dtype.type
    per_row = (size + 1) * (size + 2)
    flat = now.reshape(-1, lanes)

    def diagonal(near: int) -> Array:
        # From one row of agent 0's cells to the next, the row of agent 1 moves on by one too.
        rows_on = {1: 0, -1: 0, size + 1: 1, -(size + 1): -1}[shift]
        start = (size + 2 + shift) * (size + 2) + rows_on + 1 + near
        return flat[start : start + size * (per_row + 1)].reshape(size, per_row + 1, lanes)[:, : per_row : size + 2]

    same = diagonal(0)
    sources = {(0, -1): same << word(1), (0, 1): same >> word(1), (-1, 0): diagonal(-1), (1, 0): diagonal(1)}
    column = np.arange(size + 1) + {1: 1, -1: -1}.get(shift, 0)
    bit = np.where((column >= 0) & (column < size), np.left_shift(1, np.maximum(column, 0)), 0)
    bit = bit.astype(now.dtype)[:, None]
    some = [source for offset, source in sources.items() if offset != avoid]
    entered: jax.Array = (some[0] | some[1] | some[2]) & bit
    return entered

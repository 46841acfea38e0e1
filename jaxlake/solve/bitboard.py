"""Sets of cells as bits: a board in a few uint32 words per lane, on which all moves of a set are shifts. No search.

A cell of a bitboard is ``row * (max_size + 1) + column``: the guard column is never free, so what a shift carries over
the end of a row disappears with the next mask. Arrays are ``[..., words, lanes]``, so that vectors run over lanes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array

NOWHERE = 127
"""A cell that is on no board, in uint8; 10x10 boards end at 108."""


def num_words(max_size: int) -> int:
    """uint32 words that hold a board with its guard column."""
    return -(-max_size * (max_size + 1) // 32)


def offsets(max_size: int) -> tuple[int, ...]:
    """Return what UP, DOWN, LEFT and RIGHT add to a cell."""
    return (-(max_size + 1), max_size + 1, -1, 1)


def guarded(cells: Array, max_size: int) -> jax.Array:
    """Cells ``row * max_size + column`` as cells of a bitboard, uint8; negative ones become ``NOWHERE``."""
    return jnp.where(cells < 0, NOWHERE, cells + cells // max_size).astype(jnp.uint8)


def unguarded(cells: np.ndarray, max_size: int) -> np.ndarray:
    """Invert ``guarded`` for cells on the board, int32, in numpy."""
    cells = cells.astype(np.int32)
    unpadded: np.ndarray = cells - cells // (max_size + 1)
    return unpadded


def pack(board: Array) -> jax.Array:
    """Pack bool ``[max_size, max_size, lanes]`` into uint32 ``[words, lanes]``."""
    max_size, _, lanes = board.shape
    bits = jnp.pad(board, ((0, 0), (0, 1), (0, 0))).reshape(-1, lanes)
    words = num_words(max_size)
    bits = jnp.pad(bits, ((0, words * 32 - bits.shape[0]), (0, 0))).reshape(words, 32, lanes)
    return jnp.sum(bits.astype(jnp.uint32) << np.arange(32, dtype=np.uint32)[:, None], axis=1, dtype=jnp.uint32)


def one_hot(cells: Array, words: int) -> jax.Array:
    """Return the sets uint32 ``[..., words, lanes]`` of single cells uint8 ``[..., lanes]``; empty for ``NOWHERE``."""
    cells = cells.astype(jnp.uint32)[..., None, :]
    word = jnp.arange(words, dtype=jnp.uint32)[:, None]
    here = (cells >> 5 == word) & (cells != NOWHERE)
    sets: jax.Array = jnp.where(here, jnp.uint32(1) << (cells & 31), jnp.uint32(0))
    return sets


def shifted(board: Array, by: int) -> Array:
    """Move every cell of the sets ``[..., words, lanes]`` by an offset of less than 32."""
    ahead = abs(by)
    padding = [(0, 0, 0)] * board.ndim
    padding[-2] = (1, -1, 0) if by > 0 else (-1, 1, 0)
    carry = jax.lax.pad(board, jnp.uint32(0), padding)
    if by > 0:
        return (board << ahead) | (carry >> (32 - ahead))
    return (board >> ahead) | (carry << (32 - ahead))


def is_empty(board: Array) -> jax.Array:
    """Return whether sets are empty, bool ``[..., lanes]``."""
    # Unrolled, since a reduction over a leading axis does not vectorise on a CPU.
    return functools.reduce(jnp.bitwise_or, jnp.unstack(board, axis=-2)) == 0


def is_single(board: Array) -> jax.Array:
    """Return whether sets have exactly one cell, bool ``[..., lanes]``."""
    words = [board[..., word, :] for word in range(board.shape[-2])]
    several, some = jnp.bool_(False), jnp.bool_(False)
    for word in words:
        here = word != 0
        several = several | (some & here) | (word & (word - 1) != 0)
        some = some | here
    single: jax.Array = some & ~several
    return single


def lowest(board: Array) -> tuple[jax.Array, jax.Array]:
    """Return the first cell of each set, as a set and as uint8 ``[..., lanes]``, ``NOWHERE`` if empty."""
    words = board.shape[-2]
    bits, cell, found = [], jnp.uint32(NOWHERE), jnp.bool_(False)
    for word in range(words):
        here = board[..., word, :]
        bit = jnp.where(found, jnp.uint32(0), here & (~here + 1))
        cell = jnp.where(bit != 0, 32 * word + jax.lax.population_count(bit - 1), cell)
        found = found | (here != 0)
        bits.append(bit)
    return jnp.stack(bits, axis=-2), cell.astype(jnp.uint8)

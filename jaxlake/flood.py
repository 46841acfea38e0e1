"""Flood fill on whole boards at once: the cells that others can reach, and in how many steps. Chooses nothing.

A board is rows of uint32 words, bit ``column % 32`` of word ``column // 32``, so that a step of 32 cells is a dozen
operations. Distances cost one more: step t of the flood adds the reached cells, modulo 2, to the plane that the t-th
number of the Gray code turns over, and the planes of a cell are then the Gray code of its distance.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array
from jaxlake.types import ABSENT, Instance

_WORD = 32
_PLANES = 15  # Distances below 2 ** 15 fit int16.
LARGEST_SIDE = 181  # Larger boards may have longer ones.
_STEPS = 8  # Between two looks whether anything changed, which costs as much as a step.
TOGETHER = 32
"""Boards in one flood: those of a large batch do not fit a processor's cache."""


class Flood(NamedTuple):
    """The cells that agents reach.

    Attributes:
      reached: uint32 ``[boards, rows, words, agents]``, sets of cells.
      planes: uint32 ``[planes, boards, rows, words, agents]``, Gray code of the steps to each reached cell, XOR `last`.
      last: uint32 ``[]``, the Gray code of the number of steps that were made.
    """

    reached: jax.Array
    planes: jax.Array
    last: jax.Array


def free_cells(instances: Instance) -> jax.Array:
    """Return the cells without hole, bool ``[boards, rows, columns]``, of instances ``[boards]``."""
    side = instances.max_size
    inside = jnp.arange(side, dtype=jnp.int32) < jnp.asarray(instances.size)[:, None]
    return ~jnp.asarray(instances.holes).reshape(-1, side, side) & inside[:, :, None] & inside[:, None, :]


def pack(cells: Array) -> jax.Array:
    """Pack bool ``[..., columns]`` into uint32 ``[..., words]``."""
    padding = [(0, 0)] * (cells.ndim - 1) + [(0, -cells.shape[-1] % _WORD)]
    bits = jnp.pad(cells, padding).reshape(*cells.shape[:-1], -1, _WORD).astype(jnp.uint32)
    return jnp.sum(bits << jnp.arange(_WORD, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


def flood(free: Array, starts: Array) -> Flood:
    """Fill the boards from each agent's cell.

    Args:
      free: uint32 ``[boards, rows, words]``, the cells that can be entered.
      starts: int32 ``[boards, agents]`` cells ``row * rows + column``, ``ABSENT`` for none.
    """
    boards, rows, words = free.shape
    walls = free[..., None]
    row, word, bit = _place(starts, rows)
    here = (jnp.arange(rows)[:, None, None] == row[:, None, None]) & (jnp.arange(words)[:, None] == word[:, None, None])
    reached = jnp.where(here & (starts >= 0)[:, None, None], jnp.uint32(1) << bit[:, None, None], jnp.uint32(0)) & walls
    planes = min(max((rows * rows).bit_length(), 4), _PLANES)

    def step(_: int, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        reached, parity, time = state
        turned = jax.lax.population_count((time & -time) - 1)  # the number of zeros at the end of time
        # A scatter, which ``at`` is, takes ten times as long.
        plane = jax.lax.dynamic_index_in_dim(parity, turned, keepdims=False) ^ reached
        parity = jax.lax.dynamic_update_index_in_dim(parity, plane, turned, 0)
        near = reached << 1 | reached >> 1 | _shifted(reached, 1, 1) | _shifted(reached, 1, -1)
        if words > 1:
            near |= _shifted(reached, 2, 1) >> (_WORD - 1) | _shifted(reached, 2, -1) << (_WORD - 1)
        return (reached | near) & walls, parity, time + 1

    def grow(state: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        reached, parity, time, _ = state
        grown, parity, time = jax.lax.fori_loop(0, _STEPS, step, (reached, parity, time))
        return grown, parity, time, jnp.any(grown != reached) & (time < (1 << planes) - _STEPS)

    parity = jnp.zeros((planes, *reached.shape), jnp.uint32)
    begin = (reached, parity, jnp.int32(1), jnp.bool_(True))
    reached, parity, time, _ = jax.lax.while_loop(lambda state: state[3], grow, begin)
    last = (time - 1).astype(jnp.uint32)
    return Flood(reached, parity, last ^ (last >> 1))


def steps_to(filled: Flood, cells: Array) -> jax.Array:
    """Return each agent's steps to a cell, int32 ``[boards, agents]``, ``ABSENT`` if it is not reached or absent."""
    boards, rows, _, agents = filled.reached.shape
    row, word, bit = _place(cells, rows)
    board, agent = jnp.arange(boards)[:, None], jnp.arange(agents)
    reached = (filled.reached[board, row, word, agent] >> bit) & 1
    gray = (filled.planes[:, board, row, word, agent] >> bit) & 1
    return jnp.where((reached == 1) & (cells >= 0), _decoded(gray, filled.last), ABSENT)


@jax.jit
def shortest_paths(instances: Instance) -> jax.Array:
    """Return each agent's steps to its goal with nobody around, int32 ``[boards, max_agents]``; also under ``jit``.

    ``ABSENT`` for absent agents and those that cannot reach their goals. Boards ``[boards]`` are at most 181 x 181.
    """
    count, agents = instances.starts.shape
    together = min(TOGETHER, count)
    index = jnp.minimum(jnp.arange(-(-count // together) * together), count - 1).reshape(-1, together)
    arrays = (pack(free_cells(instances)), jnp.asarray(instances.starts), jnp.asarray(instances.goals))
    parts = jax.tree.map(lambda array: array[index], arrays)
    return jax.lax.map(lambda part: steps_to(flood(*part[:2]), part[2]), parts).reshape(-1, agents)[:count]


@jax.jit
def steps_to_goals(instances: Instance) -> jax.Array:
    """Return the fields of ``levels.distance_fields`` of instances ``[boards]``."""
    side = instances.max_size
    filled = flood(pack(free_cells(instances)), jnp.asarray(instances.goals))
    bit = jnp.arange(_WORD, dtype=jnp.uint32)
    steps = _decoded((filled.planes[..., None] >> bit) & 1, filled.last).astype(jnp.int16)
    steps = jnp.where((filled.reached[..., None] >> bit) & 1, steps, np.int16(ABSENT))
    boards, rows, words, agents, _ = steps.shape
    fields = steps.transpose(0, 3, 1, 2, 4).reshape(boards, agents, rows, words * _WORD)
    return fields[..., :side].reshape(boards, agents, rows * side)


def _decoded(gray: Array, last: Array) -> jax.Array:
    """The numbers int32 ``[...]`` whose Gray code is in planes of bits ``[planes, ...]``, XOR that of `last`."""
    number = functools.reduce(jnp.bitwise_or, (plane << index for index, plane in enumerate(gray))) ^ last
    for shift in (1, 2, 4, 8):
        number ^= number >> shift
    return number.astype(jnp.int32)


def _place(cells: Array, rows: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Row, word and bit of cells; of any cell for absent ones."""
    row, column = jnp.divmod(jnp.maximum(cells, 0), rows)
    return row, column // _WORD, (column % _WORD).astype(jnp.uint32)


def _shifted(cells: Array, axis: int, by: int) -> jax.Array:
    """Move sets along an axis by one."""
    padding = [(0, 0, 0)] * cells.ndim
    padding[axis] = (by, -by, 0)
    return jax.lax.pad(cells, jnp.uint32(0), padding)

"""Flood fill on whole boards at once: the cells that others can reach, and in how many steps. Chooses nothing.

A board is rows of uint32 words, bit ``column % 32`` of word ``column // 32``, so that a step of 32 cells is a dozen
operations.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, vary_alike
from jaxlake.types import ABSENT, Instance

_WORD = 32
_PLANES = 15  # Distances below 2 ** 15 fit int16.
LARGEST_SIDE = 181  # Larger boards may have longer ones.
_STEPS = 8  # Between two looks whether anything changed, which costs as much as a step.
TOGETHER = 32
"""Boards in one flood: those of a large batch do not fit a processor's cache."""


def free_cells(instances: Instance) -> jax.Array:
    """Return the cells without hole, bool ``[boards, rows, columns]``, of instances ``[boards]``."""
    side = instances.max_size
    inside = jnp.arange(side, dtype=jnp.int32)[None] < jnp.asarray(instances.size)[:, None]
    return ~jnp.asarray(instances.holes).reshape(-1, side, side) & inside[:, :, None] & inside[:, None, :]


def pack(cells: Array) -> jax.Array:
    """Pack bool ``[..., columns]`` into uint32 ``[..., words]``."""
    padding = [(0, 0)] * (cells.ndim - 1) + [(0, -cells.shape[-1] % _WORD)]
    bits = jnp.pad(cells, padding).reshape(*cells.shape[:-1], -1, _WORD).astype(jnp.uint32)
    place = jnp.arange(_WORD, dtype=jnp.uint32).reshape(*[1] * cells.ndim, _WORD)
    return jnp.sum(bits << place, axis=-1, dtype=jnp.uint32)


def reach(free: Array, starts: Array) -> jax.Array:
    """Return the cells that each agent reaches, uint32 ``[boards, rows, words, agents]``.

    Args:
      free: uint32 ``[boards, rows, words]``, the cells that can be entered.
      starts: int32 ``[boards, agents]`` cells ``row * rows + column``, ``ABSENT`` for none.
    """
    return _flood(free, starts, lambda reached, state, time: state, ())[0]


def steps(free: Array, starts: Array, goals: Array) -> jax.Array:
    """Return each agent's steps to its goal, int32 ``[boards, agents]``, ``ABSENT`` if it is not reached or absent."""
    row, word, bit = _place(goals, free.shape[1])
    board, agent = jnp.arange(len(goals))[:, None], jnp.arange(goals.shape[1])

    def there(reached: jax.Array) -> jax.Array:
        return (reached[board, row, word, agent] >> bit & 1).astype(jnp.int32)

    def count(reached: jax.Array, before: jax.Array, time: jax.Array) -> jax.Array:
        return before + 1 - there(reached)

    reached, before, _ = _flood(free, starts, count, jnp.zeros_like(goals, jnp.int32))
    steps_before: jax.Array = jnp.where((there(reached) == 1) & (goals >= 0), before, ABSENT)
    return steps_before


@jax.jit
def shortest_paths(instances: Instance) -> jax.Array:
    """Return each agent's steps to its goal without other agents, int32 ``[boards, max_agents]``; also under ``jit``.

    ``ABSENT`` for absent agents and those that cannot reach their goals. Boards ``[boards]`` are at most 181 x 181.
    """
    count, agents = instances.starts.shape
    together = min(TOGETHER, count)
    index = jnp.minimum(jnp.arange(-(-count // together) * together), count - 1).reshape(-1, together)
    arrays = (pack(free_cells(instances)), jnp.asarray(instances.starts), jnp.asarray(instances.goals))
    parts = jax.tree.map(lambda array: array[index], arrays)
    distances: jax.Array = jax.lax.map(lambda part: steps(*part), parts).reshape(-1, agents)[:count]
    return distances


@jax.jit
def steps_to_goals(instances: Instance) -> jax.Array:
    """Return the fields of ``levels.distance_fields`` of instances ``[boards]``.

    Step t of the flood adds the reached cells, modulo 2, to the plane that the t-th number of the Gray code turns over.
    So the planes of a cell are the Gray code of its distance, XOR that of the number of steps that were made.
    """
    side = instances.max_size
    free = pack(free_cells(instances))

    def turn(reached: jax.Array, parity: jax.Array, time: jax.Array) -> jax.Array:
        turned = jax.lax.population_count((time & -time) - 1)  # the number of zeros at the end of time
        # A scatter, which ``at`` is, takes ten times as long.
        plane = jax.lax.dynamic_index_in_dim(parity, turned, keepdims=False) ^ reached
        return jax.lax.dynamic_update_index_in_dim(parity, plane, turned, 0)

    planes = min((side * side + 2 * _STEPS).bit_length(), _PLANES)  # the last change is noticed within two looks
    parity = jnp.zeros((planes, *free.shape, instances.goals.shape[1]), jnp.uint32)
    reached, parity, time = _flood(free, jnp.asarray(instances.goals), turn, parity)
    bit = jnp.arange(_WORD, dtype=jnp.uint32).reshape(1, 1, 1, 1, -1)
    last = (time - 1).astype(jnp.uint32)
    number = functools.reduce(
        jnp.bitwise_or, (((plane[..., None] >> bit) & 1) << index for index, plane in enumerate(parity))
    )
    number ^= last ^ (last >> 1)
    for shift in (1, 2, 4, 8):
        number ^= number >> shift
    fields = jnp.where((reached[..., None] >> bit) & 1, number.astype(jnp.int16), np.int16(ABSENT))
    boards, rows, words, agents, _ = fields.shape
    fields = fields.transpose(0, 3, 1, 2, 4).reshape(boards, agents, rows, words * _WORD)
    distances: jax.Array = fields[..., :side].reshape(boards, agents, rows * side)
    return distances


def _flood(
    free: Array, starts: Array, watch: Callable[[jax.Array, Any, jax.Array], Any], state: Any
) -> tuple[jax.Array, Any, jax.Array]:
    """Fill the boards from each agent's cell until nothing changes.

    Args:
      watch: ``(reached, state, time)`` before each step, the first of which is number 1; returns the next state.

    Returns:
      What is reached, the last state and the number of the next step.
    """
    rows, words = free.shape[1:]
    walls = jnp.asarray(free)[..., None]
    row, word, bit = _place(starts, rows)
    each_row, each_word = (np.arange(count, dtype=np.int32)[:, None] for count in (rows, words))
    here = (each_row[None, :, None] == row[:, None, None]) & (each_word[None, None] == word[:, None, None])
    first = jnp.where(here & (starts >= 0)[:, None, None], jnp.uint32(1) << bit[:, None, None], jnp.uint32(0)) & walls

    def step(_: int, carry: tuple[jax.Array, Any, jax.Array]) -> tuple[jax.Array, Any, jax.Array]:
        reached, state, time = carry
        near = reached << 1 | reached >> 1 | _shifted(reached, 1, 1) | _shifted(reached, 1, -1)
        if words > 1:
            near |= _shifted(reached, 2, 1) >> (_WORD - 1) | _shifted(reached, 2, -1) << (_WORD - 1)
        return (reached | near) & walls, watch(reached, state, time), time + 1

    def grow(carry: tuple[jax.Array, Any, jax.Array, Any]) -> tuple[jax.Array, Any, jax.Array, Any]:
        grown, state, time = jax.lax.fori_loop(0, _STEPS, step, carry[:3])
        return grown, state, time, jnp.any(grown != carry[0]) & (time < (1 << _PLANES) - _STEPS)

    begin = vary_alike((first, state, jnp.int32(1), jnp.bool_(True)))
    flooded: tuple[jax.Array, Any, jax.Array] = jax.lax.while_loop(lambda carry: carry[3], grow, begin)[:3]
    return flooded


def _place(cells: Array, rows: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Row, word and bit of cells; of any cell for absent ones."""
    row, column = jnp.divmod(jnp.maximum(cells, 0), rows)
    return row, column // _WORD, (column % _WORD).astype(jnp.uint32)


def _shifted(cells: Array, axis: int, by: int) -> jax.Array:
    """Move sets along an axis by one."""
    padding = [(0, 0, 0)] * cells.ndim
    padding[axis] = (by, -by, 0)
    return jax.lax.pad(cells, jnp.uint32(0), padding)

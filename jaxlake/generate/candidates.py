"""Random boards by number, and what tells two boards apart; neither solves nor chooses any."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Objective

BLOCK = 128
"""Candidates are drawn in whole blocks, so that one compiled program serves every number of them."""

_CELL_BITS = 7


class Shape(NamedTuple):
    """The properties that all boards of a search have in common; ``holes`` is their number."""

    size: int
    num_agents: int
    holes: int
    max_size: int
    max_agents: int
    max_steps: int = MAX_STEPS
    objective: Objective = Objective.SUM_OF_COSTS


def draw(key: Array, first: int, count: int, shape: Shape) -> Instance:
    """Candidates number ``first`` to ``first + count - 1`` in numpy; each depends on key, number and shape alone.

    Args:
      key: a key of its own for each size and number of holes.
      first, count: multiples of ``BLOCK``.
      shape: the boards' size, agents and holes; starts, goals and holes are all on different cells.
    """
    blocks = [
        _draw_block(key, number, shape.size, shape.num_agents, shape.holes, shape.max_size, shape.max_agents)
        for number in range(first, first + count, BLOCK)
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)


def fingerprints(instances: Instance) -> list[bytes]:
    """Equal for equal instances, however they are padded, and for no others.

    Raises:
      ValueError: if a board is larger than ``MAX_SIZE`` or has more agents than ``MAX_AGENTS``.
    """
    batch, max_size = len(instances.size), instances.max_size
    size, num_agents = (int(np.max(numbers, initial=0)) for numbers in (instances.size, instances.num_agents))
    if size > MAX_SIZE or num_agents > MAX_AGENTS:
        raise ValueError(f"size {size} with {num_agents} agents: they must be at most {MAX_SIZE} and {MAX_AGENTS}")
    holes = np.zeros((batch, MAX_SIZE, MAX_SIZE), bool)
    on_board = np.asarray(instances.holes).reshape(batch, max_size, max_size)[:, :size, :size]
    holes[:, :size, :size] = on_board
    ends = np.full((batch, 2, MAX_AGENTS), ABSENT, np.int8)
    for slot, cells in enumerate((instances.starts, instances.goals)):
        cells = np.asarray(cells)[:, :num_agents]
        row, column = np.divmod(cells, max_size)
        ends[:, slot, :num_agents] = np.where(cells == ABSENT, ABSENT, row * MAX_SIZE + column)
    head = np.asarray(instances.size).astype(np.uint8)[:, None]
    packed = np.packbits(holes.reshape(batch, -1), axis=1)
    rows = np.concatenate([head, packed, ends.reshape(batch, -1).view(np.uint8)], axis=1)
    return [row.tobytes() for row in rows]


@functools.partial(jax.jit, static_argnames=("max_size", "max_agents"))
def _draw_block(
    key: Array, first: int, size: int, num_agents: int, holes: int, max_size: int, max_agents: int
) -> Instance:
    """``BLOCK`` boards: a random order of a board's cells gives its starts, then its goals, then its holes."""
    cells = max_size * max_size
    cell = jnp.arange(cells, dtype=jnp.uint32)
    on_board = (cell // max_size < size) & (cell % max_size < size)

    def random_bits(number: Array) -> jax.Array:
        return jax.random.bits(jax.random.fold_in(key, number), (cells,), jnp.uint32)

    # The cell rides in the low bits of its own rank: sorting one array is 8 times as fast as two argsorts.
    bits = jax.vmap(random_bits)(first + jnp.arange(BLOCK, dtype=jnp.int32)) >> (_CELL_BITS + 1) << _CELL_BITS
    rank = jnp.where(on_board, bits, jnp.uint32(1 << 31)) | cell
    in_order = jnp.sort(rank, axis=1)
    last_goal, last_hole = (in_order[:, 2 * num_agents - 1 + more, None] for more in (0, holes))
    order = (in_order % (1 << _CELL_BITS)).astype(jnp.int32)
    slot = jnp.arange(max_agents, dtype=jnp.int32)
    return Instance(
        size=jnp.full(BLOCK, size, jnp.int32),
        num_agents=jnp.full(BLOCK, num_agents, jnp.int32),
        holes=(rank > last_goal) & (rank <= last_hole),
        starts=jnp.where(slot < num_agents, order[:, :max_agents], ABSENT),
        goals=jnp.where(slot < num_agents, order[:, num_agents + slot], ABSENT),
    )

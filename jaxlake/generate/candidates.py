"""Random boards by number, and what tells two boards apart; neither solves nor chooses any."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.fixed_sets import SETS, load
from jaxlake.generate.families import Numbers, draw_numbers, lay_out
from jaxlake.kinds import Family, Kind
from jaxlake.record import Array
from jaxlake.types import ABSENT, MAX_STEPS, Instance, Objective

BLOCK = 128
"""Candidates are drawn in whole blocks, so that one compiled program serves every number of them."""

_CELL_BITS = 7


class Shape(NamedTuple):
    """The properties that all boards of a search have in common; `density` is a configuration's `hole`."""

    kind: Kind
    density: float
    max_size: int
    max_agents: int
    max_steps: int = MAX_STEPS
    objective: Objective = Objective.SUM_OF_COSTS

    @property
    def holes(self) -> int:
        """Holes of a random board; the density is of the cells that are neither start nor goal."""
        return math.floor(self.density * (self.kind.size**2 - 2 * self.kind.num_agents) + 1e-6)


def draw(key: Array, first: int, count: int, shape: Shape) -> Instance:
    """Candidates number ``first`` to ``first + count - 1`` in numpy; each depends on key, number and shape alone.

    Args:
      key: a key of its own for each kind and density.
      first, count: multiples of ``BLOCK``.
      shape: the boards' kind and density; on random ones starts, goals and holes are all on different cells.
    """
    kind, padded = shape.kind, (shape.max_size, shape.max_agents)
    if kind.family is Family.RANDOM:
        draw_block = functools.partial(_draw_block, key, holes=shape.holes)
    else:
        draw_block = functools.partial(draw_family_block, key, family=kind.family, density=shape.density)
    blocks = [
        draw_block(first=number, size=kind.size, num_agents=kind.num_agents, max_size=padded[0], max_agents=padded[1])
        for number in range(first, first + count, BLOCK)
    ]
    drawn: Instance = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
    return drawn


def draw_family_block(
    key: Array, first: int, family: Family, size: int, num_agents: int, density: float, max_size: int, max_agents: int
) -> Instance:
    """Draw ``BLOCK`` boards of a family other than `random`, each from a key of its own, which may have no plan."""
    numbers = _draw_numbers(key, first, max_size)
    drawn: Instance = _lay_out(
        family, numbers, jnp.int32(size), jnp.int32(num_agents), jnp.float32(density), max_agents
    )
    return drawn


def fingerprints(instances: Instance) -> list[bytes]:
    """Return bytes that are equal for equal instances, however padded, and for no others."""
    count, side = np.asarray(instances.num_agents), instances.max_size
    row, column = np.divmod(np.arange(side * side), side)
    # Cells in the order of the squares around (0,0): a cell has the same number on padded boards of any side.
    ring = np.maximum(row, column)
    number = (ring * ring + ring + row - column).astype(np.uint32)
    holes = np.packbits(np.asarray(instances.holes)[:, np.argsort(number)], axis=1)
    ends = number[np.stack([instances.starts, instances.goals], axis=-1)]
    head = np.stack([instances.size, count], axis=-1).astype(np.uint32)
    return [
        head[index].tobytes() + ends[index, : count[index]].tobytes() + holes[index].tobytes().rstrip(b"\0")
        for index in range(len(count))
    ]


@functools.cache
def fixed_fingerprints() -> frozenset[bytes]:
    """Return the fingerprints of all boards of the package's fixed sets, which training must not see."""
    return frozenset(fingerprint for name in SETS for fingerprint in fingerprints(load(name).instances))


@functools.partial(jax.jit, static_argnames="side")
def _draw_numbers(key: Array, first: int, side: int) -> Numbers:
    """Draw the numbers of all families by one program: it compiles in 4 s, what a family makes of them in one more."""
    own = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, first + jnp.arange(BLOCK, dtype=jnp.int32))
    return jax.vmap(lambda key: draw_numbers(key, side))(own)


@functools.partial(jax.jit, static_argnames=("family", "slots"))
def _lay_out(family: Family, numbers: Numbers, size: Array, num_agents: Array, density: Array, slots: int) -> Instance:
    return jax.vmap(lambda own: lay_out(family, own, size, num_agents, density, slots))(numbers)


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

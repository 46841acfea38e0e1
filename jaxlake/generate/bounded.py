"""Boards of any size by number, with the shortest paths of their agents; neither solves nor chooses any."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.flood import TOGETHER, pack, reach, shortest_paths, steps
from jaxlake.generate.candidates import BLOCK, Shape, draw_family_block
from jaxlake.kinds import Family
from jaxlake.record import Array
from jaxlake.types import ABSENT, Instance


def draw_reachable(key: Array, first: int, count: int, shape: Shape) -> tuple[Instance, np.ndarray]:
    """Draw candidates number ``first`` to ``first + count - 1``; each depends on key, number and shape alone.

    Random boards have ``floor(hole * (N**2 - 2 * n))`` holes, as in ``generate``. Starts are free cells that are not
    walled in; an agent's goal is any cell that it can reach and nobody else starts or ends on. Other families choose
    starts and goals themselves.

    Args:
      first, count: multiples of ``BLOCK``.

    Returns:
      Instances ``[count]``, and the length of each agent's shortest path, int32 ``[count, max_agents]``, ``ABSENT`` for
      absent agents and for those that cannot reach a goal. Numpy arrays.
    """
    kind = shape.kind
    sizes = {"size": kind.size, "num_agents": kind.num_agents}
    sizes |= {"max_size": shape.max_size, "max_agents": shape.max_agents}

    def block(number: int) -> tuple[Instance, np.ndarray]:
        if kind.family is Family.RANDOM:
            drawn = _random_block(key, number, holes=shape.holes, **sizes)
        else:
            boards = draw_family_block(key, number, family=kind.family, density=shape.density, **sizes)
            drawn = boards, shortest_paths(boards)
        arrays: tuple[Instance, np.ndarray] = jax.tree.map(np.asarray, drawn)
        return arrays

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # a block keeps one core busy
        blocks = list(pool.map(block, range(first, first + count, BLOCK)))
    joined: tuple[Instance, np.ndarray] = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
    return joined


@functools.partial(jax.jit, static_argnames=("max_size", "max_agents"))
def _random_block(
    key: Array, first: int, size: int, num_agents: int, holes: int, max_size: int, max_agents: int
) -> tuple[Instance, jax.Array]:
    """``BLOCK`` boards: the highest of random numbers are holes, the lowest starts."""
    cells = max_size * max_size
    cell = jnp.arange(cells, dtype=jnp.uint32)
    on_board = (cell // max_size < size) & (cell % max_size < size)
    low = (cells - 1).bit_length()

    def numbers(number: Array) -> tuple[jax.Array, jax.Array]:
        own = jax.random.fold_in(key, number)
        ends = jax.random.uniform(jax.random.fold_in(own, 1), (max_agents,), jnp.float32)
        return jax.random.bits(own, (cells,), jnp.uint32), ends

    bits, choice = jax.vmap(numbers)(first + jnp.arange(BLOCK, dtype=jnp.int32))
    # The cell in the low bits tells any two apart, so that a bound on them leaves an exact number of holes.
    rank = jnp.where(on_board, bits >> (low + 2) << low, jnp.uint32(1 << 31)) | cell
    wanted = jnp.asarray(size * size - holes, jnp.int32)

    def halve(index: jax.Array, bound: jax.Array) -> jax.Array:
        higher = bound | (jnp.uint32(1 << 30) >> index.astype(jnp.uint32))
        below = jnp.sum(rank < higher[:, None], axis=1, dtype=jnp.int32)
        halved: jax.Array = jnp.where(below <= wanted, higher, bound)
        return halved

    bound = jax.lax.fori_loop(0, 31, halve, jnp.zeros(BLOCK, jnp.uint32))
    free = on_board & (rank < bound[:, None])
    square = jnp.pad(free.reshape(BLOCK, max_size, max_size), ((0, 0), (1, 1), (1, 1)))
    beside = square[:, 2:, 1:-1] | square[:, :-2, 1:-1] | square[:, 1:-1, 2:] | square[:, 1:-1, :-2]
    places = jnp.where(free & beside.reshape(BLOCK, cells), (jnp.uint32(1 << 30) - rank).astype(jnp.float32), 0)
    score, starts = jax.lax.top_k(places, max_agents)
    there = jnp.arange(max_agents) < num_agents
    starts = jnp.where(there & (score > 0), starts, ABSENT).astype(jnp.int32)
    words = pack(free.reshape(BLOCK, max_size, max_size))
    # Parts of a block are flooded one after another.
    parts = (array.reshape(-1, TOGETHER, *array.shape[1:]) for array in (words, starts, choice))
    goals, lengths = (part.reshape(BLOCK, max_agents) for part in jax.lax.map(_goals, tuple(parts)))
    board = Instance(
        size=jnp.full(BLOCK, size, jnp.int32),
        num_agents=jnp.full(BLOCK, num_agents, jnp.int32),
        holes=on_board & ~free,
        starts=starts,
        goals=goals,
    )
    return board, lengths


def _goals(part: tuple[Array, Array, Array]) -> tuple[jax.Array, jax.Array]:
    """Choose a goal for each agent, one after another, among the free cells that it reaches."""
    free, starts, choice = part
    boards, rows, words = free.shape
    reached = jnp.moveaxis(reach(free, starts).reshape(boards, rows * words, -1), -1, 0)
    word = jnp.arange(rows * words, dtype=jnp.int32)

    def marked(cell: Array) -> jax.Array:
        row, column = jnp.divmod(cell, rows)
        here = (word == (row * words + column // 32)[:, None]) & (cell >= 0)[:, None]
        bits: jax.Array = jnp.where(here, jnp.uint32(1) << (column % 32).astype(jnp.uint32)[:, None], jnp.uint32(0))
        return bits

    def choose(taken: Array, agent: tuple[Array, Array]) -> tuple[jax.Array, jax.Array]:
        cells, chance = agent
        cells &= ~taken
        upto = jnp.cumsum(jax.lax.population_count(cells), axis=1, dtype=jnp.int32)
        total = upto[:, -1]
        place = jnp.minimum((chance * total).astype(jnp.int32), total - 1)  # among the cells, in their order
        index = jnp.sum(upto <= place[:, None], axis=1, dtype=jnp.int32)
        index = jnp.minimum(index, rows * words - 1)
        chosen = jnp.take_along_axis(cells, index[:, None], axis=1)[:, 0]
        before = jnp.take_along_axis(upto, index[:, None], axis=1)[:, 0] - jax.lax.population_count(chosen)
        bits = jnp.cumsum(chosen[:, None] >> jnp.arange(32, dtype=jnp.uint32) & 1, axis=1, dtype=jnp.int32)
        column = jnp.sum(bits <= (place - before)[:, None], axis=1, dtype=jnp.int32)
        cell = index // words * rows + index % words * 32 + column
        cell = jnp.where(total > 0, cell, ABSENT).astype(jnp.int32)
        return jnp.bitwise_or(taken, marked(cell)), cell

    taken = jax.lax.fori_loop(
        0,
        starts.shape[1],
        lambda agent, cells: cells | marked(starts[:, agent]),
        jnp.zeros_like(free).reshape(boards, -1),
    )
    _, goals = jax.lax.scan(choose, taken, (reached, choice.T))
    return goals.T, steps(free, starts, goals.T)

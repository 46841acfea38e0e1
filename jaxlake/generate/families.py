"""Drawing of boards of each family but `random`: walls, starts and goals. Solves nothing.

A family's function draws one board and is pure; size, agents and density are data, so that one program serves them all.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.kinds import Family
from jaxlake.record import Array
from jaxlake.types import ABSENT, Instance


class Numbers(NamedTuple):
    """The random numbers of one board; every family is drawn from the same.

    Attributes:
      chance: float32 ``[cells]``, uniform in [0, 1), for what is shut.
      order: float32 ``[cells]``, the same again, for choices among cells.
      ends: float32 ``[cells]``, the same again, for starts and goals.
      line: float32 ``[5, side]``, the same again, for choices along a line of cells; the last for the agents' order.
      bits: uint32 ``[8]``, random bits for choices of the whole board.
    """

    chance: Array
    order: Array
    ends: Array
    line: Array
    bits: Array


class Grid(NamedTuple):
    """The cells of a padded board, int32 ``[cells]`` and bool ``[cells]``, what is on it, int32, and its numbers."""

    row: Array
    column: Array
    on_board: Array
    size: Array
    num_agents: Array
    numbers: Numbers


class Board(NamedTuple):
    """A drawn board: free cells bool ``[cells]``, starts and goals int32 ``[slots]``."""

    free: Array
    starts: Array
    goals: Array


_FAR = 1 << 20  # beyond any place on a road


def side_of(grid: Grid) -> int:
    """Return the side of the padded board."""
    return math.isqrt(grid.row.shape[0])


def lowest(order: Array, among: Array, count: Array) -> Array:
    """Mark the `count` cells with the lowest order among some, bool ``[cells]``; all of them if there are fewer."""
    # Stable sorts: where two numbers are equal, as on 1 of 300,000 boards, a comparison would mark one cell more.
    return among & (jnp.argsort(jnp.argsort(jnp.where(among, order, 2.0))) < count)


def anywhere(grid: Grid, free: Array, slots: int) -> tuple[jax.Array, jax.Array]:
    """Place starts and goals on different free cells, each as likely as any other."""
    cells = jnp.argsort(jnp.where(free, grid.numbers.ends, 2.0)).astype(jnp.int32)
    agent = jnp.arange(slots)
    return cells[agent], cells[grid.num_agents + agent]


def turned(grid: Grid, free: Array, starts: Array, goals: Array) -> Board:
    """Turn and mirror a board at random, and number its agents in a random order."""
    side, bits = side_of(grid), grid.numbers.bits[-1].astype(jnp.int32)

    def place(row: Array, column: Array) -> tuple[jax.Array, jax.Array]:
        row = jnp.where(bits & 1, grid.size - 1 - row, row)
        column = jnp.where(bits & 2, grid.size - 1 - column, column)
        return jnp.where(bits & 4, column, row), jnp.where(bits & 4, row, column)

    def moved(cells: Array) -> jax.Array:
        row, column = place(*jnp.divmod(cells, side))
        return row * side + column

    # A cell off the board may be turned off the array; nothing is read of it.
    source = jnp.where(grid.on_board, moved(jnp.arange(side * side)), 0)
    turned_free = jnp.zeros_like(free).at[source].max(free & grid.on_board)
    agent = jnp.arange(len(starts))
    # Boards with more agents than rows have enough cells; their families' walls use the same numbers otherwise.
    numbers = grid.numbers.line[-1] if len(starts) <= side else grid.numbers.chance
    order = jnp.argsort(jnp.where(agent < grid.num_agents, numbers[: len(starts)], 2.0))
    return Board(turned_free, moved(starts)[order], moved(goals)[order])


def rooms(grid: Grid, closed: Array, slots: int) -> Board:
    """Rooms of at most 3 x 3 behind walls, and a door in each wall between two; `closed` is the share of other wall."""
    first = 1 + grid.numbers.bits[:2].astype(jnp.int32) % 3
    top, left = jnp.where((grid.size - 1 - first) % 4 == 0, first % 3 + 1, first)  # no wall along the board's edge
    across, down = (grid.row - top) % 4 == 0, (grid.column - left) % 4 == 0
    bands = side_of(grid) // 4 + 2
    band = ((grid.row - top) // 4 + 1) * bands + (grid.column - left) // 4 + 1
    side = jnp.where(across, band, band + bands**2)
    wall = (across | down) & grid.on_board
    straight = wall & ~(across & down)
    order = jnp.where(straight, grid.numbers.order, 2.0)
    door = straight & (order == jnp.full(2 * bands**2, 2.0, order.dtype).at[side].min(order)[side])
    free = grid.on_board & ~(wall & ~door & (grid.numbers.chance < closed))
    return Board(free, *anywhere(grid, free, slots))


def maze(grid: Grid, closed: Array, slots: int) -> Board:
    """Passages of a random spanning tree over every second cell; `closed` is the share of all other wall."""
    side = side_of(grid)
    node = (grid.row % 2 == 0) & (grid.column % 2 == 0) & grid.on_board
    edge = ((grid.row + grid.column) % 2 == 1) & grid.on_board

    def beside(cells: Array) -> tuple[jax.Array, jax.Array]:
        """Return for each passage whether its two ends are among the cells."""
        square = jnp.pad(cells.reshape(side, side), 1)
        before = jnp.where((grid.row % 2 == 0).reshape(side, side), square[1:-1, :-2], square[:-2, 1:-1])
        after = jnp.where((grid.row % 2 == 0).reshape(side, side), square[1:-1, 2:], square[2:, 1:-1])
        return before.reshape(-1), after.reshape(-1)

    both = jnp.logical_and(*beside(node)) & edge

    def grow(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        reached, opened = state
        leads = both & jnp.logical_xor(*beside(reached))
        weight = jnp.where(leads, grid.numbers.order, 2.0)
        best = leads & (jnp.arange(len(weight)) == jnp.argmin(weight))
        ends = jnp.pad(best.reshape(side, side), 1)
        near = ends[1:-1, :-2] | ends[1:-1, 2:] | ends[:-2, 1:-1] | ends[2:, 1:-1]
        return reached | (near.reshape(-1) & node), opened | best

    first = node & (grid.row == 0) & (grid.column == 0)
    _, tree = jax.lax.fori_loop(0, ((side + 1) // 2) ** 2 - 1, grow, (first, jnp.zeros_like(first)))
    free = node | tree | (grid.on_board & (grid.numbers.chance >= closed))
    return turned(grid, free, *anywhere(grid, free, slots))


def corridor(grid: Grid, closed: Array, slots: int) -> Board:
    """One lane from side to side with single cells beside it; agents stand in both halves and go to the other one.

    Half of the cells beside the lane are shut, `closed` of the others too; one for every agent but one stays open.
    """
    lane_row = 1 + (grid.numbers.bits[0] % (grid.size - 2).astype(jnp.uint32)).astype(jnp.int32)
    beside = (jnp.abs(grid.row - lane_row) == 1) & grid.on_board
    free = (grid.row == lane_row) & grid.on_board
    free |= beside & (grid.numbers.chance >= (1 + closed) / 2)
    free |= lowest(grid.numbers.order, beside, grid.num_agents - 1)
    side, agent = side_of(grid), jnp.arange(slots)
    rank, left = agent // 2, agent % 2 == 0  # even agents start in the left half, odd ones in the right
    counts = (grid.num_agents + 1) // 2, grid.num_agents // 2
    half = jnp.arange(side) < grid.size // 2

    def places(draw: int, count: Array) -> jax.Array:
        """Distances from an end of the lane, of the agents of one side, ascending."""
        return jnp.argsort(jnp.where(lowest(grid.numbers.line[draw], half, count), jnp.arange(side), side))

    # Whoever is in front goes in the deepest, so that nobody has to pass an agent of its own side.
    last, behind = grid.size - 1, jnp.where(left, *counts) - 1 - rank
    starts = jnp.where(left, places(0, counts[0])[rank], last - places(1, counts[1])[rank])
    goals = jnp.where(left, last - places(2, counts[0])[behind], places(3, counts[1])[behind])
    at = lane_row * side
    return turned(grid, free, (at + starts).astype(jnp.int32), (at + goals).astype(jnp.int32))


def bays(grid: Grid, closed: Array, slots: int) -> Board:
    """Return a road that winds over the board with places to pass beside it; agents must change their order there.

    `closed` of the places is shut, and at least one for every agent but one stays open.
    """
    lap, within = grid.row // 3, grid.row % 3
    last = jnp.where(lap % 2 == 0, grid.size - 1, 0)
    leads_on = (lap + 1) * 3 < grid.size
    road = grid.on_board & ((within == 0) | ((grid.column == last) & leads_on))
    place = grid.on_board & (within == 1) & ((jnp.abs(grid.column - last) > 1) | ~leads_on)
    free = road | (place & (grid.numbers.chance >= closed)) | lowest(grid.numbers.order, place, grid.num_agents - 1)
    along = jnp.where(lap % 2 == 0, grid.column, grid.size - 1 - grid.column)
    way = lap * (grid.size + 2) + jnp.where(within == 0, along, grid.size - 1 + within)
    count = grid.num_agents
    stops = lowest(grid.numbers.ends, road, 2 * count)
    begins = lowest(grid.numbers.ends, stops, count)  # the same order: half of the stops, as likely as any
    agent = jnp.arange(slots)
    starts = jnp.argsort(jnp.where(begins, way, _FAR)).astype(jnp.int32)[agent]
    ends = jnp.argsort(jnp.where(stops & ~begins, way, _FAR)).astype(jnp.int32)
    return turned(grid, free, starts, ends[jnp.maximum(count - 1 - agent, 0)])


def warehouse(grid: Grid, closed: Array, slots: int) -> Board:
    """Shelves of three between aisles one cell wide; `closed` is the share of the shelves' cells."""
    top, left = grid.numbers.bits[:2].astype(jnp.int32) % jnp.array([2, 4])
    shelf = grid.on_board & ((grid.row - top) % 2 == 1) & ((grid.column - left) % 4 != 0)
    free = grid.on_board & ~(shelf & (grid.numbers.chance < closed))
    return turned(grid, free, *anywhere(grid, free, slots))


def crossing(grid: Grid, closed: Array, slots: int) -> Board:
    """Roads that meet, on every second line; `closed` of them are missing, but for one each way."""
    line = jnp.arange(side_of(grid))

    def roads(i: int) -> jax.Array:
        inside = (line % 2 == (grid.numbers.bits[i] % 2).astype(jnp.int32)) & (line < grid.size)
        return inside & ((grid.numbers.line[i] >= closed) | lowest(grid.numbers.line[2 + i], inside, jnp.int32(1)))

    free = (roads(0)[grid.row] | roads(1)[grid.column]) & grid.on_board
    return Board(free, *anywhere(grid, free, slots))


DRAWN: dict[Family, Callable[[Grid, Array, int], Board]] = {
    Family.ROOMS: rooms,
    Family.MAZE: maze,
    Family.WAREHOUSE: warehouse,
    Family.CROSSING: crossing,
    Family.BAYS: bays,
    Family.CORRIDOR: corridor,
}


def draw_numbers(key: Array, side: int) -> Numbers:
    """Draw what a board is made of, for a padded board of that side."""
    chances, orders, ends, lines, bits = jax.random.split(key, 5)
    return Numbers(
        chance=jax.random.uniform(chances, (side * side,), jnp.float32),
        order=jax.random.uniform(orders, (side * side,), jnp.float32),
        ends=jax.random.uniform(ends, (side * side,), jnp.float32),
        line=jax.random.uniform(lines, (5, side), jnp.float32),
        bits=jax.random.bits(bits, (8,), jnp.uint32),
    )


def lay_out(family: Family, numbers: Numbers, size: Array, num_agents: Array, density: Array, slots: int) -> Instance:
    """Make a board, which may have no plan, of random numbers.

    Args:
      family: any but `random`.
      size, num_agents: int32 scalars.
      density: float32 scalar in [0, .5].
      slots: the length of the padded starts and goals.
    """
    cells = len(numbers.chance)
    row, column = jnp.divmod(jnp.arange(cells, dtype=jnp.int32), math.isqrt(cells))
    on_board = (row < size) & (column < size)
    board = DRAWN[family](Grid(row, column, on_board, size, num_agents, numbers), 2 * density, slots)
    there = jnp.arange(slots) < num_agents
    return Instance(
        size=size,
        num_agents=num_agents,
        holes=on_board & ~board.free,
        starts=jnp.where(there, board.starts, ABSENT).astype(jnp.int32),
        goals=jnp.where(there, board.goals, ABSENT).astype(jnp.int32),
    )

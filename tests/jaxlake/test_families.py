"""The families of boards: what makes each one what it is, told from the cells alone in plain Python."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, generate
from jaxlake.generate.candidates import Shape, draw, fingerprints
from jaxlake.generate.families import lowest
from jaxlake.kinds import Family, Kind
from jaxlake.levels import validate
from jaxlake.solve import needs_wait
from jaxlake.types import Instance, Status
from jaxlake.verify import verify

FAMILIES = tuple(family for family in Family if family is not Family.RANDOM)
SIZES = range(5, 11)
MAX_SIZE, MAX_AGENTS = 10, 5  # of all boards here, so that each family is compiled once
Cell = tuple[int, int]


class Cells:
    """A board in plain Python: free cells, starts and goals as (row, column)."""

    def __init__(self, instances: Instance, index: int):
        self.size, count = int(instances.size[index]), int(instances.num_agents[index])
        every = itertools.product(range(self.size), repeat=2)
        self.free = {(r, c) for r, c in every if not instances.holes[index, MAX_SIZE * r + c]}
        self.starts, self.goals = (
            [divmod(int(cell), MAX_SIZE) for cell in cells[index, :count]]
            for cells in (instances.starts, instances.goals)
        )

    def transposed(self) -> "Cells":
        other = object.__new__(Cells)
        other.size, other.free = self.size, {(c, r) for r, c in self.free}
        other.starts, other.goals = ([(c, r) for r, c in cells] for cells in (self.starts, self.goals))
        return other

    def near(self, cell: Cell) -> list[Cell]:
        """Free cells beside one."""
        row, column = cell
        beside = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        return [other for other in beside if other in self.free]

    def passages(self) -> int:
        """Pairs of free cells beside one another."""
        return sum(len(self.near(cell)) for cell in self.free) // 2

    def connected(self) -> bool:
        reached = [min(self.free)]
        for cell in reached:
            reached.extend(other for other in self.near(cell) if other not in reached)
        return len(reached) == len(self.free)


@functools.cache
def drawn(family: Family, size: int, agents: int, density: float) -> Instance:
    """128 boards, from the same random numbers whatever the density and the number of agents."""
    return draw(jax.random.key(17), 0, 128, Shape(Kind(family, size, agents), density, MAX_SIZE, MAX_AGENTS))


def boards(family: Family, size: int, agents: int, density: float, count: int = 24) -> list[Cells]:
    instances = drawn(family, size, agents, density)
    return [Cells(instances, index) for index in range(count)]


def agents_on(family: Family, size: int) -> range:
    """Every number of agents that a kind of the family may have."""
    return range(1, (4 if size == 5 and family in (Family.CORRIDOR, Family.CROSSING) else 5) + 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_has_legal_boards_and_nobody_starts_on_its_goal(family):
    densities = itertools.cycle((0.0, 0.3, 0.5, 0.1))
    for size in SIZES:
        for agents in agents_on(family, size):
            instances = drawn(family, size, agents, next(densities))
            validate(instances)
            assert (instances.size == size).all() and (instances.num_agents == agents).all()
            row, column = np.divmod(np.arange(MAX_SIZE**2), MAX_SIZE)
            assert not instances.holes[:, (row >= size) | (column >= size)].any()
            starts, goals = instances.starts[:, :agents], instances.goals[:, :agents]
            assert (starts != goals).all()
            # In a corridor one agent may start where another one goes: on the shortest, four change places.
            different = (starts, goals) if family is Family.CORRIDOR else (np.concatenate([starts, goals], axis=1),)
            assert all((np.diff(np.sort(cells, axis=1), axis=1) > 0).all() for cells in different)


@pytest.mark.parametrize("size", SIZES)
def test_rooms_have_walls_from_edge_to_edge_and_one_door_between_two(size):
    for board in boards(Family.ROOMS, size, 2, 0.5):
        assert any(_is_rooms(board, *corner) for corner in itertools.product((1, 2, 3), repeat=2))
        assert board.connected()


def _is_rooms(board: Cells, top: int, left: int) -> bool:
    """Whether walls stand on every fourth line from these on, none along an edge, with a door in every part."""
    down, across = range(top, board.size, 4), range(left, board.size, 4)
    walls = {(r, c) for r in range(board.size) for c in range(board.size) if r in down or c in across}
    parts = [  # of a wall, between the walls that cross it
        {(line, c) if flat else (c, line) for c in range(before + 1, after)}
        for flat, lines, others in ((True, down, across), (False, across, down))
        for line in lines
        for before, after in itertools.pairwise((-1, *others, board.size))
    ]
    return (
        not any(line in (0, board.size - 1) for line in (*down, *across))
        and board.free >= {(r, c) for r in range(board.size) for c in range(board.size)} - walls
        and all(len(part & board.free) == 1 for part in parts)
        and not any((r, c) in board.free for r in down for c in across)
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_maze_at_its_highest_density_is_a_tree_over_every_second_cell(size):
    for board in boards(Family.MAZE, size, 2, 0.5):
        assert board.connected()
        assert board.passages() == len(board.free) - 1  # no way round
        side = (size + 1) // 2
        assert len(board.free) == 2 * side**2 - 1
        lattices = (range(first, size, 2) for first in range(2 - size % 2))  # an even side has one line too many
        assert any(board.free >= set(itertools.product(*lines)) for lines in itertools.product(lattices, repeat=2))


@pytest.mark.parametrize("size", SIZES)
def test_a_warehouse_at_its_highest_density_has_shelves_of_three_between_aisles(size):
    for board in boards(Family.WAREHOUSE, size, 2, 0.5):
        assert any(
            way.free == {(r, c) for r in range(size) for c in range(size) if (r - top) % 2 == 0 or (c - left) % 4 == 0}
            for way in (board, board.transposed())
            for top, left in itertools.product(range(2), range(4))
        )
        assert board.connected()


@pytest.mark.parametrize("density", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("size", SIZES)
def test_only_whole_lines_are_free_on_a_crossing(size, density):
    for board in boards(Family.CROSSING, size, 3, density):
        rows = [r for r in range(size) if all((r, c) in board.free for c in range(size))]
        columns = [c for c in range(size) if all((r, c) in board.free for r in range(size))]
        assert rows and columns
        assert board.free == {(r, c) for r in range(size) for c in range(size) if r in rows or c in columns}
        for lines in (rows, columns):
            assert len({line % 2 for line in lines}) == 1
            assert density < 0.5 or len(lines) == 1
            assert density > 0 or len(lines) == len(range(lines[0] % 2, size, 2))


@pytest.mark.parametrize("density", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("size", SIZES)
def test_the_halves_of_a_corridor_change_their_agents_and_nobody_passes_one_of_its_own(size, density):
    for agents in agents_on(Family.CORRIDOR, size):
        for board in boards(Family.CORRIDOR, size, agents, density, count=12):
            ways = [(way, lane) for way in (board, board.transposed()) for lane in range(1, size - 1)]
            assert any(_is_corridor(way, lane, agents) for way, lane in ways)


def _is_corridor(board: Cells, lane: int, agents: int) -> bool:
    size = board.size
    beside = {cell for cell in board.free if cell[0] != lane}
    if not (
        board.free >= {(lane, c) for c in range(size)}
        and all(abs(r - lane) == 1 for r, _ in beside)
        and len(beside) >= agents - 1
        and all(r == lane for r, _ in board.starts + board.goals)
    ):
        return False
    left, right = set(range(size // 2)), set(range(size - size // 2, size))
    pairs = [(s, g) for (_, s), (_, g) in zip(board.starts, board.goals, strict=True)]
    eastward = [pair for pair in pairs if pair[0] in left and pair[1] in right]
    westward = [pair for pair in pairs if pair[0] in right and pair[1] in left]
    return (
        len(eastward) + len(westward) == agents
        and abs(len(eastward) - len(westward)) <= 1
        # Whoever is in front of another one at the start is so at the end.
        and all(
            (s < t) == (g < h) for side in (eastward, westward) for (s, g), (t, h) in itertools.combinations(side, 2)
        )
    )


@pytest.mark.parametrize("density", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("size", SIZES)
def test_agents_in_bays_change_their_order_on_a_road_with_places_beside_it(size, density):
    # With one agent no place has to stay open: at the highest density only the road is left.
    for agents in agents_on(Family.BAYS, size):
        alone, crowd = boards(Family.BAYS, size, 1, 0.5, 12), boards(Family.BAYS, size, agents, density, 12)
        for bare, board in zip(alone, crowd, strict=True):
            road = _walk(bare)
            places = board.free - set(road)
            assert set(road) <= board.free and len(places) >= agents - 1
            # A place is beside the road, and no short cut: it touches one of its cells, or leads to one that does.
            assert all(sum(road_cell in board.near(place) for road_cell in road) == 1 for place in places)
            order = sorted(range(agents), key=lambda agent: road.index(board.starts[agent]))
            ends = [road.index(board.goals[agent]) for agent in order]
            assert ends == sorted(ends, reverse=True)


def _walk(board: Cells) -> list[Cell]:
    """The cells of a board that is a single path, from one end to the other."""
    walk = [min(cell for cell in board.free if len(board.near(cell)) == 1)]
    while further := [cell for cell in board.near(walk[-1]) if cell not in walk[-2:]]:
        assert len(further) == 1
        walk += further
    assert len(walk) == len(board.free)
    return walk


@pytest.mark.parametrize("family", FAMILIES)
def test_twice_the_density_is_the_share_of_what_may_stand_that_does(family):
    """What may stand is what stands at .5 and not at 0; at 1/4 a half of it does, and what stands there stays."""
    least, most = (drawn(family, 10, 1, density).holes for density in (0.0, 0.5))
    if family is Family.CROSSING:  # whole roads, of which a cell stands where two are missing

        def standing(holes: np.ndarray) -> np.ndarray:
            square = holes.reshape(-1, MAX_SIZE, MAX_SIZE)
            return np.concatenate([square.any(axis=1), square.any(axis=2)], axis=1)
    else:

        def standing(holes: np.ndarray) -> np.ndarray:
            return holes

    may = standing(most) & ~standing(least)
    assert (most | ~least).all() and may.sum() > 500
    stands_before = np.zeros_like(may)
    for density in (0.05, 0.15, 0.25, 0.4):
        stands = standing(drawn(family, 10, 1, density).holes)
        assert (stands_before <= stands).all() and (stands & ~standing(least) <= may).all()
        stands_before = stands & may
        share, count = stands_before.sum() / may.sum(), may.sum()
        assert abs(share - 2 * density) < 5 * math.sqrt(2 * density * (1 - 2 * density) / count)


def test_equal_numbers_give_no_cell_too_many():
    order = jnp.array([0.5, 0.25, 0.5, 0.5, 0.75])
    among = jnp.array([True, True, True, False, True])
    for count, marked in enumerate(([], [1], [0, 1], [0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 4])):
        assert np.flatnonzero(lowest(order, among, jnp.int32(count))).tolist() == marked


@pytest.mark.parametrize("family", FAMILIES)
def test_a_board_depends_on_its_number_and_not_on_those_drawn_with_it(family):
    shape = Shape(Kind(family, 7, 3), 0.2, MAX_SIZE, MAX_AGENTS)
    whole = fingerprints(draw(jax.random.key(1), 0, 256, shape))
    second = fingerprints(draw(jax.random.key(1), 128, 128, shape))
    assert whole[128:] == second and not set(whole[:128]) & set(second)
    other = fingerprints(draw(jax.random.key(2), 0, 128, shape))
    assert not set(other) & set(whole)


QUOTAS = {  # of 24 boards each: density, and instances that wait
    "4": (0.3, 12),
    "rooms5": (0.5, 6),
    "maze5": (0.5, 12),
    "warehouse5": (0.5, 6),
    "crossing5": (0.5, 12),
    "bays5x1": (0.25, 0),
    "bays5": (0.25, 18),
    "corridor5": (0.5, 18),
    "corridor5x3": (0.0, 12),
}


@pytest.fixture(scope="module")
def mixed() -> Dataset:
    density, waits = zip(*QUOTAS.values(), strict=True)
    share = (1 / len(QUOTAS),) * len(QUOTAS)
    config = LakeConfig(tuple(QUOTAS), share, density, tuple(number / 24 for number in waits))
    return generate(config, jax.random.key(0), 24 * len(QUOTAS), max_size=5, max_agents=3)


@pytest.mark.heavy
def test_every_family_meets_its_quotas_with_different_boards_and_optimal_plans(mixed):
    assert mixed.shortfalls() == () and len(set(fingerprints(mixed.instances))) == 24 * len(QUOTAS)
    validate(mixed.instances)
    judged = verify(mixed.instances, mixed.solutions.plan, mixed.solutions.cost)
    assert (mixed.solutions.status == Status.SOLVED).all() and np.asarray(judged.optimal).all()
    np.testing.assert_array_equal(needs_wait(mixed.instances, mixed.solutions), mixed.needs_wait)
    for (name, (density, waits)), entry in zip(QUOTAS.items(), mixed.report, strict=True):
        own = mixed.kinds == Kind.of(name)
        assert str(entry.kind) == name and own.sum() == entry.realised == 24
        assert mixed.needs_wait[own].sum() == entry.realised_waits == waits
        assert set(mixed.instances.size[own]) == {entry.kind.size}
        assert set(mixed.instances.num_agents[own]) == {entry.kind.num_agents}
        assert entry.holes == pytest.approx(mixed.instances.holes[own].sum(axis=1).mean())
        assert mixed.realised()[name] == pytest.approx(
            {"data": 1 / len(QUOTAS), "hole": entry.hole_ratio, "wait": waits / 24}
        )
        assert entry.kind.family is Family.RANDOM or entry.hole_ratio == density
        gaps = (mixed.solutions.cost - mixed.solutions.lower_bound)[own]
        if entry.kind.family in (Family.BAYS, Family.CORRIDOR) and entry.kind.num_agents > 1:
            assert (gaps > 0).all() and entry.realised_interacting == 24  # nobody can go straight past the other


@pytest.mark.heavy
def test_a_kind_has_the_same_boards_beside_any_others(mixed):
    """Its key is its own, not its place among the kinds."""
    config = LakeConfig(("corridor5",), (1,), (0.5,), (0.75,))
    alone = generate(config, jax.random.key(0), 24, max_size=5, max_agents=3)
    among = mixed.instances[np.flatnonzero(mixed.kinds == Kind.of("corridor5"))]
    assert set(fingerprints(alone.instances)) == set(fingerprints(among))

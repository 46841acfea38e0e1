"""Pictures of boards as plain shapes; the other files here put them on paper, screen or axes.

Coordinates are (x, y) in cells: the middle of the cell in row r and column c is at (c, r), y grows downwards.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxlake.record import Array
from jaxlake.types import Instance, Plan

Point = tuple[float, float]

MARGIN = 0.54
"""The distance from the middle of the outermost cells to the edge of a picture, in cells."""

LINE = 0.06
"""Width of lines and rings, in cells."""

_MOST_NUMBERED = 32
"""Side of the largest boards whose agents have numbers: on a screen, cells of larger ones have no room for them."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
"""The agents', by number; Okabe and Ito's, told apart by colour-blind eyes."""

FREE, HOLE, WHITE = "#EEF1F4", "#39424E", "#FFFFFF"

TILE, RING, DISC = 0.47, 0.31, 0.22
"""Half a tile's side, the radii of goals and agents, in cells: a disc on its goal leaves the ring visible."""

_ALARM = "#E8112D"
_CORNERS = ((-1, -1), (1, -1), (-1, 1), (1, 1))


@dataclasses.dataclass(frozen=True)
class Polygon:
    """A filled polygon without an edge."""

    points: tuple[Point, ...]
    colour: str


@dataclasses.dataclass(frozen=True)
class Circle:
    """A disc (colour), or a ring where the inside has another colour than the edge."""

    centre: Point
    radius: float
    inside: str
    colour: str


@dataclasses.dataclass(frozen=True)
class Line:
    """A line through points, not filled."""

    points: tuple[Point, ...]
    colour: str


@dataclasses.dataclass(frozen=True)
class Label:
    """Bold letters, centred; the size is the height of the font."""

    centre: Point
    text: str
    size: float
    colour: str


Shape = Polygon | Circle | Line | Label


@dataclasses.dataclass(frozen=True)
class Mark:
    """A shape that is there from one time to another, in steps."""

    shape: Shape
    begin: float
    end: float


def still(instance: Instance, plan: Plan | None = None, positions: Sequence[int] | Array | None = None) -> list[Shape]:
    """Return the shapes of an instance (no batch axes), back to front; arguments as of ``svg``."""
    shapes, numbers = background(instance)
    count, max_size = int(instance.num_agents), instance.max_size
    labels: list[Shape] = []
    paths = [] if plan is None else [row[: int(plan.lengths[i])] for i, row in enumerate(plan.paths[:count])]
    for agent, walked in enumerate(paths):
        path = [divmod(int(cell), max_size) for cell in walked if cell >= 0]
        goal = divmod(int(instance.goals[agent]), max_size)
        while len(path) > 1 and path[-1] == path[-2] == goal:
            path.pop()
        shapes += _path(path, goal, 0.36 * ((agent + 0.5) / count - 0.5), COLOURS[agent % len(COLOURS)])
        labels += _waits(path, agent)
    cells = np.asarray(instance.starts if positions is None else positions)[:count]
    numbers += [mark.shape for mark in alarms(instance, cells[None])]
    for agent, cell in enumerate(cells.tolist()):
        if cell >= 0:
            numbers += token(instance, agent, middle(cell, max_size))
    return shapes + numbers + labels


def background(instance: Instance) -> tuple[list[Shape], list[Shape]]:
    """Return tiles and goals, and the goals' numbers, which belong in front of paths."""
    shapes: list[Shape] = tiles(instance)
    numbers: list[Shape] = []
    for agent in range(int(instance.num_agents)):
        ring, *number = goal(instance, agent, middle(int(instance.goals[agent]), instance.max_size))
        shapes.append(ring)
        numbers += number
    return shapes, numbers


def tiles(instance: Instance) -> list[Shape]:
    """Return the cells of the board."""
    size, max_size = int(instance.size), instance.max_size
    shapes: list[Shape] = []
    for row in range(size):
        for column in range(size):
            colour = HOLE if instance.holes[row * max_size + column] else FREE
            corners = ((-1, -1), (1, -1), (1, 1), (-1, 1))
            shapes.append(Polygon(tuple((column + TILE * x, row + TILE * y) for x, y in corners), colour))
    return shapes


def middle(cell: int, max_size: int) -> Point:
    """Return the middle of a cell."""
    return (cell % max_size, cell // max_size)


def goal(instance: Instance, agent: int, centre: Point) -> list[Shape]:
    """Return the shapes of a goal at a place: its ring, and its number if there is room."""
    colour = COLOURS[agent % len(COLOURS)]
    number: list[Shape] = [Circle(centre, 0.2, WHITE, WHITE), Label(centre, str(agent), 0.28, colour)]
    return [Circle(centre, RING, WHITE, colour), *(number if instance.size <= _MOST_NUMBERED else [])]


def token(instance: Instance, agent: int, centre: Point) -> list[Shape]:
    """Return the shapes of an agent at a place."""
    colour = COLOURS[agent % len(COLOURS)]
    number = [Label(centre, str(agent), 0.28, WHITE)] if instance.size <= _MOST_NUMBERED else []
    return [Circle(centre, DISC, colour, colour), *number]


def walks(instance: Instance, moves: Plan | np.ndarray) -> np.ndarray:
    """Return the agents' cells, int32 ``[times, agents]``, negative for nowhere.

    Args:
      moves: a plan, whose agents stay at the ends of their paths and those without one on their starts; or cells
        ``[times, max_agents]``, such as the positions of a rollout.
    """
    count = int(instance.num_agents)
    if not isinstance(moves, Plan):
        return np.asarray(moves)[:, :count]
    lengths = np.asarray(moves.lengths)[:count]
    last = np.maximum(lengths - 1, 0)
    times = np.minimum(np.arange(max(last, default=0) + 1)[:, None], last)
    cells = np.take_along_axis(np.asarray(moves.paths)[:count].T, times, axis=0)
    return np.where(lengths > 0, cells, np.asarray(instance.starts)[:count])


def alarms(instance: Instance, positions: np.ndarray) -> list[Mark]:
    """Return a star where agents in ``walks`` share a cell or swap cells, a ring where one has fallen into a hole."""
    max_size = instance.max_size
    marks: list[Mark] = []
    for time, cells in enumerate(positions.tolist()):
        here = Counter(cell for cell in cells if cell >= 0)
        marks += [
            Mark(_star(middle(cell, max_size)), time - 0.5, time + 0.5) for cell, count in here.items() if count > 1
        ]
        for cell in here:
            if instance.holes[cell]:
                marks.append(Mark(Circle(middle(cell, max_size), RING, HOLE, _ALARM), time, time + 1))
        after = positions[min(time + 1, len(positions) - 1)].tolist()
        moves = list(zip(cells, after, strict=True))
        for agent, (ours, theirs) in enumerate(moves):
            if ours != theirs and min(ours, theirs) >= 0 and (theirs, ours) in moves[agent + 1 :]:
                between = np.add(middle(ours, max_size), middle(theirs, max_size)) / 2
                marks.append(Mark(_star(tuple(between.tolist())), time, time + 1))
    return marks


def _star(centre: Point) -> Polygon:
    angles = np.arange(20) * np.pi / 10
    radii = np.where(np.arange(20) % 2, 0.33, 0.47)
    points = np.stack([centre[0] + radii * np.sin(angles), centre[1] - radii * np.cos(angles)], axis=1)
    return Polygon(tuple(map(tuple, points.tolist())), _ALARM)


def _path(path: list[tuple[int, int]], goal: tuple[int, int], aside: float, colour: str) -> list[Shape]:
    """Return a line through the cells, moved down and right by the same amount so that it stays parallel to others'."""
    stops = [here for here, before in zip(path, [None, *path], strict=False) if here != before]
    if len(stops) < 2:
        return []
    line = np.array(stops, float) + aside
    direction = np.sign(np.subtract(stops[-1], stops[-2]))
    if stops[-1] == goal:
        line[-1] -= (RING + 0.04 + aside * direction.sum()) * direction  # The arrow ends at the goal's ring.
    tip, base = line[-1].copy(), line[-1] - 0.13 * direction
    wing = 0.09 * direction[::-1]
    line[-1] = base
    head = Polygon(tuple((float(x), float(y)) for y, x in (tip, base + wing, base - wing)), colour)
    return [Line(tuple((float(x), float(y)) for y, x in line), colour), head]


def _waits(path: list[tuple[int, int]], agent: int) -> list[Shape]:
    waits = Counter(here for here, there in zip(path, path[1:], strict=False) if here == there)
    right, down = _CORNERS[agent % len(_CORNERS)]
    colour = COLOURS[agent % len(COLOURS)]
    return [
        Label((column + 0.32 * right, row + 0.35 * down), f"+{count}", 0.2, colour)
        for (row, column), count in waits.items()
    ]

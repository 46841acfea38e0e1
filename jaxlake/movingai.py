"""Reads the ``.map`` and ``.scen`` files of the MovingAI benchmarks; solves nothing.

Both formats as Nathan Sturtevant's page of the benchmarks describes them, and as LaCAM (scenarios without version and
sizes) and the League of Robot Runners (letters on maps) write them. A file counts (x, y) = (column, row) from the top
left corner. A board here is square: a map of another form is set into the top left corner of a square whose rest is
holes, which changes no path.
"""

import os
import re
import warnings
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path, PureWindowsPath

import numpy as np

from jaxlake import lifelong
from jaxlake.arguments import whole_number
from jaxlake.levels import build, validate
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, Instance, LifelongInstance

_PASSABLE = ".GSE"
_BLOCKED = "@OTW"

PathLike = str | os.PathLike[str]
Cell = tuple[int, int]


def read_map(path: PathLike) -> np.ndarray:
    """Read a map, bool ``[height, width]``, True where no agent can stand.

    ``.``, ``G``, ``S`` (swamp, or a service point) and ``E`` (emitter, of the League of Robot Runners) can be entered;
    ``@``, ``O``, ``T`` (trees) and ``W`` (water, which can be entered from water alone) cannot. Other programs are
    known to enter ``.`` alone.
    """
    header, _, cells = "\n".join(_lines(path)).partition("\nmap\n")
    sizes = dict(re.findall(r"^(height|width)\s+([0-9]{1,9})$", header, re.MULTILINE))
    rows = cells.split("\n")
    shapes = {(str(len(rows)), str(len(row))) for row in rows}
    if shapes != {(sizes.get("height"), sizes.get("width"))} or not set("".join(rows)) <= set(_PASSABLE + _BLOCKED):
        raise ValueError(
            f"{path}: must have lines with height, width and 'map', and below them as many rows and columns of "
            f"{_PASSABLE + _BLOCKED}, as MovingAI's maps do"
        )
    return np.array([[cell in _BLOCKED for cell in row] for row in rows])


def read_scenarios(path: PathLike, agents: Sequence[int] | None = None) -> dict[str, Instance]:
    """Read the instances of a scenario by name, as the benchmarks are used: each has the first of a map's agents.

    Maps are read from the scenario's folder, whatever folder the rows name. The names are ``scenario_8ag``, and
    ``scenario_map_8ag`` where the rows name several maps. A map with one agent is one instance. Bucket and optimal
    length are not used: the length is that of one agent alone that may move diagonally.

    Args:
      agents: how many agents the instances have; by default 2, 3, 4 and 5 on maps up to 10 x 10, on larger ones 2, 4,
        8, ... and 128, as far as the scenario has them.

    Returns:
      Instances without batch axes, numpy. ``max_size`` is the longer side of the map, ``max_agents`` the agents.
    """
    rows_of_map: dict[str, list[tuple[Cell, Cell, Cell]]] = {}  # size, start and goal
    for number, line in enumerate(_lines(path), 1):
        if line.split()[:1] in ([], ["version"]):
            continue
        try:  # Tabulators separate the columns; some old files have spaces instead.
            _, map_path, *numbers = line.split("\t" if "\t" in line else None)[:8]
            width, height, start_x, start_y, goal_x, goal_y = map(int, numbers)
        except ValueError:
            columns = "bucket, map, width, height, start x, start y, goal x, goal y, optimal length"
            raise ValueError(f"{path}, line {number}: must have the columns {columns}") from None
        map_name = PureWindowsPath(map_path.strip()).name  # knows both kinds of slashes
        rows_of_map.setdefault(map_name, []).append(((height, width), (start_y, start_x), (goal_y, goal_x)))
    if not rows_of_map:
        raise ValueError(f"{path}: the file has no row for an agent")
    instances: dict[str, Instance] = {}
    for map_name, rows in rows_of_map.items():
        blocked = read_map(Path(path).with_name(map_name))
        if sizes := {shape for shape, _, _ in rows} - {blocked.shape, (0, 0)}:
            raise ValueError(f"{path}: the size of {map_name} is {sizes.pop()}: it must be {blocked.shape}, as its map")
        usual = range(2, MAX_AGENTS + 1) if max(blocked.shape) <= MAX_SIZE else (2, 4, 8, 16, 32, 64, 128)
        counts = [count for count in usual if count <= len(rows)] or [1] if agents is None else agents
        _, starts, goals = zip(*rows[: max(1, *counts)], strict=True)
        name = Path(path).stem + (f"_{map_name.removesuffix('.map')}" if len(rows_of_map) > 1 else "")
        instances |= first_agents(path, {name: instance_on_map(os.fspath(path), blocked, starts, goals)}, counts)
    return instances


def first_agents(path: PathLike, scenarios: dict[str, Instance], counts: Sequence[int]) -> dict[str, Instance]:
    """Return each scenario with the first of its agents, once for each count, as ``name_8ag``; else ValueError."""
    parts = {}
    for name, instance in scenarios.items():
        for count in counts:
            whole_number(f"{os.fspath(path)}, {name}: agents", count, 1, instance.max_agents)
            by_agent = {"starts", "goals", "first", "count", "place"} & vars(instance).keys()
            first = {field: getattr(instance, field)[:count] for field in by_agent}
            parts[f"{name}_{count}ag"] = instance.replace(num_agents=np.asarray(count, np.int32), **first)
    return parts


def instance_on_map(where: str, blocked: np.ndarray, starts: Sequence[Cell], goals: Sequence[Cell]) -> Instance:
    """Return the instance of a map, bool ``[height, width]``, and (row, column) cells; ValueError naming ``where``.

    The one way from a foreign file to a board: who reads one checks its form, and cells are checked here.
    """
    (height, width), size = blocked.shape, max(blocked.shape)
    for row, column in (*starts, *goals):
        if not (0 <= row < height and 0 <= column < width):  # else it would be another cell of the square
            raise ValueError(f"{where}: row {row}, column {column} is outside the map of {height} x {width}")
    holes = np.ones((size, size), bool)
    holes[:height, :width] = blocked
    starts_at, goals_at = ([row * size + column for row, column in cells] for cells in (starts, goals))
    instance = build(size, holes, starts_at, goals_at)
    try:
        validate(instance)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return instance


def with_goal_lists(where: str, instance: Instance, goals: Sequence[Sequence[Cell]]) -> LifelongInstance:
    """Return the lifelong board of an instance and each agent's (row, column) goals in their order; else ValueError.

    The one way from a foreign file to lists of goals.
    """
    side = instance.max_size
    off_board = side * side  # else it would be another cell of the square
    cells = [[row * side + column if 0 <= column < side else off_board for row, column in own] for own in goals]
    try:
        return lifelong.board(instance, np.array([*zip_longest(*cells, fillvalue=ABSENT)], np.int32).T)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def warn_assumption(path: PathLike, assumption: str) -> None:
    """Give a UserWarning of one line with what a file says otherwise, and what is assumed."""
    warnings.warn(f"{os.fspath(path)}: {assumption}", stacklevel=3)


def _lines(path: PathLike) -> list[str]:
    """Lines without the blanks at their ends, and without a byte-order mark before the first."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    return [line.rstrip() for line in text.rstrip().splitlines()]

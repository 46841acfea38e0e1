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
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.levels import build, validate
from jaxlake.types import MAX_AGENTS, MAX_SIZE, Instance

_PASSABLE = ".GSE"
_BLOCKED = "@OTW"

PathLike = str | os.PathLike[str]
Cell = tuple[int, int]


class _Row(NamedTuple):
    """One agent: the name of its map's file, the map's ``(height, width)``, and (row, column) cells."""

    map_name: str
    shape: tuple[int, int]
    start: Cell
    goal: Cell


def read_map(path: PathLike) -> np.ndarray:
    """Read a map, bool ``[height, width]``, True where no agent can stand.

    ``.``, ``G``, ``S`` (swamp, or a service point) and ``E`` (emitter) can be entered; ``@``, ``O``, ``T`` (trees) and
    ``W`` (water, which can be entered from water alone) cannot. Other programs are known to enter ``.`` alone. A header
    without ``type`` is read. A UserWarning says where ``E`` occurs, which only the League of Robot Runners has.
    """
    header, end, cells = "\n".join(_lines(path)).partition("\nmap\n")
    sizes = {name: re.search(rf"^{name}\s+([0-9]{{1,9}})$", header, re.MULTILINE) for name in ("height", "width")}
    if not (end and sizes["height"] and sizes["width"]):
        raise ValueError(f"{path}: must begin with the lines type, height, width and map, as MovingAI's maps do")
    height, width = int(sizes["height"][1]), int(sizes["width"][1])
    rows, first = cells.split("\n"), header.count("\n") + 3
    if len(rows) != height:
        raise ValueError(f"{path}: {len(rows)} rows follow 'map': the height is {height}")
    for number, row in enumerate(rows, first):
        if len(row) != width or not set(row) <= set(_PASSABLE + _BLOCKED):
            raise ValueError(f"{path}, line {number}: must be {width} cells out of {_PASSABLE + _BLOCKED}")
    if "E" in cells:
        warn_assumption(path, "E and S are free cells, as on the maps of the League of Robot Runners")
    return np.array([[cell in _BLOCKED for cell in row] for row in rows]).reshape(height, width)


def read_scenarios(scen_path: PathLike, agents: Sequence[int] | None = None) -> dict[str, Instance]:
    """Read the instances of a scenario by name, as the benchmarks are used: each has the first of a map's agents.

    Maps are read from the scenario's folder, whatever folder the rows name. The names are ``scenario_8ag``, and
    ``scenario_map_8ag`` where the rows name several maps. A map with one agent is one instance.

    Args:
      agents: how many agents the instances have; by default 2, 3, 4 and 5 on maps up to 10 x 10, on larger ones 2, 4,
        8, ... and 128, as far as the scenario has them.
    """
    maps: dict[str, list[_Row]] = {}
    for row in _read_rows(scen_path):
        maps.setdefault(row.map_name, []).append(row)
    instances: dict[str, Instance] = {}
    for map_name, rows in maps.items():
        blocked = read_map(Path(scen_path).with_name(map_name))
        usual = range(2, MAX_AGENTS + 1) if max(blocked.shape) <= MAX_SIZE else (2, 4, 8, 16, 32, 64, 128)
        numbers = [number for number in usual if number <= len(rows)] or [1] if agents is None else agents
        name = Path(scen_path).stem + (f"_{map_name.removesuffix('.map')}" if len(maps) > 1 else "")
        scenario = _on_map(scen_path, rows, blocked, max(numbers, default=0))
        instances |= first_agents(scen_path, {name: scenario}, numbers)
    return instances


def read_scenario(map_path: PathLike, scen_path: PathLike, num_agents: int) -> Instance:
    """Read an instance (no batch axes, numpy): agent i has row i, from 0 on, of those that name the map's file.

    ``max_size`` is the longer side of the map and ``max_agents`` is ``num_agents``. Bucket and optimal length are not
    used: the length is that of one agent alone that may move diagonally. A UserWarning says what the file leaves out:
    the version, or the map's size (0 x 0), which is then that of its file.
    """
    rows = [row for row in _read_rows(scen_path) if row.map_name == Path(map_path).name]
    return _on_map(scen_path, rows, read_map(map_path), num_agents)


def first_agents(path: PathLike, scenarios: dict[str, Instance], numbers: Sequence[int]) -> dict[str, Instance]:
    """Return each scenario with the first of its agents, once for each number, as ``name_8ag``; else ValueError."""
    parts = {}
    for name, instance in scenarios.items():
        for number in numbers:
            whole_number(f"{os.fspath(path)}, {name}: agents", number, 1, instance.max_agents)
            ends = {"starts": instance.starts[:number], "goals": instance.goals[:number]}
            parts[f"{name}_{number}ag"] = instance.replace(num_agents=np.asarray(number, np.int32), **ends)
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


def warn_assumption(path: PathLike, assumption: str) -> None:
    """Give a UserWarning of one line with what a file does not say, or says otherwise, and what is assumed."""
    warnings.warn(f"{os.fspath(path)}: {assumption}", stacklevel=3)


def _on_map(path: PathLike, rows: Sequence[_Row], blocked: np.ndarray, num_agents: int) -> Instance:
    """Return the instance of the first rows of a map."""
    if not 1 <= num_agents <= len(rows):
        raise ValueError(f"{path}: has {len(rows)} rows of the map, for 1 to as many agents and not {num_agents}")
    height, width = blocked.shape
    for row in rows:
        if row.shape not in (blocked.shape, (0, 0)):
            size = f"{row.shape[1]} x {row.shape[0]}"
            raise ValueError(
                f"{path}: {row.map_name} is {size}: it must be {width} x {height} as in its file, or 0 x 0"
            )
    starts, goals = ([getattr(row, end) for row in rows[:num_agents]] for end in ("start", "goal"))
    return instance_on_map(os.fspath(path), blocked, starts, goals)


def _read_rows(path: PathLike) -> list[_Row]:
    """Return the rows of a scenario, at least one."""
    lines = _lines(path)
    version = lines[0].split()[:1] == ["version"]
    rows: list[_Row] = []
    for number, line in enumerate(lines[version:], 1 + version):
        # Tabulators separate the columns; some old files have spaces instead.
        words = [word.strip() for word in line.split("\t" if "\t" in line else None)]
        if len(words) == 9 and all(re.fullmatch("[0-9]{1,9}", word) for word in words[2:8]):
            width, height, start_x, start_y, goal_x, goal_y = map(int, words[2:8])
            name = PureWindowsPath(words[1]).name  # knows both kinds of slashes
            rows.append(_Row(name, (height, width), (start_y, start_x), (goal_y, goal_x)))
        elif words not in ([], [""]):
            columns = "bucket, map, width, height, start x, start y, goal x, goal y, optimal length"
            raise ValueError(f"{path}, line {number}: must have the nine columns {columns}")
    if not rows:
        raise ValueError(f"{path}: the file has no row for an agent")
    left_out = ["version"] * (not version) + ["size of the map"] * any(row.shape == (0, 0) for row in rows)
    if left_out:
        warn_assumption(path, f"no {' and no '.join(left_out)}: read as version 1, with the size in the map's file")
    return rows


def _lines(path: PathLike) -> list[str]:
    """Lines without the blanks at their ends, and without a byte-order mark before the first."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    return [line.rstrip() for line in text.rstrip().splitlines()] or [""]

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

from jaxlake.arguments import short_repr, whole_number
from jaxlake.levels import build, validate
from jaxlake.types import MAX_AGENTS, MAX_SIZE, Instance

_PASSABLE = ".GSE"
_BLOCKED = "@OTW"
_TYPE = "octile|tile", "octile or tile"
_NUMBER = "[0-9]{1,9}", "a whole number from 0 on"  # Not str.isdecimal, which takes the digits of every script.
_LENGTH = r"[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", "a number from 0 on"
_FILE = r"[^\0]*[^\0/\\:.]", "the name of a file"
_HEADER = {"type": _TYPE, "height": _NUMBER, "width": _NUMBER}
_ENDS = ("start x", "start y", "goal x", "goal y")
_COLUMNS = {"bucket": _NUMBER, "map": _FILE} | dict.fromkeys(("width", "height", *_ENDS), _NUMBER)
_COLUMNS["optimal length"] = _LENGTH

PathLike = str | os.PathLike[str]
Cell = tuple[int, int]


class _Row(NamedTuple):
    """One agent: the number of its line, its map, the map's ``(height, width)``, and (row, column) cells."""

    line: int
    map_name: str
    shape: tuple[int, int]
    start: Cell
    goal: Cell


def read_map(path: PathLike) -> np.ndarray:
    """Read a map, bool ``[height, width]``, True where no agent can stand.

    ``.``, ``G``, ``S`` (swamp, or a service point) and ``E`` (emitter) can be entered; ``@``, ``O``, ``T`` (trees) and
    ``W`` (water, which can be entered from water alone) cannot. Other programs are known to enter ``.`` alone. A header
    without ``type`` is read. A UserWarning says where ``E`` occurs, which only the League of Robot Runners has.

    Raises:
      OSError: if it cannot be read.
      ValueError: naming the file, the line and the fault.
    """
    lines = _lines(path)
    if "map" not in lines:
        raise _fault(path, len(lines), "the line 'map' is missing")
    first = lines.index("map") + 1
    header: dict[str, str] = {}
    for number, line in enumerate(lines[: first - 1], 1):
        key, value = [*line.split(maxsplit=1), "", ""][:2]
        if key in header or (key and key not in _HEADER):
            raise _fault(path, number, f"{short_repr(line)} must be one of the lines {', '.join(_HEADER)}, each once")
        if key:
            header[key] = _checked(path, number, key, value, _HEADER[key])
    for name in ("height", "width"):
        if name not in header:
            raise _fault(path, first, f"there is no line '{name}' with a whole number above 'map'")
    height, width = int(header["height"]), int(header["width"])
    rows = lines[first:]
    if len(rows) != height:
        raise _fault(path, len(lines), f"{len(rows)} rows follow 'map': the height is {height}")
    for number, row in enumerate(rows, first + 1):
        if len(row) != width or not set(row) <= set(_PASSABLE + _BLOCKED):
            cells = " ".join(_PASSABLE + _BLOCKED)
            raise _fault(path, number, f"{short_repr(row)} must be {width} cells out of {cells}")
    if any("E" in row for row in rows):
        warn_assumption(path, "E and S are free cells, as on the maps of the League of Robot Runners")
    return np.array([[cell in _BLOCKED for cell in row] for row in rows]).reshape(height, width)


def read_scenarios(scen_path: PathLike, agents: Sequence[int] | None = None) -> dict[str, Instance]:
    """Read the instances of a scenario by name, as the benchmarks are used: each has the first of a map's agents.

    Maps are read from the scenario's folder, whatever folder the rows name. The names are ``scenario_8ag``, and
    ``scenario_map_8ag`` where the rows name several maps. A map with one agent is one instance.

    Args:
      agents: how many agents the instances have; by default 2, 3, 4 and 5 on maps up to 10 x 10, on larger ones 2, 4,
        8, ... and 128, as far as the scenario has them.

    Raises:
      OSError: if the scenario cannot be read.
      ValueError: as ``read_scenario`` does, and naming the first row of a map that cannot be read.
    """
    maps: dict[str, tuple[np.ndarray, list[_Row]]] = {}
    for row in _read_rows(scen_path):
        title = _file_name(row).removesuffix(".map")
        if title not in maps:
            try:
                maps[title] = read_map(Path(scen_path).with_name(_file_name(row))), []
            except OSError as error:
                fault = f"the map {row.map_name} must be in the folder of the scenario: {error}"
                raise _fault(scen_path, row.line, fault) from None
        blocked, rows = maps[title]
        rows.append(row)
        if row.map_name != rows[0].map_name:
            first = f"{rows[0].map_name} of line {rows[0].line}"
            raise _fault(scen_path, row.line, f"{row.map_name} must not have the file name of {first}")
    instances: dict[str, Instance] = {}
    for title, (blocked, rows) in maps.items():
        usual = range(2, MAX_AGENTS + 1) if max(blocked.shape) <= MAX_SIZE else (2, 4, 8, 16, 32, 64, 128)
        numbers = [number for number in usual if number <= len(rows)] or [1] if agents is None else agents
        scenario = _on_map(scen_path, rows, blocked, max(numbers, default=0))
        name = Path(scen_path).stem if len(maps) == 1 else f"{Path(scen_path).stem}_{title}"
        instances |= first_agents(scen_path, {name: scenario}, numbers)
    return instances


def read_scenario(map_path: PathLike, scen_path: PathLike, num_agents: int) -> Instance:
    """Read an instance (no batch axes, numpy): agent i has row i, from 0 on, of those that name the map's file.

    ``max_size`` is the longer side of the map and ``max_agents`` is ``num_agents``. Bucket and optimal length are not
    used: the length is that of one agent alone that may move diagonally. A UserWarning says what the file leaves out:
    the version, or the map's size (0 x 0), which is then that of its file.

    Raises:
      OSError: if the scenario or the map cannot be read.
      ValueError: naming the file, the line and the fault: what cannot be read, a map of another size (the page's
        scaling is not done), and a start or goal that is outside the map, blocked, or that of another agent.
    """
    blocked, name = read_map(map_path), Path(map_path).name
    rows = _read_rows(scen_path)
    own = [row for row in rows if _file_name(row) == name]
    if not own:
        raise _fault(scen_path, rows[0].line, f"the map is {rows[0].map_name}: it must be {name}, here or below")
    return _on_map(scen_path, own, blocked, num_agents)


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
    """Return the instance of a map, bool ``[height, width]``, and (row, column) cells; ValueError naming ``where``."""
    free = ~blocked
    if not ((free[1:] & free[:-1]).any() or (free[:, 1:] & free[:, :-1]).any()):
        raise ValueError(f"{where}: no two free cells of the map are side by side: no agent can move")
    if len(starts) > free.sum():
        raise ValueError(f"{where}: {len(starts)} agents: the map has {free.sum()} free cells")
    size = max(blocked.shape)
    holes = np.ones((size, size), bool)
    holes[: blocked.shape[0], : blocked.shape[1]] = blocked
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
    num_agents = whole_number("num_agents", num_agents, 1)
    if len(rows) < num_agents:
        raise _fault(path, rows[-1].line, f"{rows[0].map_name} has no further row: {len(rows)} of {num_agents} agents")
    height, width = blocked.shape
    starts: dict[Cell, int] = {}  # And the lines that they are on.
    goals: dict[Cell, int] = {}
    for row in rows[:num_agents]:
        if row.shape not in (blocked.shape, (0, 0)):
            size = f"{row.shape[1]} x {row.shape[0]}"
            raise _fault(path, row.line, f"the map is {size}: it must be {width} x {height} as in its file, or 0 x 0")
        for name, (y, x), lines in (("start", row.start, starts), ("goal", row.goal, goals)):
            where = f"the {name} (x={x}, y={y})"
            if y >= height or x >= width or blocked[y, x]:
                raise _fault(path, row.line, f"{where} must be a free cell of the {width} x {height} map")
            if (y, x) in lines:
                raise _fault(path, row.line, f"{where} must differ from that of line {lines[y, x]}")
            lines[y, x] = row.line
    return instance_on_map(os.fspath(path), blocked, list(starts), list(goals))


def _read_rows(path: PathLike) -> list[_Row]:
    """Return the rows of a scenario, at least one."""
    lines = _lines(path)
    version = lines[0].split()[:1] == ["version"]
    if version and not re.fullmatch(r"version\s+1(\.0*)?", lines[0]):
        raise _fault(path, 1, f"{short_repr(lines[0])} must be 'version 1'")
    rows: list[_Row] = []
    for number, line in enumerate(lines[version:], 1 + version):
        # Tabulators separate the columns; some old files have spaces instead.
        words = [word.strip() for word in line.split("\t" if "\t" in line else None)]
        if len(words) == len(_COLUMNS) - 2 and not version:
            words[2:2] = ["0", "0"]  # HOG's version 0 has no sizes.
        if words and len(words) != len(_COLUMNS):
            must = f"the row must have the {len(_COLUMNS)} columns {', '.join(_COLUMNS)}"
            raise _fault(path, number, must if rows or version else f"the first line is not 'version 1', and {must}")
        if words:
            rows.append(_row(path, number, words))
    if not rows:
        raise _fault(path, len(lines), "the file ends without a row for an agent")
    left_out = ["version"] * (not version) + ["size of the map"] * any(row.shape == (0, 0) for row in rows)
    if left_out:
        warn_assumption(path, f"no {' and no '.join(left_out)}: read as version 1, with the size in the map's file")
    return rows


def _row(path: PathLike, line: int, words: Sequence[str]) -> _Row:
    for (column, must), word in zip(_COLUMNS.items(), words, strict=True):
        _checked(path, line, column, word, must)
    width, height, start_x, start_y, goal_x, goal_y = map(int, words[2:8])
    # As Windows writes paths: it knows both kinds of slashes.
    name = PureWindowsPath(words[1]).as_posix()
    return _Row(line, name, (height, width), (start_y, start_x), (goal_y, goal_x))


def _checked(path: PathLike, line: int, name: str, word: str, must: tuple[str, str]) -> str:
    """Return a word that matches the pattern, the first of ``must``."""
    if not re.fullmatch(must[0], word):
        raise _fault(path, line, f"{name} = {short_repr(word)} must be {must[1]}")
    return word


def _file_name(row: _Row) -> str:
    return row.map_name.rpartition("/")[2]


def _lines(path: PathLike) -> list[str]:
    """Lines without the blanks at their ends, and without a byte-order mark before the first."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    return [line.rstrip() for line in text.rstrip().splitlines()] or [""]


def _fault(path: PathLike, line: int, fault: str) -> ValueError:
    return ValueError(f"{os.fspath(path)}, line {line}: {fault}")

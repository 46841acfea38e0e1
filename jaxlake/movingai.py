"""Reads the ``.map`` and ``.scen`` files of the MovingAI benchmarks; solves nothing.

Both formats as Nathan Sturtevant's page of the benchmarks describes them. A file counts (x, y) = (column, row) from the
top left corner. A board here is square: a map of another form is set into the top left corner of a square whose rest is
holes, which changes no path. Whoever needs the map as it was reads it with ``read_map``.
"""

import os
from pathlib import Path, PureWindowsPath

import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.levels import build
from jaxlake.types import MAX_AGENTS, Instance

_PASSABLE = ".GS"
_BLOCKED = "@OTW"
_FIELDS = ("bucket", "map", "width", "height", "start x", "start y", "goal x", "goal y", "optimal length")

PathLike = str | os.PathLike[str]


def read_map(path: PathLike) -> np.ndarray:
    """Read a map, bool ``[height, width]``, True where nobody can stand.

    ``.``, ``G`` and ``S`` (swamp) can be entered; ``@``, ``O``, ``T`` (trees) and ``W`` (water, which can be entered
    from water alone) cannot. Other programs are known to enter ``.`` alone.

    Raises:
      ValueError: naming the file, the line and the fault.
    """
    lines = _lines(path)
    header: dict[str, int] = {}
    for index, line in enumerate(lines):
        words = line.split()
        if words == ["map"]:
            break
        if len(words) == 2 and words[0] in ("height", "width") and words[1].isdecimal() and int(words[1]) > 0:
            header[words[0]] = int(words[1])
        elif words and words[0] != "type":
            raise _fault(path, index, f"{line!r} is neither 'type octile', 'height H', 'width W' nor 'map'")
    else:
        raise _fault(path, max(len(lines) - 1, 0), "the line 'map' is missing")
    missing = [name for name in ("height", "width") if name not in header]
    if missing:
        raise _fault(path, index, f"the line '{missing[0]} ...' is missing above 'map'")

    rows = lines[index + 1 :]
    height, width = header["height"], header["width"]
    while len(rows) > height and not rows[-1]:
        rows.pop()
    if len(rows) != height:
        raise _fault(path, len(lines) - 1, f"{len(rows)} rows follow 'map': the height is {height}")
    for number, row in enumerate(rows, index + 1):
        if len(row) != width:
            raise _fault(path, number, f"the row has {len(row)} cells: the width is {width}")
        unknown = set(row) - set(_PASSABLE + _BLOCKED)
        if unknown:
            raise _fault(path, number, f"{min(unknown)!r} is none of {' '.join(_PASSABLE + _BLOCKED)}")
    return np.array([[cell in _BLOCKED for cell in row] for row in rows])


def read_scenarios(scen_path: PathLike) -> dict[str, Instance]:
    """Read the instances of a scenario by name, as the benchmarks are used: the first 2, 3, ... and 5 of its agents.

    The map is the one that the first row names, in the scenario's folder. A scenario of one agent is one instance.

    Raises:
      OSError: if scenario or map cannot be read.
      ValueError: as ``read_scenario`` does.
    """
    rows = _agent_rows(scen_path, 1)
    map_path = Path(scen_path).with_name(PureWindowsPath(_fields(scen_path, *rows[0])[1]).name)
    most = min(len(rows), MAX_AGENTS)
    name = Path(scen_path).stem
    return {f"{name}_{n}ag": read_scenario(map_path, scen_path, n) for n in range(min(most, 2), most + 1)}


def read_scenario(map_path: PathLike, scen_path: PathLike, num_agents: int) -> Instance:
    """Read an instance (no batch axes, numpy): agent i has row i of the scenario, counted from 0.

    ``max_size`` is the longer side of the map and ``max_agents`` is ``num_agents``. Bucket, name of the map and optimal
    length are not used: the length is that of one agent alone that may move diagonally.

    Raises:
      ValueError: naming the file, the line and the fault: a row that cannot be read or is missing, a map of another
        size, a start or goal outside the map or blocked, or one that another of these agents has.
    """
    whole_number("num_agents", num_agents, 1)
    blocked = read_map(map_path)
    numbered = _agent_rows(scen_path, num_agents)
    size = max(blocked.shape)
    taken: dict[tuple[str, int], int] = {}
    ends: dict[str, list[int]] = {"start": [], "goal": []}
    for agent, (index, line) in enumerate(numbered[:num_agents]):
        for name, (x, y) in _read_row(scen_path, index, line, blocked.shape).items():
            if not (x < blocked.shape[1] and y < blocked.shape[0]):
                raise _fault(scen_path, index, f"the {name} x={x} y={y} is outside the map")
            if blocked[y, x]:
                raise _fault(scen_path, index, f"the {name} x={x} y={y} is blocked on the map")
            other = taken.setdefault((name, y * size + x), agent)
            if other != agent:
                raise _fault(scen_path, index, f"the {name} x={x} y={y} is that of agent {other} as well")
            ends[name].append(y * size + x)

    holes = np.ones((size, size), bool)
    holes[: blocked.shape[0], : blocked.shape[1]] = blocked
    return build(size, holes, ends["start"], ends["goal"])


def _agent_rows(path: PathLike, num_agents: int) -> list[tuple[int, str]]:
    """The lines of a scenario that are of agents, each with its number, at least those that are asked for."""
    lines = _lines(path)
    if not lines or lines[0].split()[:1] != ["version"]:
        raise _fault(path, 0, "the first line is not 'version 1'")
    numbered = [(index, line) for index, line in enumerate(lines) if index and line]
    if len(numbered) < num_agents:
        raise _fault(path, len(lines) - 1, f"the file ends after {len(numbered)} of {num_agents} agents")
    return numbered


def _lines(path: PathLike) -> list[str]:
    """Lines without the blanks at their ends, and without a byte-order mark before the first."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    return [line.rstrip() for line in text.splitlines()]


def _fault(path: PathLike, index: int, fault: str) -> ValueError:
    return ValueError(f"{os.fspath(path)}, line {index + 1}: {fault}")


def _read_row(path: PathLike, index: int, line: str, shape: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """(x, y) of start and goal."""
    words = _fields(path, index, line)
    for field, word in zip(_FIELDS[2:8], words[2:8], strict=True):
        if not word.isdecimal():
            raise _fault(path, index, f"the {field} = {word!r} must be a whole number from 0 on")
    width, height, start_x, start_y, goal_x, goal_y = map(int, words[2:8])
    if (height, width) != shape:
        raise _fault(path, index, f"width {width} and height {height}: those of the map are {shape[1]} and {shape[0]}")
    return {"start": (start_x, start_y), "goal": (goal_x, goal_y)}


def _fields(path: PathLike, index: int, line: str) -> list[str]:
    """The columns of a row, separated by tabulators; some old files have spaces instead."""
    words = [word.strip() for word in line.split("\t" if "\t" in line else None)]
    if len(words) != len(_FIELDS):
        raise _fault(
            path, index, f"the row has {len(words)} columns: it must have {len(_FIELDS)}, {', '.join(_FIELDS)}"
        )
    return words

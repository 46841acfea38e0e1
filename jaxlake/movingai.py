"""Reads the ``.map`` and ``.scen`` files of the MovingAI benchmarks; solves nothing.

Both formats as Nathan Sturtevant's page of the benchmarks describes them. A file counts (x, y) = (column, row) from the
top left corner. A board here is square: a map of another form is set into the top left corner of a square whose rest is
holes, which changes no path.
"""

import os
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath

import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.levels import build, validate
from jaxlake.types import MAX_AGENTS, MAX_SIZE, Instance

_PASSABLE = ".GS"
_BLOCKED = "@OTW"
_FIELDS = ("bucket", "map", "width", "height", "start x", "start y", "goal x", "goal y", "optimal length")

PathLike = str | os.PathLike[str]
Cell = tuple[int, int]


def read_map(path: PathLike) -> np.ndarray:
    """Read a map, bool ``[height, width]``, True where nobody can stand.

    ``.``, ``G`` and ``S`` (swamp) can be entered; ``@``, ``O``, ``T`` (trees) and ``W`` (water, which can be entered
    from water alone) cannot. Other programs are known to enter ``.`` alone.

    Raises:
      ValueError: naming the file, the line and the fault.
    """
    lines = _lines(path)
    if "map" not in lines:
        raise _fault(path, len(lines), "the line 'map' is missing")
    first = lines.index("map") + 1
    header = dict(line.split(maxsplit=1) for line in lines[: first - 1] if len(line.split()) > 1)
    for name in ("height", "width"):
        if not header.get(name, "").isdecimal():
            raise _fault(path, first, f"there is no line '{name}' with a whole number above 'map'")
    height, width = int(header["height"]), int(header["width"])
    rows = lines[first:]
    if len(rows) != height:
        raise _fault(path, len(lines), f"{len(rows)} rows follow 'map': the height is {height}")
    for number, row in enumerate(rows, first + 1):
        if len(row) != width or not set(row) <= set(_PASSABLE + _BLOCKED):
            raise _fault(path, number, f"{row!r} must be {width} cells out of {' '.join(_PASSABLE + _BLOCKED)}")
    return np.array([[cell in _BLOCKED for cell in row] for row in rows]).reshape(height, width)


def read_scenarios(scen_path: PathLike, agents: Sequence[int] | None = None) -> dict[str, Instance]:
    """Read the instances of a scenario by name, as the benchmarks are used: each has the first of its agents.

    The map is the one that the first row names, in the scenario's folder. A scenario of one agent is one instance.

    Args:
      agents: how many agents the instances have; by default 2, 3, 4 and 5 on maps up to 10 x 10, on larger ones 2, 4,
        8, ... and 128, as far as the scenario has them.

    Raises:
      OSError: if scenario or map cannot be read.
      ValueError: as ``read_scenario`` does.
    """
    rows = _agent_rows(scen_path, 1)
    map_path = Path(scen_path).with_name(PureWindowsPath(rows[0][1][1]).name)
    if agents is None:
        small = max(read_map(map_path).shape) <= MAX_SIZE
        usual = range(2, MAX_AGENTS + 1) if small else (2, 4, 8, 16, 32, 64, 128)
        agents = [number for number in usual if number <= len(rows)] or [1]
    scenario = read_scenario(map_path, scen_path, max(agents, default=0))
    return first_agents(scen_path, {Path(scen_path).stem: scenario}, agents)


def read_scenario(map_path: PathLike, scen_path: PathLike, num_agents: int) -> Instance:
    """Read an instance (no batch axes, numpy): agent i has row i of the scenario, counted from 0.

    ``max_size`` is the longer side of the map and ``max_agents`` is ``num_agents``. Bucket, name of the map and optimal
    length are not used: the length is that of one agent alone that may move diagonally.

    Raises:
      ValueError: naming the file, the line and the fault of a row that cannot be read, or the agent whose start or goal
        is outside the map, blocked, or that of another.
    """
    blocked = read_map(map_path)
    starts, goals = [], []
    for number, words in _agent_rows(scen_path, whole_number("num_agents", num_agents, 1))[:num_agents]:
        if not all(word.isdecimal() for word in words[2:8]):
            raise _fault(scen_path, number, f"{', '.join(_FIELDS[2:8])} must be whole numbers from 0 on")
        width, height, start_x, start_y, goal_x, goal_y = map(int, words[2:8])
        if (height, width) != blocked.shape:
            raise _fault(scen_path, number, f"the map is {width} x {height} here, its file {blocked.shape[::-1]}")
        if max(start_x, goal_x) >= width or max(start_y, goal_y) >= height:
            raise _fault(scen_path, number, "the start or the goal is outside the map")
        starts.append((start_y, start_x))
        goals.append((goal_y, goal_x))
    return instance_on_map(os.fspath(scen_path), blocked, starts, goals)


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
        raise ValueError(f"{where}: no two free cells of the map are side by side: nobody can move")
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


def _agent_rows(path: PathLike, num_agents: int) -> list[tuple[int, list[str]]]:
    """The columns of the agents' rows, each with its line number, at least as many rows as are asked for."""
    lines = _lines(path)
    if not lines or lines[0].split()[:1] != ["version"]:
        raise _fault(path, 1, "the first line is not 'version 1'")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        # Tabulators separate the columns; some old files have spaces instead.
        words = [word.strip() for word in line.split("\t" if "\t" in line else None)]
        if line and len(words) != len(_FIELDS):
            raise _fault(path, number, f"the row must have the {len(_FIELDS)} columns {', '.join(_FIELDS)}")
        rows += [(number, words)] if line else []
    if len(rows) < num_agents:
        raise _fault(path, len(lines), f"the file ends after {len(rows)} of {num_agents} agents")
    return rows


def _lines(path: PathLike) -> list[str]:
    """Lines without the blanks at their ends, and without a byte-order mark before the first."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _fault(path: PathLike, line: int, fault: str) -> ValueError:
    return ValueError(f"{os.fspath(path)}, line {line}: {fault}")

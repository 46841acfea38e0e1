"""Reads the problem files of the League of Robot Runners; plays nothing.

A problem is a JSON object that names a map of MovingAI's format, a file of agents and one of tasks, as paths from its
own folder. These two have a count, and below it as many lines with cells ``row * columns + column`` of the map: the
start of an agent, or a task's cell; since 2024 a task may have several, with commas between. ``#`` begins a comment.
"""

import math
import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from jaxlake import lifelong
from jaxlake.arguments import short_repr, whole_number
from jaxlake.files import Record, from_json, lines
from jaxlake.flood import LARGEST_SIDE
from jaxlake.movingai import Cell, PathLike, instance_on_map, read_map, warn_assumption
from jaxlake.types import ABSENT, MAX_GOALS, Instance

_READ = {"mapFile", "agentFile", "taskFile", "teamSize", "taskAssignmentStrategy", "numTasksReveal", "version"}


def read_scenarios(path: PathLike, agents: Sequence[int] | None = None) -> dict[str, Instance]:
    """Read the boards of a problem by name, each a ``LifelongInstance`` for ``goals="listed"``; no batch axes, numpy.

    Of n agents the first gets tasks 0, n, 2 n and so on, the next one 1, n + 1, and after the last task comes task 0,
    as under the League's strategy ``roundrobin``. Each cell of a task is a goal. A UserWarning says which settings have
    no meaning here: another strategy (or none, as since 2024), times of moves, delays.

    Args:
      agents: how many agents, the first of the file, the boards have, which are then called ``name_8ag``; by default
        one board called ``name`` with ``teamSize`` agents.

    Raises:
      OSError: if a file cannot be read.
      ValueError: naming the file, the line or key and the fault: what cannot be read, a file that is not there, a count
        that is not that of the lines, a cell off the map, on an obstacle or out of reach, no more tasks than agents,
        and a map larger than 181 x 181.
    """
    path = Path(path)
    boards: dict[str, Instance] = {}
    try:
        problem = from_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(problem, dict):
        raise ValueError(f"{path}: {short_repr(problem)} must be a JSON object")
    map_path, agent_path, task_path = (_file(path, problem, key) for key in ("mapFile", "agentFile", "taskFile"))
    blocked = read_map(map_path)
    if (side := max(blocked.shape)) > LARGEST_SIDE:
        raise ValueError(f"{path}: the board is {side}x{side}: it must be at most {LARGEST_SIDE} a side")
    starts = [cell for [cell] in _read_cells(agent_path, blocked, several=False)]
    tasks = _read_cells(task_path, blocked, several=True)
    team = whole_number(f"{path}: teamSize", problem.get("teamSize"), 1, len(starts))
    foreign = ["taskAssignmentStrategy"] * (problem.get("taskAssignmentStrategy") != "roundrobin")
    if foreign := foreign + sorted(problem.keys() - _READ):
        rules = "tasks are dealt round-robin, and an agent moves a cell a step"
        warn_assumption(path, f"{rules}, whatever {', '.join(foreign)} may say")
    for name, count in [(path.stem, team)] if agents is None else [(f"{path.stem}_{n}ag", n) for n in agents]:
        count = whole_number(f"{agent_path}: agents", count, 1, len(starts))
        if len(tasks) <= count:
            raise ValueError(f"{task_path}: {len(tasks)} tasks for {count} agents: it must have more tasks than agents")
        instance = instance_on_map(str(agent_path), blocked, starts[:count], starts[:count])
        turns = min(len(tasks) // math.gcd(len(tasks), count), MAX_GOALS)
        dealt = [[tasks[(agent + turn * count) % len(tasks)] for turn in range(turns)] for agent in range(count)]
        goals = [[row * side + column for task in own for row, column in task][:MAX_GOALS] for own in dealt]
        try:
            boards[name] = lifelong.board(instance, np.array([*zip_longest(*goals, fillvalue=ABSENT)], np.int32).T)
        except ValueError as error:
            raise ValueError(f"{task_path}: {error}") from None
    return boards


def _file(path: Path, problem: Record, key: str) -> Path:
    name = problem.get(key)
    if not (isinstance(name, str) and (path.parent / name).is_file()):
        raise ValueError(f"{path}: {key} = {short_repr(name)} must be the path of a file, from the folder of this one")
    return path.parent / name


def _read_cells(path: Path, blocked: np.ndarray, several: bool) -> list[list[Cell]]:
    """Return the (row, column) cells of each line below the count: one, or at least one where there may be several."""
    rows: list[list[Cell]] = []
    count: int | None = None
    (height, width), first = blocked.shape, f"{path}, line 1"
    for number, line in lines(path.read_text(encoding="utf-8-sig", errors="replace")):
        if line.startswith("#"):
            continue
        words, where = [word.strip() for word in line.split(",")], f"{path}, line {number}"
        one = count is None or not several
        if not all(re.fullmatch("[0-9]{1,9}", word) for word in words) or (one and len(words) > 1):
            must = "a whole number from 0 on" if one else "whole numbers from 0 on, with commas between them"
            raise ValueError(f"{where}: {short_repr(line.strip())} must be {must}")
        if count is None:
            count, first = int(words[0]), where
            continue
        rows.append([divmod(int(word), width or 1) for word in words])
        for word, (row, column) in zip(words, rows[-1], strict=True):
            if row >= height or blocked[row, column]:
                cell = f"{word} (row {row}, column {column})"
                raise ValueError(f"{where}: {cell} must be a free cell of the {width} x {height} map")
    if count != len(rows):
        raise ValueError(f"{first}: the count is {count}: it must be that of the lines with cells below, {len(rows)}")
    return rows

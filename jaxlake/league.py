"""Reads the problem files of the League of Robot Runners; plays nothing.

A problem is a JSON object that names a map of MovingAI's format, a file of agents and one of tasks, as paths from its
own folder. These two have a count, and below it as many lines with cells ``row * columns + column`` of the map: the
start of an agent, or a task's cell; since 2024 a task may have several, with commas between. ``#`` begins a comment.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.files import read_json
from jaxlake.movingai import Cell, PathLike, instance_on_map, read_map, warn_assumption, with_goal_lists
from jaxlake.types import MAX_GOALS, Instance

_READ = {"mapFile", "agentFile", "taskFile", "teamSize", "taskAssignmentStrategy", "numTasksReveal", "version"}


def read_scenarios(path: PathLike, agents: Sequence[int] | None = None) -> dict[str, Instance]:
    """Read the boards of a problem by name, each a ``LifelongInstance`` for ``goals="listed"``; no batch axes, numpy.

    Of n agents the first gets tasks 0, n, 2 n and so on, the next one 1, n + 1, and after the last task comes task 0,
    as under the League's strategy ``roundrobin``. Each cell of a task is a goal. A UserWarning says which settings have
    no meaning here: another strategy (or none, as since 2024), times of moves, delays.

    Args:
      agents: how many agents, the first of the file, the boards have, which are then called ``name_8ag``; by default
        one board called ``name`` with ``teamSize`` agents.
    """
    path = Path(path)
    try:
        problem = read_json(path.read_text(encoding="utf-8-sig"))
        names = (problem[key].replace("\\", "/") for key in ("mapFile", "agentFile", "taskFile"))
        map_path, agent_path, task_path = (path.parent / name for name in names)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a problem of the League of Robot Runners: {error!r}") from None
    blocked = read_map(map_path)
    starts = [task[0] for task in _read_cells(agent_path, blocked)]
    tasks = _read_cells(task_path, blocked)
    foreign = ["taskAssignmentStrategy"] * (problem.get("taskAssignmentStrategy") != "roundrobin")
    if foreign := foreign + sorted(problem.keys() - _READ):
        rules = "tasks are dealt round-robin, and an agent moves a cell a step"
        warn_assumption(path, f"{rules}, whatever {', '.join(foreign)} may say")
    boards: dict[str, Instance] = {}
    teams = {path.stem: problem.get("teamSize")} if agents is None else {f"{path.stem}_{n}ag": n for n in agents}
    for name, team in teams.items():
        count = whole_number(f"{path}: teamSize or agents", team, 1, min(len(starts), len(tasks) - 1))
        instance = instance_on_map(str(agent_path), blocked, starts[:count], starts[:count])
        turns = min(len(tasks) // math.gcd(len(tasks), count), MAX_GOALS)
        dealt = [[tasks[(agent + turn * count) % len(tasks)] for turn in range(turns)] for agent in range(count)]
        goals = [[cell for task in own for cell in task][:MAX_GOALS] for own in dealt]
        boards[name] = with_goal_lists(str(task_path), instance, goals)
    return boards


def _read_cells(path: Path, blocked: np.ndarray) -> list[list[Cell]]:
    """Return the (row, column) cells of each line below the count, one or more."""
    height, width = blocked.shape
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    rows = [line for line in lines if line.strip() and not line.startswith("#")]
    try:
        [count], *cells = ([int(word) for word in row.split(",")] for row in rows)
    except ValueError:
        raise ValueError(f"{path}: must have a count, and below it cells, with commas between a task's") from None
    if count != len(cells):
        raise ValueError(f"{path}: the count is {count}: it must be that of the lines with cells below, {len(cells)}")
    for number in (number for row in cells for number in row):
        if not 0 <= number < height * width or blocked[divmod(number, width)]:
            raise ValueError(f"{path}: {number} must be a free cell of the {width} x {height} map")
    return [[divmod(number, width) for number in row] for row in cells]

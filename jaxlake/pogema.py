"""Reads the YAML files of maps and scenarios of POGEMA; solves nothing.

Both as pogema-toolbox and pogema-benchmark have them. A file of maps has the rows of each under its name, a file of
scenarios (``scenarios``, among settings that are not used here) names a map of the ``maps.yaml`` beside it and says
where agents start and go, as [row, column] from the top left corner:

    scenarios:
      Scenario-000:
        map_name: gap
        agents_xy: [[0, 0], [2, 2]]
        targets_xy: [[2, 0], [0, 2]]

On a map ``#`` is an obstacle and all else is free: ``.``, ``!``, ``@``, ``$``, and letters, of which ``a`` is the
start of an agent and ``A`` its goal, so that a map with letters is a scenario by itself.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from string import ascii_letters, ascii_lowercase
from typing import Any

import numpy as np

from jaxlake.movingai import Cell, PathLike, first_agents, instance_on_map, warn_assumption, with_goal_lists
from jaxlake.types import Instance


def read_scenarios(
    path: PathLike, agents: Sequence[int] | None = None, on_target: str = "nothing"
) -> dict[str, Instance]:
    """Read the instances of a file by name (no batch axes, numpy): of its scenarios, or else of its maps with letters.

    ``max_size`` is the longer side of the map and ``max_agents`` the number of agents: all that a scenario has, or as
    `first_agents` takes ``agents``. A UserWarning says where the file's ``environment`` has other rules than ``soft``
    collisions and the ``on_target`` by which the boards are to be played. A scenario whose targets are sequences is a
    ``LifelongInstance`` for ``goals="listed"`` under ``restart``; else the first goal of each counts, as in POGEMA.
    """
    entries = _read_yaml(path)
    if "scenarios" in entries:
        rules = {"on_target": on_target, "collision_system": "soft"}  # Under these a valid plan plays as it does here.
        for key, ours in rules.items():
            if (word := entries.get("environment", {}).get(key, ours)) != ours:
                warn_assumption(path, f"{key} = {word!r} is read as {ours!r}, as boards are played here")
        maps, entries = _read_yaml(Path(path).with_name("maps.yaml")), entries["scenarios"]
    else:
        maps = entries
    instances: dict[str, Instance] = {}
    for name, entry in entries.items():
        where = f"{os.fspath(path)}, {name}"
        try:
            if maps is entries:
                blocked, letters = _read_rows(entry)
                agents_of = [letter for letter in ascii_lowercase if {letter, letter.upper()} & letters.keys()]
                starts, goals = ([letters[end(a)] for a in agents_of] for end in (str.lower, str.upper))
                lists = [[goal] for goal in goals]
            else:
                blocked, _ = _read_rows(maps[entry["map_name"]])
                ends = zip(entry["agents_xy"], entry["targets_xy"], strict=True)
                starts, lists = zip(*(((int(y), int(x)), _goals(target)) for (y, x), target in ends), strict=True)
                goals = [own[0] for own in lists]
        except (IndexError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{where}: not of POGEMA's form: {error!r}") from None
        if on_target == "restart" and max(map(len, lists)) > 1:
            instances[str(name)] = with_goal_lists(where, instance_on_map(where, blocked, starts, starts), lists)
        else:
            instances[str(name)] = instance_on_map(where, blocked, starts, goals)
            if on_target == "restart" and "possible_targets_xy" in entry:
                warn_assumption(path, f"{name}: goals are drawn from all cells in reach, not from possible_targets_xy")
    return instances if agents is None else first_agents(path, instances, agents)


def _goals(target: list[Any]) -> list[Cell]:
    """Return the goal of an agent, or all of its sequence."""
    sequence = target if isinstance(target[0], list) else [target]
    return [(int(row), int(column)) for row, column in sequence]


def _read_rows(text: str) -> tuple[np.ndarray, dict[str, tuple[int, int]]]:
    """Return where a map is blocked, bool ``[height, width]``, and the cell of each letter."""
    rows = text.split()
    if len({len(row) for row in rows}) != 1 or not set("".join(rows)) <= set("#.!@$" + ascii_letters):
        raise ValueError("a map must be rows of as many characters, # . ! @ $ and letters")
    cells = np.array([list(row) for row in rows])
    letters = {str(cells[y, x]): (y, x) for y, x in np.argwhere(np.char.isalpha(cells)).tolist()}
    if len(letters) != np.char.isalpha(cells).sum():
        raise ValueError("a map must have each letter at most once: agents go from one a to one A")
    return cells == "#", letters


def _read_yaml(path: PathLike) -> dict[str, Any]:
    import yaml  # not at the top: what needs no YAML runs without it

    try:
        # libyaml's takes a tenth of the time of Python's, which is minutes for the scenarios of pogema-benchmark.
        entries = yaml.load(Path(path).read_text(encoding="utf-8-sig"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{os.fspath(path)}: not YAML: {' '.join(str(error).split())}") from None
    if not (isinstance(entries, dict) and entries):
        raise ValueError(f"{os.fspath(path)}: must have names of maps or scenarios, at least one")
    return entries

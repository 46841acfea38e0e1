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
start of an agent and ``A`` its goal, so that a map with letters is a scenario by itself. A board here is square: a map
of another form is set into the top left corner of a square whose rest is holes, which changes no path.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from jaxlake.arguments import short_repr
from jaxlake.files import is_path
from jaxlake.movingai import Cell, PathLike, first_agents, instance_on_map, warn_assumption
from jaxlake.types import Instance

_OBSTACLE = "#"
_FREE = ".!@$" + ascii_lowercase + ascii_uppercase


def read_scenarios(
    path: PathLike, agents: Sequence[int] | None = None, on_target: str = "nothing"
) -> dict[str, Instance]:
    """Read the instances of a file by name (no batch axes, numpy): of its scenarios, or else of its maps with letters.

    ``max_size`` is the longer side of the map and ``max_agents`` the number of agents: all that a scenario has, or as
    `first_agents` takes ``agents``. A UserWarning says where the file's ``environment`` has other rules than ``soft``
    collisions and the ``on_target`` by which the boards are to be played.

    Raises:
      OSError: if the file, or ``maps.yaml`` beside a file of scenarios, cannot be read.
      ModuleNotFoundError: if PyYAML is not installed.
      ValueError: naming the file, the scenario or map and the fault: what cannot be read or is missing, a key that no
        scenario has, a start or goal outside the map, on an obstacle, or that of another agent as well.
    """
    entries = _read_yaml(path)
    if "scenarios" not in entries:
        drawn = {name: _from_letters(f"{os.fspath(path)}, map {name}", rows) for name, rows in entries.items()}
        return drawn if agents is None else first_agents(path, drawn, agents)
    rules = {"on_target": on_target, "collision_system": "soft"}  # Under these a valid plan plays as it does here.
    environment = _mapping(f"{os.fspath(path)}, environment", entries.get("environment", rules))
    for key, ours in rules.items():
        if (word := environment.get(key, ours)) != ours:
            warn_assumption(path, f"{key} = {short_repr(word)} is read as {ours!r}, as boards are played here")
    maps_path = Path(path).with_name("maps.yaml")
    maps = _read_yaml(maps_path)
    instances = {}
    for name, entry in _mapping(f"{os.fspath(path)}, scenarios", entries["scenarios"]).items():
        where = f"{os.fspath(path)}, scenario {name}"
        unknown = _mapping(where, entry).keys() - {"map_name", "agents_xy", "targets_xy", "seed"}
        if unknown or type(entry.get("seed", 0)) is not int:
            key = min(unknown, default="seed")
            must = "map_name, agents_xy, targets_xy, or seed with a whole number"
            raise ValueError(f"{where}: {key} = {short_repr(entry.get(key))} must be {must}")
        map_name = entry.get("map_name")
        if str(map_name) not in maps:
            raise ValueError(f"{where}: map_name = {short_repr(map_name)} must be one of the maps in {maps_path}")
        rows = _rows(f"{maps_path}, map {map_name}", maps[str(map_name)])
        starts, goals = (_cells(where, key, entry.get(key)) for key in ("agents_xy", "targets_xy"))
        instances[name] = _instance(where, rows, starts, goals)
    return instances if agents is None else first_agents(path, instances, agents)


def _read_yaml(path: PathLike) -> dict[str, Any]:
    import yaml  # not at the top: what needs no YAML runs without it

    # libyaml's takes a tenth of the time of Python's, which is minutes for the scenarios of pogema-benchmark.
    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Refuses a name that a mapping has twice, as YAML says; PyYAML itself keeps the last of them."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if str(key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
                seen.add(str(key.value))
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8-sig"), Loader)
    except UnicodeDecodeError:
        raise ValueError(f"{os.fspath(path)}: the file is not text in UTF-8") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{os.fspath(path)}: not YAML: {' '.join(str(error).split())}") from None
    return _mapping(os.fspath(path), content)


def _mapping(where: str, value: Any) -> dict[str, Any]:
    if not (isinstance(value, Mapping) and value):
        raise ValueError(f"{where}: {short_repr(value)} must be a mapping from names, at least one")
    return {str(name): entry for name, entry in value.items()}


def _rows(where: str, text: Any) -> list[str]:
    if not (isinstance(text, str) and text.split()):
        raise ValueError(f"{where}: {short_repr(text)} must be rows of characters")
    rows = text.split()
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(f"{where}, row {number}: it has {len(row)} cells, row 0 has {len(rows[0])}")
        unknown = set(row) - set(_OBSTACLE + _FREE)
        if unknown:
            raise ValueError(f"{where}, row {number}: {min(unknown)!r} is none of # . ! @ $ and letters")
    return rows


def _cells(where: str, key: str, value: Any) -> list[Cell]:
    """[row, column] of each agent; the file calls them x and y."""
    if not (value and is_path(value)):
        raise ValueError(f"{where}: {key} = {short_repr(value)} must be a list with one [row, column] for each agent")
    return [(row, column) for row, column in value]


def _from_letters(where: str, text: Any) -> Instance:
    rows = _rows(where, text)
    drawn = "".join(rows)
    agents = [letter for letter in ascii_lowercase if letter in drawn.lower()]
    if not agents:
        raise ValueError(f"{where}: it has no letters for agents: ask for the file of scenarios that names it")
    for letter in (*agents, *map(str.upper, agents)):
        if drawn.count(letter) != 1:
            raise ValueError(f"{where}: {letter} is there {drawn.count(letter)} times: agents go from one a to one A")
    starts, goals = (
        [divmod(drawn.index(letter), len(rows[0])) for letter in letters]
        for letters in (agents, map(str.upper, agents))
    )
    return _instance(where, rows, starts, goals)


def _instance(where: str, rows: list[str], starts: list[Cell], goals: list[Cell]) -> Instance:
    height, width = len(rows), len(rows[0])
    if len(starts) != len(goals):
        raise ValueError(f"{where}: {len(starts)} agents_xy and {len(goals)} targets_xy: there must be as many")
    for row, column in (*starts, *goals):
        if not (0 <= row < height and 0 <= column < width):
            raise ValueError(f"{where}: [{row}, {column}] is outside the map of {height} rows and {width} columns")
    return instance_on_map(where, np.array([[cell == _OBSTACLE for cell in row] for row in rows]), starts, goals)

"""The file ``gains.jsonl`` of ``python -m rl.branch`` as values: what each design gained in each repeat. Reads only."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake import files
from jaxlake.arguments import is_number, short_repr, whole_number
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.statistics import mean_known

FILE = "gains.jsonl"
VERSION = 1
RANDOM = "random"
"""Origin of a design that was drawn at random."""
OF_KIND = "kind:"
"""How the origin of a design begins that has all data on one kind; the kind's label follows."""
SEVERAL = ", "
"""What stands between the names of engineers that proposed one design."""
_TOLERANCE = 1e-4
"""Difference of a gain from after less before up to which a file is taken to have rounded them."""

Line = dict[str, Any]
"""One branch as in the file, checked: ``config`` is a `LakeConfig`, ``by_kind`` maps a `Kind` to its gain."""


@dataclasses.dataclass(frozen=True)
class Design:
    """A configuration that was tried.

    Attributes:
      number: in its file.
      origin: who proposed it: "random", "kind:" and a label for all data on one kind, or names of engineers.
      config: what was trained on.
    """

    number: int
    origin: str
    config: LakeConfig

    @property
    def is_random(self) -> bool:
        """Whether it was drawn at random."""
        return self.origin == RANDOM

    @property
    def engineers(self) -> tuple[str, ...]:
        """The names of the engineers that proposed it; none where it was drawn or made of one kind."""
        return () if self.is_random or self.kind is not None else tuple(self.origin.split(SEVERAL))

    @property
    def kind(self) -> Kind | None:
        """The kind that has all data, of a design that was made so; else None."""
        return Kind.of(self.origin.removeprefix(OF_KIND)) if self.origin.startswith(OF_KIND) else None


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """The designs tried from one saved state, each in all repeats; K designs, R repeats, J validated kinds.

    Attributes:
      name: of the state.
      round: that the designs are for.
      updates: that each branch trained for.
      context: what an engineer would read there.
      before: share of valid plays before the branches, mean over them.
      designs: by ascending number.
      kinds: that were validated, ascending.
      gains: after less before, float ``[K, R]``.
      errors: standard errors of the gains over boards, float ``[K, R]``.
      kind_gains: gains on each kind, float ``[K, R, J]``.
      predictors: by name float ``[K]``, the mean over the repeats; NaN where not computed.
    """

    name: str
    round: int
    updates: int
    context: str
    before: float
    designs: tuple[Design, ...]
    kinds: tuple[Kind, ...]
    gains: np.ndarray
    errors: np.ndarray
    kind_gains: np.ndarray
    predictors: Mapping[str, np.ndarray]

    @property
    def repeats(self) -> int:
        """The number of repeats that all designs have."""
        return self.gains.shape[1]

    @property
    def random(self) -> np.ndarray:
        """Which designs were drawn at random, bool ``[K]``."""
        return np.array([design.is_random for design in self.designs])

    @property
    def trained_kinds(self) -> tuple[Kind, ...]:
        """The kinds that some design has all data on, ascending."""
        return tuple(sorted({design.kind for design in self.designs} - {None}))


@dataclasses.dataclass(frozen=True, eq=False)
class Branches:
    """What a file holds, as far as it is finished.

    Attributes:
      name: that of its directory.
      states: in the order of the file, each with at least two designs.
      left_out: designs that lack a repeat that others of their state have, and states without two others, in words.
    """

    name: str
    states: tuple[State, ...]
    left_out: tuple[str, ...]


def read(folder: str | Path) -> Branches:
    """Read ``gains.jsonl`` of a folder; a last line without its end is still being written, and is left out.

    Raises:
      ValueError: no such file, a line that is not a branch, one that is there twice or contradicts an earlier one, or
        no state with two designs; one line that names the file and, where there is one, the line.
      OSError: if the file cannot be read.
    """
    path = Path(folder) / FILE
    if not path.exists():
        raise ValueError(f"{path}: there is no such file; python -m rl.branch writes it")
    states: dict[str, dict[int, dict[int, Line]]] = {}

    def read_line(text: str) -> Line:
        line = _line(files.from_json(text))
        _file_under(states, line)
        return line

    files.read_parts(path, lambda text: files.lines(text.rpartition("\n")[0]), read_line, "branch")
    read_states, left_out = [], []
    for name, designs in states.items():
        repeats = {repeat for rows in designs.values() for repeat in rows}
        complete = {number: rows for number, rows in sorted(designs.items()) if len(rows) == len(repeats)}
        if len(complete) > 1:
            read_states.append(_state([[rows[repeat] for repeat in sorted(repeats)] for rows in complete.values()]))
            lacking = [f"design {number} of {name}" for number in designs if number not in complete]
            left_out += [f"{design} (lacks some of {len(repeats)} repeats)" for design in lacking]
        else:
            left_out.append(f"{name} ({len(complete)} designs with all {len(repeats)} repeats)")
    if not read_states:
        raise ValueError(f"{path}: {'; '.join(left_out)}: a state must have at least 2")
    return Branches(Path(folder).resolve().name, tuple(read_states), tuple(left_out))


def _line(entry: Any) -> Line:
    """Return the checked values of a line."""
    if not isinstance(entry, dict):
        raise ValueError(f"{short_repr(entry)} must be an object")
    if entry.get("version") != VERSION:
        raise ValueError(f"version = {short_repr(entry.get('version'))} must be {VERSION}")
    if missing := [key for key in _KEYS if key not in entry]:
        raise ValueError(f"{missing[0]} is missing")
    line: Line = {key: read_value(key, entry[key]) for key, read_value in _KEYS.items()}
    difference = line["after"] - line["before"]
    if abs(line["gain"] - difference) > _TOLERANCE:
        raise ValueError(f"gain = {line['gain']:g} must be after - before = {difference:g}")
    return line


def _file_under(states: dict[str, dict[int, dict[int, Line]]], line: Line) -> None:
    """File a line under state, design and repeat, if it does not contradict the first of its state and design."""
    name, number, repeat = line["state"], line["design"], line["repeat"]
    designs = states.setdefault(name, {})
    rows = designs.setdefault(number, {})
    if repeat in rows:
        raise ValueError(f"design {number}, repeat {repeat} of {name} is there twice")
    first_of_state = next((row for others in designs.values() for row in others.values()), line)
    first_of_design = next(iter(rows.values()), line)
    for key in ("round", "updates", "context"):
        if line[key] != first_of_state[key]:
            raise ValueError(f"{key} must be that of the other lines of {name}")
    if line["by_kind"].keys() != first_of_state["by_kind"].keys():
        raise ValueError(f"by_kind must have the kinds of the other lines of {name}")
    for key in ("config", "origin"):
        if line[key] != first_of_design[key]:
            raise ValueError(f"{key} must be that of the other repeats of design {number} of {name}")
    rows[repeat] = line


def _state(rows: Sequence[Sequence[Line]]) -> State:
    """Stack the lines of a state, designs by repeats."""
    first = rows[0][0]
    kinds = tuple(sorted(first["by_kind"]))
    names = dict.fromkeys(name for repeats in rows for line in repeats for name in line["predictors"])

    def column(key: str) -> np.ndarray:
        return np.array([[line[key] for line in repeats] for repeats in rows], float)

    return State(
        name=first["state"],
        round=first["round"],
        updates=first["updates"],
        context=first["context"],
        before=float(column("before").mean()),
        designs=tuple(Design(line["design"], line["origin"], line["config"]) for line, *_ in rows),
        kinds=kinds,
        gains=column("gain"),
        errors=column("gain_se"),
        kind_gains=np.array([[[line["by_kind"][kind] for kind in kinds] for line in repeats] for repeats in rows]),
        predictors={
            name: mean_known(
                np.array([[line["predictors"].get(name, np.nan) for line in repeats] for repeats in rows], float)
            )
            for name in names
        },
    )


def _whole(key: str, value: Any) -> int:
    return whole_number(key, value, 1 if key == "updates" else 0)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not (value or key == "context"):
        raise ValueError(f"{key} = {short_repr(value)} must be a text")
    return value


def _origin(key: str, value: Any) -> str:
    origin = _text(key, value)
    if origin.startswith(OF_KIND):
        Kind.of(origin.removeprefix(OF_KIND))
    return origin


def _share(key: str, value: Any, least: float = 0.0) -> float:
    if not (is_number(value) and least <= value <= 1):
        raise ValueError(f"{key} = {short_repr(value)} must be a number from {least:g} to 1")
    return float(value)


def _gain(key: str, value: Any) -> float:
    return _share(key, value, -1.0)


def _config(key: str, value: Any) -> LakeConfig:
    return LakeConfig.from_dict(value)


def _by_kind(key: str, value: Any) -> dict[Kind, float]:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{key} = {short_repr(value)} must be an object with an entry for each validated kind")
    gains = {}
    for label, shares in value.items():
        if not isinstance(shares, dict) or not {"before", "after"} <= shares.keys():
            raise ValueError(f"{key} of {label} = {short_repr(shares)} must be an object with before, after")
        before, after = (_share(f"{end} of {label}", shares[end]) for end in ("before", "after"))
        gains[Kind.of(label)] = after - before
    return gains


def _predictors(key: str, value: Any) -> dict[str, float]:
    """Read numbers by name, NaN where null."""
    if not isinstance(value, dict):
        raise ValueError(f"{key} = {short_repr(value)} must be an object with a number or null for each predictor")
    for name, number in value.items():
        if not (number is None or is_number(number)):
            raise ValueError(f"predictor {name} = {short_repr(number)} must be a finite number or null")
    return {name: np.nan if number is None else float(number) for name, number in value.items()}


_KEYS = {
    "state": _text,
    "round": _whole,
    "design": _whole,
    "repeat": _whole,
    "updates": _whole,
    "context": _text,
    "config": _config,
    "origin": _origin,
    "before": _share,
    "after": _share,
    "gain": _gain,
    "gain_se": _share,
    "by_kind": _by_kind,
    "predictors": _predictors,
}
"""What a line must have beside its version, and how it is read."""

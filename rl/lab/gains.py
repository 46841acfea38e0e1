"""The file ``gains.jsonl``: what each branch gains, written line by line and read as arrays; a kill loses no line."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from jaxlake.config import LakeConfig
from jaxlake.files import whole_lines
from jaxlake.kinds import Kind
from rl import config as config_
from rl.config import ConfigError, Section
from rl.lab.designs import BranchPlan, Design

FILE = "gains.jsonl"


def _lake(value: Any) -> LakeConfig:
    return value if isinstance(value, LakeConfig) else LakeConfig.from_dict(value)


KindName = Annotated[Kind, PlainValidator(Kind.of), PlainSerializer(str)]
Lake = Annotated[LakeConfig, PlainValidator(_lake), PlainSerializer(LakeConfig.to_dict)]


class KindRow(Section):
    """The valid shares on the boards of one kind, before and after a branch."""

    before: float
    after: float


class Gain(Section, extra="ignore"):
    """The outcome of a branch: valid share of the validation's plays, its change, and the error over boards."""

    before: float
    after: float
    gain: float
    gain_se: float
    by_kind: dict[KindName, KindRow]


class Row(Gain):
    """One branch as a line of ``gains.jsonl``, its origin as of `Design`; what earlier versions wrote is left out."""

    state: str
    round: int
    updates: int
    design: int
    repeat: int
    config: Lake
    origin: str


@dataclasses.dataclass(frozen=True, eq=False)
class StateGains:
    """The gains of the designs tried from one state, each in all repeats: K designs, R repeats, J validated kinds.

    Attributes:
      before: valid share of the plays of the validation boards before the branches, the mean over them.
      designs: the designs by their number in the file, ascending.
      kinds: the validated kinds, ascending.
      gains: after less before, float ``[K, R]``.
      errors: standard errors of the gains over boards, float ``[K, R]``.
      kind_gains: gains on each kind, float ``[K, R, J]``.
    """

    name: str
    round: int
    updates: int
    before: float
    designs: dict[int, Design]
    kinds: tuple[Kind, ...]
    gains: np.ndarray
    errors: np.ndarray
    kind_gains: np.ndarray

    @property
    def repeats(self) -> int:
        """The number of repeats that all designs have."""
        return self.gains.shape[1]


@dataclasses.dataclass(frozen=True, eq=False)
class Gains:
    """The finished part of a file.

    Attributes:
      states: the states in the order of the file, each with at least two designs.
      left_out: words for the designs that lack a repeat which others of their state have, and states with less than two
        complete designs.
    """

    name: str
    states: tuple[StateGains, ...]
    left_out: tuple[str, ...]


def append_gains(
    out: Path, plan: BranchPlan, designs: Sequence[tuple[int, Design]], gains: Sequence[Sequence[Gain]]
) -> None:
    """Add a line to the file for every branch of some numbered designs, whose gains are ``[designs][repeats]``."""
    lines = []
    for (number, design), repeats in zip(designs, gains, strict=True):
        for repeat, gain in enumerate(repeats):
            row = Row(
                state=plan.state,
                round=plan.round,
                updates=plan.updates,
                design=number,
                repeat=repeat,
                config=design.config,
                origin=design.origin,
                **dict(gain),
            )
            lines.append(json.dumps(row.model_dump(mode="json")) + "\n")
    out.mkdir(parents=True, exist_ok=True)
    with (out / FILE).open("a", encoding="utf-8") as file:
        file.write("".join(lines))


def finished_designs(out: Path, plan: BranchPlan) -> set[int]:
    """Return the designs of a state that the file has in all repeats; cut off what a kill left of a line.

    Raises:
      ConfigError: if a line is damaged, or the file has other branches of the state.
    """
    path = out / FILE
    if not path.exists():
        return set()
    rows = _read_rows(path)
    repeats: dict[int, set[int]] = {}
    for number, row in enumerate(rows, 1):
        if row.state != plan.state:
            continue
        same = (row.round, row.updates) == (plan.round, plan.updates)
        same &= row.design < len(plan.designs) and row.repeat < plan.repeats
        if not same or row.config != plan.designs[row.design].config:
            raise ConfigError(
                f"{path}, line {number}: of other branches of {row.state} than these; choose another folder with --out"
            )
        repeats.setdefault(row.design, set()).add(row.repeat)
    whole_lines(path, cut=True)
    return {design for design, done in repeats.items() if len(done) == plan.repeats}


def read_gains(folder: Path) -> Gains:
    """Read ``gains.jsonl`` of a folder; a last line without its end is still being written, and is left out.

    Raises:
      ConfigError: no such file, a line that is damaged, or no state with two designs; one line.
      OSError: if the file cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file; python -m rl.branch writes it")
    by_state: dict[str, dict[int, dict[int, Row]]] = {}
    for row in _read_rows(path):
        by_state.setdefault(row.state, {}).setdefault(row.design, {})[row.repeat] = row
    states, left_out = [], []
    for name, designs in by_state.items():
        repeats = sorted({repeat for rows in designs.values() for repeat in rows})
        complete = {number: rows for number, rows in sorted(designs.items()) if len(rows) == len(repeats)}
        if len(complete) > 1:
            states.append(_state({number: [rows[i] for i in repeats] for number, rows in complete.items()}))
            lacking = [number for number in designs if number not in complete]
            left_out += [f"design {number} of {name} (lacks some of {len(repeats)} repeats)" for number in lacking]
        else:
            left_out.append(f"{name} ({len(complete)} designs with all {len(repeats)} repeats)")
    if not states:
        raise ConfigError(f"{path}: {'; '.join(left_out) or 'no branch'}: a state must have at least 2 designs")
    return Gains(folder.resolve().name, tuple(states), tuple(left_out))


def _read_rows(path: Path) -> list[Row]:
    """Read the whole lines of a file; ConfigError naming a line that is damaged."""
    return [config_.parse(Row, line, f"{path}, line {number}") for number, line in enumerate(whole_lines(path), 1)]


def _state(rows: dict[int, list[Row]]) -> StateGains:
    first, *_ = next(iter(rows.values()))
    kinds = tuple(sorted(first.by_kind))

    def stack(value: Callable[[Row], Any]) -> np.ndarray:
        return np.array([[value(row) for row in repeats] for repeats in rows.values()], float)

    return StateGains(
        name=first.state,
        round=first.round,
        updates=first.updates,
        before=float(stack(lambda row: row.before).mean()),
        designs={number: Design(row.origin, row.config) for number, (row, *_) in rows.items()},
        kinds=kinds,
        gains=stack(lambda row: row.gain),
        errors=stack(lambda row: row.gain_se),
        kind_gains=stack(lambda row: [row.by_kind[kind].after - row.by_kind[kind].before for kind in kinds]),
    )

"""What branches gain, line by line into ``gains.jsonl``; a killed command goes on with the designs that are missing."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxlake.files import write_whole
from jaxlake.kinds import Kind
from rl import engineering
from rl.branching.designs import Design
from rl.config import ConfigError
from rl.context import read_context
from rl.report.branch.gains import FILE, VERSION
from rl.rounds import past_rounds
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import Student


class Share(NamedTuple):
    """A valid share before a branch and after it, and the standard error of the difference."""

    before: float
    after: float
    error: float


@dataclasses.dataclass(frozen=True)
class Gain:
    """What one branch came to.

    Attributes:
      overall: on the validation boards.
      by_kind: on boards of each kind.
      predictors: what a cheap look at the design said before; None where it was not taken.
    """

    overall: Share
    by_kind: dict[Kind, Share]
    predictors: dict[str, float | None]


class Branches(NamedTuple):
    """What is asked for.

    Attributes:
      designs: to be tried.
      repeats: of each, with keys and boards of their own.
      updates: of a branch.
    """

    designs: Sequence[Design]
    repeats: int
    updates: int


Train = Callable[[Sequence[tuple[int, Design]]], list[list[Gain]]]
"""Trains all repeats of some numbered designs and returns their gains, ``[designs][repeats]``."""


def branch_all(
    student: Student,
    directory: RunDirectory,
    asked: Branches,
    train: Train,
    at_once: int,
    out: Path,
    display: Display,
    stop: Stop,
) -> None:
    """Train the branches that ``gains.jsonl`` lacks, some designs at a time, and write their lines.

    Args:
      student: in the state to branch from.
      directory: of its run.
      asked: designs, repeats and updates.
      train: see `Train`.
      at_once: designs whose branches are trained together; their lines are written together.
      out: folder of ``gains.jsonl``; lines of other states in it stay.

    Raises:
      ConfigError: if the file has other branches of this state.
      Interrupted: on a signal, with all lines kept that have come.
    """
    progress, path = student.state.progress, out / FILE
    state = f"{directory.path} round {progress.round}"
    head = {
        "version": VERSION,
        "state": state,
        "round": progress.round,
        "updates": asked.updates,
        "context": _context(student),
    }
    done = _done(path, head, asked)
    left = [(i, design) for i, design in enumerate(asked.designs) if i not in done]
    display.stage(f"{len(asked.designs)} designs x {asked.repeats}", len(asked.designs), done=len(done))
    for first in range(0, len(left), at_once):
        some = left[first : first + at_once]
        with stop.at_once():
            gains = train(some)
        lines = [
            json.dumps(head | _line(i, design, repeat, gain)) + "\n"
            for (i, design), repeats in zip(some, gains, strict=True)
            for repeat, gain in enumerate(repeats)
        ]
        out.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))
        best = max((gain.overall.after, design.origin) for (_, design), (gain, *_) in zip(some, gains, strict=True))
        display.advance(f"best of these {best[0]:.1%} ({best[1]})", steps=len(some))


def _line(number: int, design: Design, repeat: int, gain: Gain) -> dict[str, Any]:
    before, after, error = gain.overall
    return {
        "design": number,
        "repeat": repeat,
        "config": design.config.to_dict(),
        "origin": design.origin,
        "before": before,
        "after": after,
        "gain": after - before,
        "gain_se": error,
        "by_kind": {str(kind): {"before": share.before, "after": share.after} for kind, share in gain.by_kind.items()},
        "predictors": {
            name: value if value is None or math.isfinite(value) else None for name, value in gain.predictors.items()
        },
    }


def _context(student: Student) -> str:
    """Return what an engineer would read in this state."""
    history = past_rounds(student.state.progress)
    training = engineering.training(student, history[-1].round + 1)
    return read_context(student.config).build(history[-1].evidence, history, training)


def _done(path: Path, head: dict[str, Any], asked: Branches) -> set[int]:
    """Return the designs of this state that the file has; what a killed command left of a line is cut off.

    Raises:
      ConfigError: if a line is damaged, or the file has other branches of this state.
    """
    if not path.exists():
        return set()
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    repeats: dict[int, set[int]] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            if row["state"] != head["state"]:
                continue
            design, repeat = int(row["design"]), int(row["repeat"])
            same = all(row[name] == value for name, value in head.items())
            same &= design < len(asked.designs) and repeat < asked.repeats
            if not same or row["config"] != asked.designs[design].config.to_dict():
                raise ConfigError(
                    f"{path}, line {number}: of other branches of {head['state']} than these; choose another folder "
                    "with --out"
                )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path}, line {number}: damaged ({error}); delete the line, or choose another folder with --out"
            ) from None
        repeats.setdefault(design, set()).add(repeat)
    if whole != text:
        write_whole(path, whole.encode())
    return {design for design, found in repeats.items() if len(found) == asked.repeats}

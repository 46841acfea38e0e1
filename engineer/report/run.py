"""A run directory as values; reads only, and draws nothing."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig

RATIOS = ("data", "hole", "wait")
PARTS = ("rollout", "logprob", "update", "host")
"""What the seconds of a step are booked under."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A point of the run at which the policy was validated: before and after the warm start, after each round.

    Attributes:
      folder: where the validation lies, from the run directory.
      samples: some boards with their greedy answers, the same boards at every stage of a run.
      has_page: whether they lie there as Markdown too.
    """

    name: str
    folder: str
    evidence: Evidence
    samples: tuple[dict[str, Any], ...]
    has_page: bool


@dataclasses.dataclass(frozen=True)
class Round:
    """What is on disk about the environment of one round."""

    index: int
    config: LakeConfig
    proposal: dict[str, Any]

    @property
    def name(self) -> str:
        """As tables and pictures call it."""
        return f"round {self.index}"

    def requested(self, size: int, ratio: str) -> float | None:
        """A ratio of the configuration; None for a size that it does not have."""
        entry = self.config.to_dict().get(str(size))
        return None if entry is None else entry[ratio]

    def realised(self, size: int, ratio: str) -> float | None:
        """A ratio as measured on the generated instances; None where none was measured."""
        return self.proposal.get("realised", {}).get(str(size), {}).get(ratio)


@dataclasses.dataclass(frozen=True)
class Run:
    """A whole run.

    Attributes:
      stages: validations in the order in which they happened.
      rounds: those that have a configuration, in ascending order.
      warm_start, steps: metrics rows of the warm start and of the rounds, in the order in which they were written.
      timings: of the steps of the rounds, what was measured by the clock.
    """

    name: str
    stages: tuple[Stage, ...]
    rounds: tuple[Round, ...]
    warm_start: tuple[dict[str, Any], ...]
    steps: tuple[dict[str, Any], ...]
    timings: tuple[dict[str, Any], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every board size that was validated or trained on, ascending."""
        validated = {row.size for stage in self.stages for row in stage.evidence.by_size}
        return tuple(sorted(validated.union(*(past.config.sizes for past in self.rounds))))


def read(run_dir: str | Path) -> Run:
    """Reads a finished or unfinished run.

    Raises:
      ValueError: the directory holds no validation, or evidence in another form.
    """
    directory = Path(run_dir)
    folders = [path for path in (directory / "rounds").glob("*") if path.name.isdecimal()]
    rounds = tuple(_round(path) for path in sorted(folders, key=lambda path: int(path.name)) if _has_config(path))
    places = [("before", "before"), ("warm start", "warm_start")]
    places += [(past.name, f"rounds/{past.index}") for past in rounds]
    stages = tuple(_stage(directory, *place) for place in places if (directory / place[1] / "evidence.json").exists())
    if not stages:
        raise ValueError(f"{directory} holds no validation to report on")
    rows = _rows(directory / "metrics.jsonl")
    return Run(
        name=directory.resolve().name,
        stages=stages,
        rounds=rounds,
        warm_start=tuple(row for row in rows if row.get("phase") == "warm_start"),
        steps=tuple(row for row in rows if row.get("phase") == "round"),
        timings=tuple(row for row in _rows(directory / "timings.jsonl") if row.get("phase") == "round"),
    )


def _has_config(folder: Path) -> bool:
    return (folder / "config.json").exists()


def _round(folder: Path) -> Round:
    return Round(
        index=int(folder.name),
        config=LakeConfig.from_dict(_json(folder / "config.json", {})),
        proposal=_json(folder / "proposal.json", {}),
    )


def _stage(directory: Path, name: str, folder: str) -> Stage:
    place = directory / folder
    return Stage(
        name=name,
        folder=folder,
        evidence=Evidence.from_json(_json(place / "evidence.json", {})),
        samples=tuple(_json(place / "samples.json", [])),
        has_page=(place / "samples.md").exists(),
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def _json(path: Path, missing: Any) -> Any:
    return json.loads(path.read_text()) if path.exists() else missing

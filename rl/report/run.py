"""A run directory as values; reads only, and draws nothing."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import yaml

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from rl.config import flat

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
    """What is on disk about the environment of one round.

    Attributes:
      proposal: see `engineer.proposal.Proposal.to_json`, and "realised" and "parameters" beside it.
      context: what the engineer read; empty where it read nothing.
    """

    index: int
    config: LakeConfig
    proposal: dict[str, Any]
    context: str

    @property
    def name(self) -> str:
        """As tables and pictures call it."""
        return f"round {self.index}"

    def requested(self, size: int, ratio: str) -> float | None:
        """A ratio of the configuration; None for a size that it does not have."""
        entry = self.config.to_dict().get(str(size))
        return None if entry is None else entry[ratio]

    def realised(self, size: int, ratio: str) -> float | None:
        """A ratio as measured on the generated instances; None where none was measured, as for a size without any."""
        entry = self.proposal.get("realised", {}).get(str(size), {})
        return entry.get(ratio) if entry.get("data") or ratio == "data" else None


@dataclasses.dataclass(frozen=True)
class Run:
    """A whole run.

    Attributes:
      name: that of its directory.
      directory: where it lies.
      settings: its configuration by dotted key.
      origins: by dotted key where a setting comes from, see `rl.config.provenance`; empty where nobody noted it.
      stages: validations in the order in which they happened.
      rounds: those that have a configuration, in ascending order.
      warm_start, steps: metrics rows of the warm start and of the rounds, in the order in which they were written.
      timings: of the steps of the rounds, what was measured by the clock.
      seconds: of all steps together, those of the warm start included.
    """

    name: str
    directory: Path
    settings: dict[str, Any]
    origins: dict[str, str]
    stages: tuple[Stage, ...]
    rounds: tuple[Round, ...]
    warm_start: tuple[dict[str, Any], ...]
    steps: tuple[dict[str, Any], ...]
    timings: tuple[dict[str, Any], ...]
    seconds: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every board size that was validated or trained on, ascending."""
        validated = {row.size for stage in self.stages for row in stage.evidence.by_size}
        return tuple(sorted(validated.union(*(past.config.sizes for past in self.rounds))))

    def stage(self, name: str) -> Stage | None:
        """The validation of that name, if there has been one."""
        return next((stage for stage in self.stages if stage.name == name), None)


def read(run_dir: str | Path) -> Run:
    """Reads a finished or unfinished run.

    Raises:
      ValueError: the directory holds no validation, or a file that is broken or of another version; one line.
    """
    directory = Path(run_dir)
    folders = [path for path in (directory / "rounds").glob("*") if path.name.isdecimal()]
    rounds = tuple(_round(path) for path in sorted(folders, key=lambda path: int(path.name)) if _has_config(path))
    places = [("before", "before"), ("warm start", "warm_start")]
    places += [(past.name, f"rounds/{past.index}") for past in rounds]
    stages = tuple(_stage(directory, *place) for place in places if (directory / place[1] / "evidence.json").exists())
    if not stages:
        if not directory.is_dir():
            raise ValueError(f"{directory}: there is no such directory; a run is one such as runs/tiny")
        raise ValueError(f"{directory}: holds no validation to report on; a run has one from its first minute on")
    rows, timings = _rows(directory / "metrics.jsonl"), _rows(directory / "timings.jsonl")
    return Run(
        name=directory.resolve().name,
        directory=directory,
        settings=_settings(directory / "config.yaml"),
        origins=_json(directory / "provenance.json", {}),
        stages=stages,
        rounds=rounds,
        warm_start=tuple(row for row in rows if row.get("phase") == "warm_start"),
        steps=tuple(row for row in rows if row.get("phase") == "round"),
        timings=tuple(row for row in timings if row.get("phase") == "round"),
        seconds=sum(row.get(part) or 0.0 for row in timings for part in PARTS),
    )


def _has_config(folder: Path) -> bool:
    return (folder / "config.json").exists()


def _round(folder: Path) -> Round:
    path, context = folder / "config.json", folder / "context.md"
    try:
        config = LakeConfig.from_dict(_json(path, {}))
    except ValueError as error:
        raise _broken(path, error) from None
    return Round(
        index=int(folder.name),
        config=config,
        proposal=_json(folder / "proposal.json", {}),
        context=context.read_text() if context.exists() else "",
    )


def _stage(directory: Path, name: str, folder: str) -> Stage:
    place = directory / folder
    path = place / "evidence.json"
    try:
        evidence = Evidence.from_json(_json(path, {}))
    except ValueError as error:
        raise _broken(path, error) from None
    return Stage(
        name=name,
        folder=folder,
        evidence=evidence,
        samples=tuple(_json(place / "samples.json", [])),
        has_page=(place / "samples.md").exists(),
    )


def _settings(path: Path) -> dict[str, Any]:
    try:
        return flat(_of_kind(yaml.safe_load(path.read_text()) or {}, dict)) if path.exists() else {}
    except (yaml.YAMLError, ValueError) as error:
        raise _broken(path, error) from None


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; a last line without its end is still being written."""
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    try:
        return [_of_kind(json.loads(line), dict) for line in whole.splitlines() if line]
    except ValueError as error:
        raise _broken(path, error) from None


def _json(path: Path, missing: Any) -> Any:
    """A file's content, of the kind of what stands for a missing one."""
    try:
        return _of_kind(json.loads(path.read_text()), type(missing)) if path.exists() else missing
    except ValueError as error:
        raise _broken(path, error) from None


def _of_kind(found: Any, kind: type) -> Any:
    if not isinstance(found, kind):
        raise ValueError(f"holds {found!r:.40}: allowed is {'an object' if kind is dict else 'a list'}")
    return found


def _broken(path: Path, error: Exception) -> ValueError:
    text = " ".join(str(error).split())
    return ValueError(f"{path}: {text}" if str(path) not in text else text)

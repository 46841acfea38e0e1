"""A run's directory as values; reads only, and draws nothing."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from jaxlake.files import whole_lines
from jaxlake.kinds import Kind, row_name
from rl.config import flat

RATIOS = ("data", "hole", "wait")


@dataclasses.dataclass(frozen=True)
class Stage:
    """A validation: before and after the warm start, after each round.

    Attributes:
      name: "before", "warm start", "round 0" and so on.
      samples: some boards with their greedy answers, the same boards at every stage of a run.
    """

    name: str
    evidence: Evidence
    samples: Sequence[dict[str, Any]]

    @property
    def title(self) -> str:
        return self.name if self.name == "before" else f"after {self.name}"

    @property
    def valid_share(self) -> float:
        """The share of greedy answers that are valid."""
        return self.evidence.valid / self.evidence.n


@dataclasses.dataclass(frozen=True)
class Round:
    """The environment of one round, as far as it is on disk.

    Attributes:
      proposal: the values of `engineer.proposal.Proposal.to_json`, and "realised" beside them.
      context: the text that the engineer read; empty for an engineer that reads none.
      evidence: the validation after the round; None before there is one.
    """

    index: int
    config: LakeConfig
    proposal: dict[str, Any]
    context: str
    evidence: Evidence | None

    @property
    def name(self) -> str:
        return f"round {self.index}"

    def requested(self, kind: Kind, ratio: str) -> float | None:
        """Return a ratio of the configuration; None for a kind that it does not have, or has no boards of."""
        return _of_boards(self.config.to_dict().get(str(kind), {}), ratio)

    def realised(self, kind: Kind, ratio: str) -> float | None:
        """Return a ratio as measured on the generated boards; None where none was, as for a kind without boards."""
        return _of_boards(self.proposal.get("realised", {}).get(str(kind), {}), ratio)


def _of_boards(ratios: dict[str, float], ratio: str) -> float | None:
    return ratios.get(ratio) if ratios.get("data") or ratio == "data" else None


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as its directory describes it.

    Attributes:
      settings: the configuration by dotted key.
      stages: the validations in the order in which they happened.
      rounds: the rounds that have a configuration, in ascending order.
      warm_start, steps: metrics rows of the warm start and of the rounds, in the order in which they were written.
    """

    name: str
    settings: dict[str, Any]
    stages: tuple[Stage, ...]
    rounds: tuple[Round, ...]
    warm_start: tuple[dict[str, Any], ...]
    steps: tuple[dict[str, Any], ...]

    @property
    def designed(self) -> tuple[Kind, ...]:
        """The kinds of boards that a configuration has rows for, ascending."""
        return tuple(sorted({kind for past in self.rounds for kind in past.config.kinds}))

    @property
    def chosen(self) -> tuple[Kind, ...]:
        """The kinds that engineers gave boards to, ascending; if there is only the first, random round, its own."""
        later = self.rounds[1:] or self.rounds
        return tuple(kind for kind in self.designed if any(past.requested(kind, "data") for past in later))

    @property
    def targets(self) -> tuple[Kind, ...]:
        """The kinds of boards that were validated, ascending."""
        return tuple(sorted({row.kind for stage in self.stages for row in stage.evidence.by_kind}))

    @property
    def row_name(self) -> str:
        """The heading of what is shown by kind: "size" where sizes say all, as of the paper's boards, else "kind"."""
        return row_name(sorted({*self.targets, *self.designed}))

    @property
    def axis_name(self) -> str:
        return {"size": "board size", "kind": "kind of boards"}[self.row_name]

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def read(run_dir: str | Path) -> Run:
    """Read a finished or unfinished run; ValueError, in one line, without a validation or for a file that is broken."""
    directory = Path(run_dir)
    rounds = read_rounds(directory)
    evidence = {name: _evidence(directory / name) for name in ("before", "warm_start")}
    evidence |= {f"rounds/{past.index}": past.evidence for past in rounds}
    names = {folder: folder.replace("rounds/", "round ").replace("_", " ") for folder in evidence}
    stages = tuple(
        Stage(names[folder], one, _read(directory / folder / "samples.json", []))
        for folder, one in evidence.items()
        if one
    )
    if not stages:
        raise ValueError(f"{directory}: holds no validation to report on; a run has one from its first minute on")
    rows = _read(directory / "metrics.jsonl", [])
    return Run(
        name=directory.resolve().name,
        settings=flat(_read(directory / "config.yaml", {})),
        stages=stages,
        rounds=rounds,
        warm_start=tuple(row for row in rows if row.get("phase") == "warm_start"),
        steps=tuple(row for row in rows if row.get("phase") == "round"),
    )


def read_rounds(directory: Path) -> tuple[Round, ...]:
    """Read the rounds of a run that have a configuration; ValueError, in one line, for a file that is broken."""
    files = [path for path in (directory / "rounds").glob("*/config.json") if path.parent.name.isdecimal()]
    return tuple(_round(path.parent) for path in sorted(files, key=lambda path: int(path.parent.name)))


def _round(folder: Path) -> Round:
    context = folder / "context.md"
    return Round(
        index=int(folder.name),
        config=_read(folder / "config.json", None, LakeConfig.from_dict),
        proposal=_read(folder / "proposal.json", {}),
        context=context.read_text(encoding="utf-8") if context.exists() else "",
        evidence=_evidence(folder),
    )


def _evidence(folder: Path) -> Evidence | None:
    return _read(folder / "evidence.json", None, Evidence.from_json)


def _read(path: Path, missing: Any, parse: Callable[[Any], Any] = lambda content: content) -> Any:
    """Return the parsed content of a JSON or YAML file, or a default if the file is missing; a fault names the file."""
    if not path.exists():
        return missing
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in whole_lines(path)]
        text = path.read_text(encoding="utf-8")
        return parse(yaml.safe_load(text) or {} if path.suffix == ".yaml" else json.loads(text))
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None

"""A run's directory as values; reads only, and draws nothing."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from jaxlake.files import whole_lines
from jaxlake.kinds import Kind, row_name
from rl.config import flat
from rl.lab.statistics import Share


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

    def share(self, name: str, kind: Kind | None = None) -> Share | None:
        """Return a share of a kind's answers, or of all answers; None where nothing was answered.

        "valid" and "optimal" are of the greedy answers. "sampled" is the mean share of valid samples; of all kinds
        together it has 1.96 standard errors of the mean over prompts, unless every prompt has the same share.
        """
        row = next((row for row in self.evidence.by_kind if row.kind == kind), None) if kind else self.evidence
        if row is None or (name == "sampled" and row.sampled_valid is None):
            return None
        if name != "sampled":
            return Share.of(getattr(row, name), row.n)
        mean, half = float(row.sampled_valid or 0), 1.96 * (row.sampled_se or 0)
        return Share(mean, max(0.0, mean - half), min(1.0, mean + half)) if half and not kind else Share(mean)


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

    @functools.cached_property
    def requested(self) -> dict[Kind, dict[str, float]]:
        """The configuration's ratios by kind and name, without the kinds that it gives no boards."""
        return _with_boards(self.config.to_dict())

    @functools.cached_property
    def realised(self) -> dict[Kind, dict[str, float]]:
        """The ratios as measured on the generated boards, without the kinds that have none."""
        return _with_boards(self.proposal.get("realised", {}))


def _with_boards(ratios: Mapping[str, dict[str, float]]) -> dict[Kind, dict[str, float]]:
    return {Kind.of(name): row for name, row in ratios.items() if row.get("data")}


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
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of boards that were validated or that a configuration has rows for, ascending."""
        return tuple(sorted({*self.targets, *(kind for past in self.rounds for kind in past.config.kinds)}))

    @property
    def targets(self) -> tuple[Kind, ...]:
        """The kinds of boards that were validated, ascending."""
        return tuple(sorted({row.kind for stage in self.stages for row in stage.evidence.by_kind}))

    @property
    def designed(self) -> tuple[Kind, ...]:
        """The kinds that engineers gave boards to, ascending; if there is only the first, random round, its own."""
        return tuple(sorted({kind for past in self.rounds[1:] or self.rounds for kind in past.requested}))

    @property
    def row_name(self) -> str:
        """The heading of what is shown by kind: "size" where sizes say all, as of the paper's boards, else "kind"."""
        return row_name(self.kinds)

    @property
    def first(self) -> Stage:
        """The validation that the last is compared with: after the warm start or, without one, before training."""
        return next((stage for stage in self.stages[:-1] if stage.name == "warm start"), self.stages[0])

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def axis_name(kinds: Sequence[Kind]) -> str:
    """Return the label of a picture's axis that has these kinds of boards."""
    return "board size" if row_name(kinds) == "size" else "kind of boards"


def read(run_dir: str | Path) -> Run:
    """Read a finished or unfinished run; ValueError, in one line, without a validation or for a file that is broken."""
    directory = Path(run_dir)
    rounds = read_rounds(directory)
    folders = {"before": "before", "warm start": "warm_start"} | {past.name: f"rounds/{past.index}" for past in rounds}
    evidence = {name: _evidence(directory / folder) for name, folder in folders.items()}
    stages = tuple(
        Stage(name, validation, _read(directory / folders[name] / "samples.json", []))
        for name, validation in evidence.items()
        if validation
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
    folders = (directory / "rounds" / str(index) for index in itertools.count())
    designed = itertools.takewhile(lambda folder: (folder / "config.json").exists(), folders)
    return tuple(
        Round(
            index=index,
            config=_read(folder / "config.json", None, LakeConfig.from_dict),
            proposal=_read(folder / "proposal.json", {}),
            context=(folder / "context.md").read_text("utf-8") if (folder / "context.md").exists() else "",
            evidence=_evidence(folder),
        )
        for index, folder in enumerate(designed)
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
        return parse(yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text))
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None

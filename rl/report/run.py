"""A run's directory as values; reads only, and draws nothing."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
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
    samples: tuple[dict[str, Any], ...]

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
    """

    index: int
    config: LakeConfig
    proposal: dict[str, Any]
    context: str

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
    """Return a kind's ratio; None for those of boards that there are not, which are no choice of an engineer."""
    return ratios.get(ratio) if ratios.get("data") or ratio == "data" else None


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as its directory describes it.

    Attributes:
      settings: the configuration by dotted key.
      origins: the origin of a setting by dotted key, see `rl.config.provenance`; empty for a run without any.
      stages: the validations in the order in which they happened.
      rounds: the rounds that have a configuration, in ascending order.
      warm_start, steps: metrics rows of the warm start and of the rounds, in the order in which they were written.
    """

    name: str
    settings: dict[str, Any]
    origins: dict[str, str]
    stages: tuple[Stage, ...]
    rounds: tuple[Round, ...]
    warm_start: tuple[dict[str, Any], ...]
    steps: tuple[dict[str, Any], ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of boards that were validated or trained on, ascending."""
        return tuple(sorted({*self.targets, *self.designed}))

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
        return row_name(self.kinds)

    @property
    def axis_name(self) -> str:
        return {"size": "board size", "kind": "kind of boards"}[self.row_name]

    def places(self, kinds: Sequence[Kind]) -> dict[Kind, int]:
        """Return the places of kinds on an axis: their sizes, or one after the other."""
        return {kind: kind.size if self.row_name == "size" else place for place, kind in enumerate(kinds)}

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def read(run_dir: str | Path) -> Run:
    """Read a finished or unfinished run; ValueError, in one line, without a validation or for a file that is broken."""
    directory = Path(run_dir)
    designed = [path.parent for path in (directory / "rounds").glob("*/config.json") if path.parent.name.isdecimal()]
    rounds = tuple(_round(path) for path in sorted(designed, key=lambda path: int(path.name)))
    folders = {"before": "before", "warm start": "warm_start"} | {past.name: f"rounds/{past.index}" for past in rounds}
    validations = {name: directory / folder / "evidence.json" for name, folder in folders.items()}
    stages = tuple(_stage(name, path) for name, path in validations.items() if path.exists())
    if not stages:
        if not directory.is_dir():
            raise ValueError(f"{directory}: there is no such directory; a run is one such as runs/tiny")
        raise ValueError(f"{directory}: holds no validation to report on; a run has one from its first minute on")
    rows = _read(directory / "metrics.jsonl", [])
    return Run(
        name=directory.resolve().name,
        settings=flat(_read(directory / "config.yaml", {})),
        origins=_read(directory / "provenance.json", {}),
        stages=stages,
        rounds=rounds,
        warm_start=tuple(row for row in rows if row.get("phase") == "warm_start"),
        steps=tuple(row for row in rows if row.get("phase") == "round"),
    )


def _round(folder: Path) -> Round:
    path, context = folder / "config.json", folder / "context.md"
    values = _read(path, {})
    with naming(path):
        config = LakeConfig.from_dict(values)
    words = context.read_text(encoding="utf-8") if context.exists() else ""
    return Round(int(folder.name), config, _read(folder / "proposal.json", {}), words)


def _stage(name: str, path: Path) -> Stage:
    values = _read(path, {})
    with naming(path):
        evidence = Evidence.from_json(values)
    return Stage(name, evidence, samples=tuple(_read(path.with_name("samples.json"), [])))


def _read(path: Path, missing: Any) -> Any:
    """Return the content of a JSON or YAML file, or a default if the file is missing."""
    if not path.exists():
        return missing
    with naming(path):
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in whole_lines(path)]
        text = path.read_text(encoding="utf-8")
        return yaml.safe_load(text) or {} if path.suffix == ".yaml" else json.loads(text)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong with the content of a file into a ValueError of one line that names it."""
    try:
        yield
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None

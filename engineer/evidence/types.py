"""The types of the evidence, and their JSON form; measures nothing."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxlake.kinds import Kind, row_name
from jaxlake.types import Check

VERSION = 3
"""Number of the evidence, which a change raises after which its JSON form or one of its numbers differs."""
CHECKS = tuple(check.name.lower() for check in Check)
"""The validity checks' names in the order in which they are reported."""
LEARNABLE = (0.2, 0.8)
"""Valid shares of a group, both included, from which a policy learns most: far from never and from always."""


@dataclasses.dataclass(frozen=True)
class KindEvidence:
    """One kind of boards' row: of a validation, or of a round's training rollouts.

    Attributes:
      n: answers counted; of a validation one greedy answer per prompt, of training every sampled answer.
      valid: number of answers that pass all eight checks.
      optimal: number of answers that are valid and at the optimum's cost.
      first_failures: per check, how many answers fail it and none before it; sums to ``n - valid``.
      any_failures: per check, how many answers fail it.
      sampled_valid, sampled_se: mean over prompts of the share of valid samples, and its standard error; None when
        nothing was sampled.
      groups: prompts that were sampled, the samples to one being a group.
      learnable: number of groups that have a valid share within ``LEARNABLE``.
      all_valid, all_invalid: numbers of groups that teach nothing about validity.
      answer_tokens, answer_tokens_se: mean length of the ``n`` answers in tokens, and its standard error over prompts.
      truncated: number of answers that hit the length cap.
      advantage: mean absolute advantage of a training answer in its group, whatever credit its tokens were given;
        an answer that was left out of its step's batch has 0. None in a validation.
    """

    kind: Kind
    n: int
    valid: int
    optimal: int
    first_failures: dict[str, int]
    any_failures: dict[str, int]
    sampled_valid: float | None = None
    sampled_se: float | None = None
    groups: int = 0
    learnable: int = 0
    all_valid: int = 0
    all_invalid: int = 0
    answer_tokens: float | None = None
    answer_tokens_se: float | None = None
    truncated: int = 0
    advantage: float | None = None

    @property
    def valid_share(self) -> float:
        """Share of valid answers: the sampled one, which is what training meets; the greedy one if none was sampled."""
        return self.valid / self.n if self.sampled_valid is None else self.sampled_valid


@dataclasses.dataclass(frozen=True)
class KindEnvironment:
    """The boards of one kind that evidence was measured on.

    Attributes:
      requested: ratios by their names (data, hole, wait) as asked for; None for boards that no configuration asked for.
      optimal_cost: mean of the least costs; None without instances.
      interaction_gap: mean of the least cost less that of the agents' shortest paths, each on its own; None without
        instances.
      solvable: share of the random boards tried that have a plan; None where none was tried.
    """

    kind: Kind
    instances: int
    requested: dict[str, float] | None
    realised: dict[str, float]
    optimal_cost: float | None
    interaction_gap: float | None
    solvable: float | None


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One failed greedy answer.

    Attributes:
      check: the first check that it fails.
      board: drawn as text, with the answered paths where they can be read.
      answer: the text as it was written, without thoughts; the end of a long one.
    """

    kind: Kind
    check: str
    board: str
    answer: str


@dataclasses.dataclass(frozen=True)
class TrainingEvidence:
    """Rows of a whole round's rollouts, and of the boards that they were on.

    Attributes:
      by_kind: rows in ascending order of kind; a kind without data has none.
      environment: rows in ascending order of kind.
    """

    by_kind: tuple[KindEvidence, ...]
    environment: tuple[KindEnvironment, ...]


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A whole validation, and the training before it.

    Attributes:
      by_kind: rows in ascending order of kind.
      sampled_valid, sampled_se: mean over all prompts of the share of valid samples, and its standard error; None when
        nothing was sampled.
      samples_per_prompt: 0 when nothing was sampled.
      answer_tokens: mean length of a greedy answer, in tokens.
      truncated: share of greedy answers that hit the length cap.
      training: the round that ended with this validation; None before the first.
      trajectories: a few failures, at most one of a kind and check, the most frequent first.
    """

    by_kind: tuple[KindEvidence, ...]
    sampled_valid: float | None
    sampled_se: float | None
    samples_per_prompt: int
    answer_tokens: float
    truncated: float
    environment: tuple[KindEnvironment, ...] = ()
    training: TrainingEvidence | None = None
    trajectories: tuple[Trajectory, ...] = ()

    @property
    def training_rows(self) -> dict[Kind, KindEvidence]:
        """The rows of the training rollouts by kind; empty where nothing is known."""
        return {row.kind: row for row in self.training.by_kind} if self.training else {}

    @property
    def known_rows(self) -> dict[Kind, KindEvidence]:
        """A row for each kind of which something is known, ascending: of its validation, else of its training."""
        rows = {row.kind: row for row in (*self.training_rows.values(), *self.by_kind) if row.n}
        return dict(sorted(rows.items()))

    @property
    def n(self) -> int:
        """Answers counted over all kinds."""
        return sum(row.n for row in self.by_kind)

    @property
    def valid(self) -> int:
        """Valid answers over all kinds."""
        return sum(row.valid for row in self.by_kind)

    @property
    def optimal(self) -> int:
        """Optimal answers over all kinds."""
        return sum(row.optimal for row in self.by_kind)

    @property
    def first_failures(self) -> dict[str, int]:
        """Per check, how many answers fail it and none before it, over all kinds."""
        return {check: sum(row.first_failures[check] for row in self.by_kind) for check in CHECKS}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, with the version of this form."""
        return {"version": VERSION, **_plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], kind_of: Callable[[Any], Kind] = Kind.of) -> "Evidence":
        """Read what ``to_json`` wrote; ValueError if it is of another version.

        Args:
          kind_of: from a row's name to its kind, where the kinds are not boards.
        """
        fields = dict(data)
        if (version := fields.pop("version", None)) != VERSION:
            raise ValueError(f"evidence of version {version!r}: this program reads version {VERSION}")

        def tables(part: Mapping[str, Any]) -> dict[str, Any]:
            records = {"by_kind": KindEvidence, "environment": KindEnvironment, "trajectories": Trajectory}
            return {name: _rows(records[name], part[name], kind_of) for name in records if name in part}

        training = fields["training"] and TrainingEvidence(**tables(fields["training"]))
        return cls(**fields | tables(fields) | {"training": training})


def _plain(value: Any) -> Any:
    """Return a value of the evidence for JSON; a row names its kind as ``size`` or ``kind``."""
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if not dataclasses.is_dataclass(value):
        return value
    names = {name: row_name([x]) if name == "kind" else name for name, x in vars(value).items()}
    return {names[name]: x.label if name == "kind" else _plain(x) for name, x in vars(value).items()}


def _rows(record: Callable[..., Any], rows: Sequence[Mapping[str, Any]], kind_of: Callable[[Any], Kind]) -> tuple:
    names = ("size", "kind")
    kinds = [kind_of(next(row[name] for name in names if name in row)) for row in rows]
    fields = ({name: value for name, value in row.items() if name not in names} for row in rows)
    return tuple(record(kind=kind, **values) for kind, values in zip(kinds, fields, strict=True))

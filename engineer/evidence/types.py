"""The types of the evidence, and their JSON form, which is read strictly; measures nothing."""

import dataclasses
import reprlib
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from jaxlake.config import FIELDS
from jaxlake.kinds import Kind, row_name
from jaxlake.types import Check

VERSION = 2
"""Version of the JSON form."""
CHECKS = tuple(check.name.lower() for check in Check)
"""The validity checks' names in the order in which they are reported."""
LEARNABLE = (0.2, 0.8)
"""Valid shares of a group, both included, from which a policy learns most: far from never and from always."""


@dataclasses.dataclass(frozen=True)
class KindEvidence:
    """One kind of boards' row: of a validation, or of a round's training rollouts.

    Attributes:
      kind: of the boards.
      n: answers counted; of a validation one greedy answer per prompt, of training every sampled answer.
      valid: how many pass all eight checks.
      optimal: how many are valid and at the optimum's cost.
      first_failures: per check, how many answers fail it and none before it; sums to ``n - valid``.
      any_failures: per check, how many answers fail it.
      sampled_valid: mean over prompts of the share of valid samples; None when nothing was sampled.
      sampled_se: standard error of that mean over prompts; None when nothing was sampled.
      groups: prompts that were sampled, the samples to one being a group.
      learnable: how many of the groups have a valid share within ``LEARNABLE``.
      all_valid, all_invalid: how many of the groups teach nothing about validity.
      answer_tokens, answer_tokens_se: mean length of the ``n`` answers in tokens, and its standard error over prompts.
      truncated: how many of the ``n`` answers hit the length cap.
      advantage: mean absolute advantage of a training answer in its group, whatever credit its tokens were given, the
        bandit's reward; an answer that was left out of its
        step's batch has 0. None in a validation.
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

    @property
    def optimal_given_valid(self) -> float | None:
        """Share of the valid answers that are optimal; None where none is valid."""
        return self.optimal / self.valid if self.valid else None


@dataclasses.dataclass(frozen=True)
class KindEnvironment:
    """The boards of one kind that evidence was measured on.

    Attributes:
      kind: of the boards.
      instances: how many there are.
      requested: ratios by their names (data, hole, wait) as asked for; None for boards that no configuration asked for.
      realised: the same as measured.
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
      kind: of the board.
      check: the first check that it fails.
      board: drawn as text, with the answered paths where they can be read.
      answer: as it was written, behind its thoughts; of a long one the end.
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
      sampled_valid: mean over all prompts of the share of valid samples; None when nothing was sampled.
      sampled_se: standard error of that mean over prompts; None when nothing was sampled.
      samples_per_prompt: 0 when nothing was sampled.
      answer_tokens: mean length of a greedy answer, in tokens.
      truncated: share of greedy answers that hit the length cap.
      environment: the validation's boards.
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
    def from_json(cls, data: Mapping[str, Any]) -> "Evidence":
        """Read what ``to_json`` wrote.

        Raises:
          ValueError: in one line, for another version, a missing or an unknown field, a value of another type, NaN, and
            numbers that contradict each other.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"evidence = {reprlib.repr(data)} must be a JSON object")
        if data.get("version") != VERSION:
            version = reprlib.repr(data.get("version"))
            raise ValueError(f"evidence has version {version}; it must be {VERSION}, which this program reads")
        evidence = _read(cls, {key: value for key, value in data.items() if key != "version"}, "evidence")
        if problem := next(_contradictions(evidence), None):
            raise ValueError(problem)
        return evidence


def _plain(value: Any) -> Any:
    """Return a value of the evidence as JSON has it; a table by kind is `by_size`, from before there were kinds."""
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return dict(value)
    if not dataclasses.is_dataclass(value):
        return value
    plain = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if isinstance(content, Kind):
            plain[row_name([content])] = content.label
        else:
            plain["by_size" if field.name == "by_kind" else field.name] = _plain(content)
    return plain


def _read(kind: Any, value: Any, where: str) -> Any:
    """Return a JSON value as the type of a field says; all numbers of the evidence are at least 0."""
    parts = typing.get_args(kind)
    if kind is Kind:
        label = _read(str if where.endswith(".kind") else int, value, where)
        try:
            found = Kind.of(label)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if found.label != label:
            raise ValueError(f"{where} = {value!r} must be written {found.label!r}")
        return found
    if isinstance(kind, types.UnionType):
        return None if value is None else _read(parts[0], value, where)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return _read_fields(kind, value, where)
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_read(parts[0], entry, f"{where}[{i}]") for i, entry in enumerate(value))
    if typing.get_origin(kind) is dict and isinstance(value, Mapping):
        return {key: _read(parts[1], entry, f"{where}[{reprlib.repr(key)}]") for key, entry in value.items()}
    if kind is str and isinstance(value, str):
        return value
    if kind is int and type(value) is int and 0 <= value <= 2**53:  # beyond it a float has gaps
        return value
    if kind is float and type(value) in (int, float) and 0 <= value <= sys.float_info.max:
        return float(value)
    names = {str: "a text", int: "a whole number from 0 on", float: "a number from 0 on", tuple: "a list"}
    name = names.get(typing.get_origin(kind) or kind, "an object")
    raise ValueError(f"{where} = {reprlib.repr(value)} must be {name}")


def _read_fields(kind: type, fields: Mapping[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    written = {"by_kind": "by_size", "kind": "kind" if "kind" in fields else "size"}
    names = {written.get(name, name): name for name in hints}
    for problem, differing in (("lacks", set(names) - set(fields)), ("has an unknown field", set(fields) - set(names))):
        if differing:
            raise ValueError(f"{where} {problem} {reprlib.repr(min(map(str, differing)))}")
    return kind(**{names[key]: _read(hints[names[key]], fields[key], f"{where}.{key}") for key in names})


def _contradictions(evidence: Evidence) -> Iterator[str]:
    """Yield what cannot have been counted on the same answers and boards, in a line each."""
    if not evidence.by_kind:
        yield "evidence.by_size is empty; it must have at least one row"
    tables = {"evidence": evidence} | ({} if evidence.training is None else {"evidence.training": evidence.training})
    for where, table in tables.items():
        rules = {
            "by_size": [(row.kind, _answer_rules(row)) for row in table.by_kind],
            "environment": [(row.kind, _board_rules(row)) for row in table.environment],
        }
        for name, rows in rules.items():
            kinds = [kind for kind, _ in rows]
            if kinds != sorted(set(kinds)):
                labels = reprlib.repr([kind.label for kind in kinds])
                yield f"{where}.{name} has sizes {labels}; they must differ and ascend"
            for kind, of_row in rows:
                yield from _broken(of_row, f"{where}.{name}, {kind.words}")
    yield from _broken(_sample_rules(evidence) | {"truncated <= 1": evidence.truncated <= 1}, "evidence")
    for entry in evidence.trajectories:
        if entry.check not in CHECKS:
            yield f"evidence.trajectories has check {reprlib.repr(entry.check)}; it must be one of {', '.join(CHECKS)}"


def _broken(rules: dict[str, bool], where: str) -> Iterator[str]:
    return (f"{where}: it must hold that {rule}" for rule, holds in rules.items() if not holds)


def _answer_rules(row: KindEvidence) -> dict[str, bool]:
    first, several = row.first_failures, row.any_failures
    return {
        "n > 0": row.n > 0,
        "optimal <= valid <= n": row.optimal <= row.valid <= row.n,
        "both failure counts have each check and nothing else": set(first) == set(several) == set(CHECKS),
        "first_failures sum to n - valid": sum(first.values()) == row.n - row.valid,
        "first_failures <= any_failures <= n - valid": all(
            count <= several.get(check, 0) <= row.n - row.valid for check, count in first.items()
        ),
        "truncated <= n": row.truncated <= row.n,
        "learnable + all_valid + all_invalid <= groups": row.learnable + row.all_valid + row.all_invalid <= row.groups,
        "groups are there if samples are": (row.groups > 0) == (row.sampled_valid is not None),
    } | _sample_rules(row)


def _sample_rules(row: KindEvidence | Evidence) -> dict[str, bool]:
    return {
        "sampled_valid <= 1": (row.sampled_valid or 0) <= 1,
        "sampled_valid and sampled_se go together": (row.sampled_valid is None) == (row.sampled_se is None),
    }


def _board_rules(row: KindEnvironment) -> dict[str, bool]:
    tables = (row.realised,) if row.requested is None else (row.realised, row.requested)
    return {
        f"the ratios are {', '.join(FIELDS)}, at most 1": all(
            set(table) == set(FIELDS) and max(table.values()) <= 1 + 1e-6 for table in tables
        ),
        "costs are there if instances are": {row.optimal_cost is None, row.interaction_gap is None}
        == {row.instances == 0},
        "solvable <= 1": (row.solvable or 0) <= 1,
    }

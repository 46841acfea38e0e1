"""What a validation says about the policy, per board size, in plain numbers; no wording and no pictures."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxlake.types import Check

VERSION = 2
"""Of the JSON form."""
CHECKS = tuple(check.name.lower() for check in Check)
"""The validity checks' names in the order in which they are reported."""


LEARNABLE = (0.2, 0.8)
"""Valid shares of a group, both included, from which a policy learns most: far from never and from always."""


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Interval of a share (Wilson 1927), within [0, 1]; z = 1.96 covers 95 %. Nothing counted gives (0, 1)."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclasses.dataclass(frozen=True)
class SizeEvidence:
    """One board size's row: of a validation, or of a round's training rollouts.

    Attributes:
      size: side of the board.
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
      answer_tokens, answer_tokens_se: mean length of the ``n`` answers in tokens, and its standard error.
      truncated: how many of the ``n`` answers hit the length cap.
      advantage: mean absolute advantage of a training answer, the bandit's reward; None in a validation.
    """

    size: int
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
    def optimal_given_valid(self) -> float | None:
        """Share of the valid answers that are optimal; None where none is valid."""
        return self.optimal / self.valid if self.valid else None


@dataclasses.dataclass(frozen=True)
class SizeEnvironment:
    """The boards of one size that evidence was measured on.

    Attributes:
      size: side of the board.
      instances: how many there are.
      requested: ratios by their names (data, hole, wait) as asked for; None for boards that no configuration asked for.
      realised: the same as measured.
      optimal_cost: mean of the least costs; None without instances.
      interaction_gap: mean of the least cost less the sum of the agents' own shortest paths; None without instances.
      solvable: share of the random boards tried that have a plan; None where none was tried.
    """

    size: int
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
      size: side of the board.
      check: the first check that it fails.
      board: drawn as text, with the answered paths where they can be read.
      answer: as it was written.
    """

    size: int
    check: str
    board: str
    answer: str


@dataclasses.dataclass(frozen=True)
class TrainingEvidence:
    """What the rollouts of a whole round said, and the boards that they were on.

    Attributes:
      by_size: rows in ascending order of size; a size without data has none.
      environment: rows in ascending order of size.
    """

    by_size: tuple[SizeEvidence, ...]
    environment: tuple[SizeEnvironment, ...]


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A whole validation, and the training before it.

    Attributes:
      by_size: rows in ascending order of size.
      sampled_valid: mean over all prompts of the share of valid samples; None when nothing was sampled.
      sampled_se: standard error of that mean over prompts; None when nothing was sampled.
      samples_per_prompt: 0 when nothing was sampled.
      answer_tokens: mean length of a greedy answer, in tokens.
      truncated: share of greedy answers that hit the length cap.
      environment: the validation's boards.
      training: the round that ended with this validation; None before the first.
      trajectories: a few failures, at most one of a size and check.
    """

    by_size: tuple[SizeEvidence, ...]
    sampled_valid: float | None
    sampled_se: float | None
    samples_per_prompt: int
    answer_tokens: float
    truncated: float
    environment: tuple[SizeEnvironment, ...] = ()
    training: TrainingEvidence | None = None
    trajectories: tuple[Trajectory, ...] = ()

    @property
    def n(self) -> int:
        """Answers counted over all sizes."""
        return sum(row.n for row in self.by_size)

    @property
    def valid(self) -> int:
        """Valid answers over all sizes."""
        return sum(row.valid for row in self.by_size)

    @property
    def optimal(self) -> int:
        """Optimal answers over all sizes."""
        return sum(row.optimal for row in self.by_size)

    @property
    def first_failures(self) -> dict[str, int]:
        """Per check, how many answers fail it and none before it, over all sizes."""
        return {check: sum(row.first_failures[check] for row in self.by_size) for check in CHECKS}

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, with the version of this form."""
        return {"version": VERSION, **json.loads(json.dumps(dataclasses.asdict(self)))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Evidence":
        """Inverse of ``to_json``.

        Raises:
          ValueError: another version, a missing or an unknown field.
        """
        if data.get("version") != VERSION:
            raise ValueError(f"evidence has version {data.get('version')!r}; this program reads version {VERSION}")
        fields = {key: value for key, value in data.items() if key != "version"}
        try:
            training = fields["training"]
            return cls(
                **fields
                | {
                    "by_size": _rows(SizeEvidence, fields["by_size"]),
                    "environment": _rows(SizeEnvironment, fields["environment"]),
                    "trajectories": _rows(Trajectory, fields["trajectories"]),
                    "training": training
                    and TrainingEvidence(
                        _rows(SizeEvidence, training["by_size"]), _rows(SizeEnvironment, training["environment"])
                    ),
                }
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"evidence does not have the fields of version {VERSION}: {error}") from error


def gather(
    *,
    sizes: np.ndarray,
    checks: np.ndarray,
    optimal: np.ndarray,
    tokens: np.ndarray,
    truncated: np.ndarray,
    sampled_valid: np.ndarray | None = None,
    samples_per_prompt: int = 0,
) -> Evidence:
    """Counts the verdicts of a validation.

    Args:
      sizes: int ``[prompts]`` side of each prompt's board.
      checks: bool ``[prompts, 8]`` of the greedy answer, True where a check passes.
      optimal: bool ``[prompts]``.
      tokens: int ``[prompts]`` length of the greedy answer.
      truncated: bool ``[prompts]``.
      sampled_valid: float ``[prompts]`` share of a prompt's samples that are valid, or None.
      samples_per_prompt: how many samples that share is over.

    Raises:
      ValueError: no prompt at all, or arrays of different lengths.
    """
    given = {"checks": checks, "optimal": optimal, "tokens": tokens, "truncated": truncated}
    given |= {} if sampled_valid is None else {"sampled_valid": sampled_valid}
    arrays = {name: np.asarray(array) for name, array in given.items()}
    sizes = np.asarray(sizes)
    if len(sizes) == 0:
        raise ValueError("no evidence can be gathered from 0 prompts")
    for name, array in arrays.items():
        shape = (len(sizes), len(CHECKS)) if name == "checks" else (len(sizes),)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    shares = arrays.get("sampled_valid")
    return Evidence(
        by_size=tuple(
            _row(int(size), arrays["checks"][here], arrays["optimal"][here], None if shares is None else shares[here])
            for size, here in ((size, sizes == size) for size in np.unique(sizes))
        ),
        sampled_valid=None if shares is None else float(shares.mean()),
        sampled_se=None if shares is None else _standard_error(shares),
        samples_per_prompt=0 if shares is None else samples_per_prompt,
        answer_tokens=float(arrays["tokens"].mean()),
        truncated=float(arrays["truncated"].mean()),
    )


def _rows(kind: type, rows: Sequence[Mapping[str, Any]]) -> tuple:
    return tuple(kind(**row) for row in rows)


def _row(size: int, checks: np.ndarray, optimal: np.ndarray, shares: np.ndarray | None) -> SizeEvidence:
    failed = ~checks.astype(bool)
    invalid = failed.any(axis=1)
    first = np.bincount(failed.argmax(axis=1)[invalid], minlength=len(CHECKS))
    return SizeEvidence(
        size=size,
        n=len(checks),
        valid=int((~invalid).sum()),
        optimal=int((optimal.astype(bool) & ~invalid).sum()),
        first_failures=dict(zip(CHECKS, first.tolist(), strict=True)),
        any_failures=dict(zip(CHECKS, failed.sum(axis=0).tolist(), strict=True)),
        sampled_valid=None if shares is None else float(shares.mean()),
    )


def _standard_error(shares: np.ndarray) -> float:
    """Of the mean over prompts; samples of one prompt are correlated, so prompts are the units."""
    return float(shares.std(ddof=1) / math.sqrt(len(shares))) if len(shares) > 1 else 0.0

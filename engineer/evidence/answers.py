"""From verdicts on answers to rows of evidence: a validation at once, a round's training by running sums."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engineer.evidence.types import CHECKS, LEARNABLE, Evidence, KindEnvironment, KindEvidence, TrainingEvidence
from jaxlake.benchmark.scoring import mean_and_error
from jaxlake.kinds import Kind
from jaxlake.record import Array

Sums = dict[str, dict[str, Any]]
"""Running sums of `add`, by kind; plain JSON values."""


def wilson(successes: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Return the interval of a share (Wilson 1927); z = 1.96 covers 95 %. Nothing counted gives (0, 1)."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def evidence_from_verdicts(
    *,
    kinds: Array,
    checks: Array,
    optimal: Array,
    tokens: Array,
    truncated: Array,
    sampled_valid: Array | None = None,
    samples_per_prompt: int = 0,
) -> Evidence:
    """Count the verdicts of a validation.

    Args:
      kinds: ``[prompts]``, what `Kind.of` reads of each prompt's board: a `Kind`, its name, or a size.
      checks: bool ``[prompts, 8]`` of the greedy answer, True where a check passes.
      optimal, tokens, truncated: ``[prompts]`` of the greedy answer; tokens are lengths.
      sampled_valid: float ``[prompts]`` share of a prompt's samples that are valid, or None.
      samples_per_prompt: number of samples that the share is over.
    """
    kinds = np.array([Kind.of(kind) for kind in np.asarray(kinds).tolist()], object)
    arrays = {"checks": checks, "optimal": optimal, "tokens": tokens, "truncated": truncated}
    columns: dict[str, Any] = {name: np.asarray(array)[:, None] for name, array in arrays.items()}
    sums = add(None, kinds, **columns)
    shares = None if sampled_valid is None else np.asarray(sampled_valid)
    rows = (
        _row(kind, counted, **({} if shares is None else _sampled(shares[kinds == kind])))
        for kind, counted in zip(map(Kind.of, sums), sums.values(), strict=True)
    )
    mean, error = (None, None) if shares is None else mean_and_error(shares)
    samples = 0 if shares is None else samples_per_prompt
    return Evidence(tuple(rows), mean, error, samples, float(np.mean(tokens)), float(np.mean(truncated)))


def add(
    sums: Sums | None,
    kinds: Array,
    *,
    checks: Array,
    optimal: Array,
    tokens: Array,
    truncated: Array,
    advantages: Array | None = None,
    counted: Array | None = None,
    kind_of: Callable[[str], Kind] = Kind.of,
) -> Sums:
    """Add groups of answers to the running sums, and return new ones, ascending in kind; 128 answers take 0.25 ms.

    Whole numbers but for the advantages, so that sums saved and loaded, and those of any order of the steps, give the
    same evidence.

    Args:
      sums: the sums so far; None before the first group.
      kinds: object ``[groups]``, `Kind` of the board that a group's answers are to.
      checks: bool ``[groups, samples, 8]``, True where a check passes.
      optimal, tokens, truncated: ``[groups, samples]``; tokens are lengths.
      advantages: float ``[groups, samples]``, 0 for what is not trained on; None without training.
      counted: bool ``[groups, samples]``, which answers there are, at least one in a group; None: all.
      kind_of: from a kind's name to the kind, where the kinds are not boards.
    """
    if counted is None:
        counted = np.ones(truncated.shape, bool)
    failed = ~checks.astype(bool) & counted[..., None]
    valid, lengths = counted & ~failed.any(axis=-1), (tokens * counted).astype(np.int64).sum(axis=-1)
    of_group, samples = valid.sum(axis=-1), counted.sum(axis=-1)
    share = of_group / samples
    columns = {
        "groups": np.ones(len(kinds), int),
        "answers": samples,
        "answer_squares": samples**2,
        "valid": of_group,
        "valid_squares": of_group**2,
        "valid_answers": of_group * samples,
        "optimal": (optimal.astype(bool) & valid).sum(axis=-1),
        "first_failures": (failed & (failed.cumsum(axis=-1) == 1)).sum(axis=1),
        "any_failures": failed.sum(axis=1),
        "tokens": lengths,
        "tokens_squares": lengths**2,
        "tokens_answers": lengths * samples,
        "truncated": (truncated.astype(bool) & counted).sum(axis=-1),
        "learnable": (share >= LEARNABLE[0]) & (share <= LEARNABLE[1]),
        "all_valid": of_group == samples,
        "all_invalid": of_group == 0,
    }
    if advantages is not None:
        columns["advantages"] = np.abs(advantages * counted).sum(axis=-1, dtype=np.float64)
    total = dict(sums or {})
    for kind in set(kinds.tolist()):
        of_kind = kinds == kind
        new = {name: column[of_kind].sum(axis=0).tolist() for name, column in columns.items()}
        old = total.get(str(kind))
        total[str(kind)] = new if old is None else {name: np.add(old[name], new[name]).tolist() for name in new}
    return {name: total[name] for name in sorted(total, key=kind_of)}


def training_evidence(
    sums: Sums | None, environment: tuple[KindEnvironment, ...], kind_of: Callable[[str], Kind] = Kind.of
) -> TrainingEvidence:
    """Return the rows of a round's rollouts, from the sums of all its steps with advantages, beside its boards'."""
    rows = []
    for kind, counted in (sums or {}).items():
        answers, error = counted["answers"], _error_of_ratio(counted, "valid")
        sampled = {"sampled_valid": counted["valid"] / answers, "sampled_se": error}
        sampled |= {name: counted[name] for name in ("groups", "learnable", "all_valid", "all_invalid")}
        rows.append(_row(kind_of(kind), counted, **sampled, advantage=counted["advantages"] / answers))
    return TrainingEvidence(tuple(rows), environment)


def _row(kind: Kind, counted: Mapping[str, Any], **sampled: Any) -> KindEvidence:
    """Return a row; ``sampled`` are its fields that tell of groups of samples."""
    answers = counted["answers"]
    return KindEvidence(
        kind=kind,
        n=answers,
        **{name: counted[name] for name in ("valid", "optimal", "truncated")},
        first_failures=dict(zip(CHECKS, counted["first_failures"], strict=True)),
        any_failures=dict(zip(CHECKS, counted["any_failures"], strict=True)),
        answer_tokens=counted["tokens"] / answers,
        answer_tokens_se=_error_of_ratio(counted, "tokens"),
        **sampled,
    )


def _sampled(shares: np.ndarray) -> dict[str, Any]:
    """Return the fields of a validation's row that tell of its samples, by their valid shares ``[prompts]``."""
    mean, error = mean_and_error(shares)  # over prompts: samples of one prompt are correlated
    return {
        "sampled_valid": mean,
        "sampled_se": error,
        "groups": len(shares),
        "learnable": int(((shares >= LEARNABLE[0]) & (shares <= LEARNABLE[1])).sum()),
        "all_valid": int((shares == 1).sum()),
        "all_invalid": int((shares == 0).sum()),
    }


def _error_of_ratio(counted: Mapping[str, Any], name: str) -> float:
    """Return the standard error of a sum over all answers, whose groups may differ in size (Cochran 1977, 6.3)."""
    groups, answers, total = counted["groups"], counted["answers"], counted[name]
    if groups < 2:
        return 0.0
    squares, products = counted[f"{name}_squares"], counted[f"{name}_answers"]
    # Whole numbers up to here, in which a sum of squares that are all equal is exactly that of their mean.
    residuals = answers**2 * squares - 2 * answers * total * products + total**2 * counted["answer_squares"]
    return math.sqrt(residuals * groups / answers**2 / (groups - 1)) / groups / (answers / groups)

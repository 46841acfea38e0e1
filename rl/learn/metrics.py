"""The metrics of a step's answers, as flat numbers for logs and curves; draws and decides nothing."""

from collections.abc import Sequence

import numpy as np

from engineer.evidence import LEARNABLE
from jaxlake.kinds import Kind
from jaxlake.record import Array
from jaxlake.types import Check, Verdict
from rl.learn.reward import Rewards


def describe(
    kinds: Array,
    verdict: Verdict,
    rewards: Rewards,
    tokens: Array,
    truncated: Array,
    groups: Array,
    lake_kinds: Sequence[Kind],
) -> dict[str, float]:
    """Return the metrics of the ``B`` answers of a step, those of all processes; 128 answers take 0.3 ms.

    Groups are counted by validity alone, never by reward: the penalty on length gives a group without a valid answer
    rewards that differ, from which nothing about plans is learnt.

    Args:
      kinds: object ``[B]``, `Kind` of each answer's board.
      tokens: int ``[B]``, lengths of the answers.
      truncated: bool ``[B]``, answers that reached the limit without an end.
      groups: int ``[B]``, answers with the same number are to the same prompt.
      lake_kinds: the run's kinds, so that every step has the same metrics.

    Returns:
      Metrics as docs/training.md lists them. NaN is a mean over nothing.
    """
    valid, optimal, tokens = np.asarray(verdict.valid), np.asarray(verdict.optimal), tokens.astype(np.int64)
    first = np.where(valid, len(Check), np.argmin(verdict.checks, axis=-1))
    failures = np.bincount(first, minlength=len(Check)) / len(valid)
    _, members = np.unique(groups, return_inverse=True)
    share = np.bincount(members, weights=valid) / np.bincount(members)
    return {
        "reward": _mean(rewards.total),
        "reward_accuracy": _mean(rewards.accuracy),
        "reward_length": _mean(rewards.length),
        "weight_accuracy": float(rewards.weight_accuracy),
        "weight_length": float(1.0 - rewards.weight_accuracy),
        "valid": _mean(valid),
        "optimal": _mean(optimal),
        "optimal_given_valid": _mean(optimal[valid]),
        **{f"valid/{metric_name(kind)}": _mean(valid[kinds == kind]) for kind in lake_kinds},
        **{f"optimal/{metric_name(kind)}": _mean(optimal[kinds == kind]) for kind in lake_kinds},
        **{f"failure/{check.name.lower()}": float(failures[check]) for check in Check},
        "answer_tokens": _mean(tokens),
        "answer_tokens_ended": _mean(tokens[~truncated]),
        "answer_tokens_max": float(tokens.max()),
        "truncated": _mean(truncated),
        "all_valid_groups": _mean(share == 1),
        "all_invalid_groups": _mean(share == 0),
        "learnable": _mean((share >= LEARNABLE[0]) & (share <= LEARNABLE[1])),
    }


def metric_name(kind: Kind) -> str:
    """Return what the metrics call a kind: ``size_6``, ``kind_rooms6``."""
    return kind.words.replace(" ", "_")


def _mean(values: Array) -> float:
    return float(values.mean(dtype=np.float64)) if len(values) else float("nan")

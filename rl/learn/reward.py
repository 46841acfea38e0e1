"""The reward of an answer: the paper's, whose weights follow the lengths of answers, and plainer ones."""

import dataclasses

import numpy as np

from jaxlake.record import Array
from jaxlake.rewards import accuracy
from jaxlake.types import Check, Verdict
from rl.config import RewardSection, RunError, extensions

SHARE_DECAY = 0.9
"""Weight of the past in the moving share of short answers; the paper does not publish its own."""


@dataclasses.dataclass(frozen=True)
class Rewards:
    """The rewards of ``B`` answers, and what they are made of.

    Attributes:
      accuracy: float32 ``[B]`` in [0, 1], that of a function of the user's own any number.
      length: float32 ``[B]`` in [-1, 0], 0 for the kinds that see no length.
      weight_accuracy: weight of the accuracy; that of the length is the rest of 1.
    """

    accuracy: np.ndarray
    length: np.ndarray
    weight_accuracy: float

    @property
    def total(self) -> np.ndarray:
        """The rewards, float32 ``[B]``."""
        return self.weight_accuracy * self.accuracy + (1.0 - self.weight_accuracy) * self.length


def rewards(settings: RewardSection, verdict: Verdict, optima: Array, tokens: Array, short_share: float) -> Rewards:
    """Return the rewards of ``B`` answers.

    Args:
      settings: `kind`, which may name a function ``(verdict, optima, tokens) -> [B]``; for the paper's also the lengths
        between which its penalty grows.
      verdict: numpy ``[B]``; its cost is what the lake's objective says, as the optima are.
      optima: int32 ``[B]``, least costs.
      tokens: int ``[B]``, lengths of the answers.
      short_share: moving share of short answers, this step's included (`moving_share`).
    """
    w_acc, length = 1.0, np.zeros(len(tokens), np.float32)
    valid, cost = np.asarray(verdict.valid), np.asarray(verdict.cost)
    match settings.kind:
        case "paper":  # by cost, less a penalty on length
            w_acc, worth = weight_accuracy(short_share), accuracy(valid, cost, optima)
            length = length_penalty(tokens, settings.free_tokens, settings.limit_tokens)
        case "accuracy":  # by cost alone
            worth = accuracy(valid, cost, optima)
        case "valid":  # 1 or 0
            worth = valid
        case "optimal":  # 1 or 0
            worth = np.asarray(verdict.optimal)
        case "checks":
            worth = steps_passed(verdict)
        case own:
            worth = _own(own, verdict, optima, tokens)
    return Rewards(np.asarray(worth, np.float32), length, w_acc)


def _own(name: str, verdict: Verdict, optima: Array, tokens: Array) -> np.ndarray:
    """Return what the user's own function makes of the answers; RunError if that is no finite number for each."""
    worth = np.asarray(extensions.find("student.reward.kind", name)(verdict, optima, tokens), np.float32)
    infinite = np.count_nonzero(~np.isfinite(worth))
    if worth.shape != (len(tokens),) or infinite:
        found = f"shape {worth.shape}, {infinite} of them not finite"
        raise RunError(
            f"student.reward.kind = {name}: must return {len(tokens)} finite numbers, one an answer, not {found}"
        )
    return worth


def steps_passed(verdict: Verdict) -> np.ndarray:
    """Return partial credit, float32 ``[B]``: the share of checks and optimality passed before the first that fails.

    So a text that cannot be read gets 0, a valid plan 8/9 and an optimal one 1. A plain share of the checks passed
    would give such a text 6/8, as a check passes where there is nothing to object to.
    """
    ladder = np.concatenate([verdict.checks, verdict.optimal[:, None]], axis=-1)
    return np.logical_and.accumulate(ladder, axis=-1).sum(axis=-1, dtype=np.float32) / np.float32(len(Check) + 1)


def length_penalty(tokens: Array, free: int, limit: int) -> np.ndarray:
    """Return R_len: 0 up to `free` tokens (the paper's L1), -1 from `limit` on (L2), linear between; float32."""
    return -np.clip((tokens - free) / (limit - free), 0.0, 1.0).astype(np.float32)


def weight_accuracy(short_share: float) -> float:
    """Return w_acc by the moving share of answers within L1 tokens: .5 up to .5, .8 from .9 on, linear between."""
    return 0.5 + 0.3 * min(max((short_share - 0.5) / 0.4, 0.0), 1.0)


def moving_share(previous: float | None, tokens: Array, free: int) -> float:
    """Return the next exponential moving average of the share of answers with at most `free` tokens."""
    share = float(np.mean(tokens <= free))
    return share if previous is None else SHARE_DECAY * previous + (1 - SHARE_DECAY) * share

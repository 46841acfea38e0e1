"""Rules that read what kinds have in common: side, number of agents and family, as features. Holds no state."""

import math
from collections.abc import Sequence

import jax
import numpy as np

from engineer.context import PastRound
from engineer.engineers.base import generator, with_data
from engineer.engineers.rules import NEAREST, known_rows, training_rows, valid_shares
from engineer.evidence import Evidence
from engineer.proposal import STEP
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Family, Kind

SIDES = 4.0
"""Sides that weigh as much as an agent, as in `Kind.difficulty`."""
RECENT = 4
"""Latest rounds that `ridge` reads: older answers are those of another policy."""
EDGE = 0.01
"""Distance from 0 and 1 at which `ridge` takes a valid share, so that its logit is finite."""


def features(kinds: Sequence[Kind]) -> np.ndarray:
    """Return float64 ``[kinds, 2 + families]``: side / ``SIDES``, number of agents, and a 1 in the family's column."""
    families = [[float(kind.family is family) for family in Family] for kind in kinds]
    return np.array([[kind.size / SIDES, kind.num_agents, *of] for kind, of in zip(kinds, families, strict=True)])


def procurl_target(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Give data by p (1 - p) of a kind times its similarity to the targets, the kinds that are validated.

    ProCuRL-Target (Tzannetos et al. 2024) scores a task by Z(c) Z(c*) <psi(c), psi(c*)>; its code has p (1 - p) for Z
    and exp(-distance) of the tasks' parameters for the product, and draws by a softmax. Here targets may all be at 0,
    which would score everything 0: so Z(c*), a constant where the target is one, is left out, and the similarity is the
    mean of exp(-distance) of `features` over the targets. Ours too: data in proportion; a kind's share in the latest
    round that knew it; and a step of data for every kind, by which one that is not known, or was never solved, is seen.
    """
    kinds = history[-1].config.kinds
    targets = features([row.kind for row in evidence.by_kind] or kinds)
    similarity = np.exp(-np.linalg.norm(features(kinds)[:, None] - targets, axis=-1)).mean(axis=1)
    p = valid_shares(evidence, kinds, history, unknown=0.0)
    weights = p * (1 - p) * similarity
    return with_data(history, weights / (weights.sum() or 1.0) + STEP)


def ridge(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on the kinds that a regression expects nearest to half solved in the coming round; ours.

    A ridge regression of the logits of the kinds' valid shares in the last `RECENT` rounds, on their `features`, the
    hole and wait ratios that they were configured with, and the round, whose weight is the change from round to round.
    Shares are of a round's training answers, of a kind without any of its validation. Thompson sampling: one draw from
    the weights' posterior predicts all kinds, so that what is uncertain is tried; without evidence it is the prior's.

    The learning value is p (1 - p) of the drawn p. A drawn change could be it, but is known a round later, is the
    difference of two noisy numbers, and in the beginning is 0 for every kind but the easiest. Data is 1 / rank for the
    `NEAREST` of highest value, as `frontier` has it.
    """
    last, rows, logits = history[-1].round, [], []
    for past in history[-RECENT:]:
        known = known_rows(past.evidence) | {kind: row for kind, row in training_rows(past).items() if row.n}
        for kind, row in zip(past.config.kinds, _inputs(past.config, past.round - last), strict=True):
            if kind in known:
                p = min(max(known[kind].valid_share, EDGE), 1 - EDGE)
                rows.append(row)
                logits.append(math.log(p / (1 - p)))
    kinds = history[-1].config.kinds
    asked = _inputs(with_data(history, [1.0] * len(kinds)), 1)
    mean, root = posterior(np.reshape(rows, (-1, asked.shape[1])), np.array(logits))
    drawn = asked @ (mean + root @ generator(key).standard_normal(len(mean)))
    rank = np.argsort(np.argsort(np.abs(drawn), kind="stable"))  # p (1 - p) falls with the logit's distance from 0
    return with_data(history, np.where(rank < NEAREST, 1 / (1 + rank), 0.0).tolist())


def posterior(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior of a ridge regression's weights: mean ``[n]``, and ``R [n, n]`` with covariance ``R R'``.

    The prior is N(0, s^2) for each weight, the noise has variance s^2: the mean of the squared residuals and of one 1,
    the prior's.

    Args:
      x: float64 ``[rows, n]``; there may be no row.
      y: float64 ``[rows]``.
    """
    precision = x.T @ x + np.eye(x.shape[1])
    mean = np.linalg.solve(precision, x.T @ y)
    noise = math.sqrt((1 + np.square(y - x @ mean).sum()) / (1 + len(y)))
    return mean, noise * np.linalg.inv(np.linalg.cholesky(precision)).T


def _inputs(config: LakeConfig, when: int) -> np.ndarray:
    """Return float64 ``[kinds, n]``: features of the kinds, hole / ``MAX_HOLE``, wait, and the round from the last."""
    ratios = [np.array(config.hole) / MAX_HOLE, np.array(config.wait), np.full(len(config.kinds), float(when))]
    return np.column_stack([features(config.kinds), *ratios])

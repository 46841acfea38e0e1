"""Rules with a memory, which is the history: a bandit over kinds, a replayed buffer, mutations of the best round.

Plain functions as in `rules`; what a round taught is read in its training rollouts.
"""

from collections.abc import Sequence

import jax
import numpy as np

from engineer.context import PastRound
from engineer.engineers.base import generator, legal, with_data
from engineer.engineers.rules import HOLE_STEP, WAIT_STEP, training_rows
from engineer.evidence import Evidence
from jaxlake.config import MAX_HOLE, LakeConfig

RATE, TEMPERATURE = 0.5, 0.2
"""Share by which a round moves the bandit's values, and the temperature that turns them into data ratios; ours."""
NEW, STALENESS = 0.25, 0.5
"""Share of cells that `plr` draws anew, and weight of staleness in what it replays, ours."""
EDITS, DATA_STEP = 3, 0.05
"""Edits that `mutate_best` makes, and by how much it moves a data ratio; ours."""


def bandit(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Treat kinds as arms whose reward is the mean absolute advantage of their training answers (SEC).

    Values start at 0 and move by TD(0), Q <- Q + rate (reward - Q), where a kind had data; data ratios are their
    Boltzmann distribution.
    """
    values = dict.fromkeys(history[-1].config.kinds, 0.0)
    for past in history:
        for kind, row in training_rows(past).items():
            if row.advantage is not None:
                values[kind] += RATE * (row.advantage - values[kind])
    score = np.array(list(values.values()))
    return with_data(history, np.exp((score - score.max()) / TEMPERATURE))


def plr(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Replay what was worth learning from (PLR): a buffer of cells, a cell being a kind with its hole and wait ratio.

    A cell's score is p (1 - p) of its last round's training answers. It is replayed with a probability that mixes
    1 / rank by score with the rounds since it was last trained on. As a configuration has one cell of each kind, a
    kind takes one of its own by these probabilities or, with probability ``NEW`` or for want of any, a random one; and
    it gets their sum as data beside an equal part of ``NEW``. The cells, the score and ``NEW`` are ours.
    """
    kinds, rng, buffer = history[-1].config.kinds, generator(key), {}
    for past in history:
        for i, kind in enumerate(kinds):
            row = training_rows(past).get(kind)
            if row is not None and row.n:
                p = row.valid / row.n
                buffer[kind, past.config.hole[i], past.config.wait[i]] = (p * (1 - p), past.round)
    replay = dict(zip(buffer, _replay_probabilities(list(buffer.values()), history[-1].round + 1), strict=True))

    data, hole, wait = [], [], []
    for kind in kinds:
        cells = [cell for cell in buffer if cell[0] == kind]
        weights = [replay[cell] for cell in cells]
        data.append(NEW / len(kinds) + (1 - NEW) * sum(weights))
        is_new, fresh = rng.random() < NEW, (kind, rng.uniform(0, MAX_HOLE), rng.uniform(0, 1))
        cell = fresh if is_new or not cells else cells[rng.choice(len(cells), p=np.divide(weights, sum(weights)))]
        hole.append(cell[1])
        wait.append(cell[2])
    return legal(kinds, data, hole, wait)


def mutate_best(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Make small edits to the round that taught most (ACCEL), the later of two alike.

    What a round taught is the share of its groups with something to learn, weighted by data. An edit moves one ratio
    of one kind by a step, up or down. Score, edits and steps are ours.
    """
    best = max(reversed(history), key=_learnable_share).config
    rng, columns = generator(key), {field: list(getattr(best, field)) for field in _STEPS}
    for _ in range(EDITS):
        field = rng.choice(list(_STEPS))
        columns[field][rng.integers(len(best.kinds))] += rng.choice((-1, 1)) * _STEPS[field]
    return legal(best.kinds, **columns)


_STEPS = {"data": DATA_STEP, "hole": HOLE_STEP, "wait": WAIT_STEP}


def _replay_probabilities(cells: Sequence[tuple[float, int]], now: int) -> np.ndarray:
    """Return float ``[cells]`` from each one's score and last round; of equal scores the earlier cell ranks higher."""
    if not cells:
        return np.zeros(0)
    scores, rounds = np.array(cells).T
    rank = np.empty(len(cells))
    rank[np.argsort(-scores, kind="stable")] = 1 + np.arange(len(cells))
    stale = now - rounds
    return (1 - STALENESS) / rank / (1 / rank).sum() + STALENESS * stale / stale.sum()


def _learnable_share(past: PastRound) -> float:
    data = dict(zip(past.config.kinds, past.config.data, strict=True))
    return sum(data[kind] * row.learnable / row.groups for kind, row in training_rows(past).items() if row.groups)

"""Rules as engineers: the paper's baseline, simple curricula, and methods of the literature.

Plain functions ``(evidence, history, key) -> configuration`` without any state. ``history`` holds at least round 0.
Unless a rule says otherwise it chooses the data ratios, in multiples of 0.005, and hole and wait ratios stay as
they were realised: none of the sources has any. ``examples/engineers_from_the_literature.py`` has more rules.
"""

import math
from collections.abc import Sequence

import jax
import numpy as np

from engineer.context import PastRound, main_failure, percent
from engineer.engineers.base import Rule, generator, in_steps, legal, with_data
from engineer.evidence import Evidence
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Family, Kind

FLOOR = 0.05
"""Added to every kind's p (1 - p), which is at most 0.25, so that no kind is forgotten."""
NEAREST = 4
"""Kinds that `frontier` trains on. Two or eight in place of four ended within 3 points of it in the lab, of 22."""
FEW, MOST = 50, 80
"""Valid percentages below which `frontier` thins holes that are the main failure, and above which it thickens them."""
FRONTIER_HOLE, FRONTIER_WAIT, FRONTIER_STEP = 0.25, 0.3, 0.1
"""The ratios that `frontier` starts from, and by how much it moves one."""
BETA, ALPHA, ETA = 0.5, 2.0, 50.0
"""AdaRFT's target valid share, sensitivity, and step on a scale of difficulty from 0 to 100."""
WINDOW, PROMPTS, MASTERED = 4, 8, 0.9
"""RLVE's levels in use, and the prompts and the valid share at the top level that open the next."""
NEW, STALENESS = 0.25, 0.5
"""Share of cells that `plr` draws anew, and weight of staleness in what it replays, ours."""
SIDES = 4.0
"""Sides that weigh as much as an agent, as in `Kind.difficulty`."""
RECENT, EDGE = 4, 0.01
"""Latest rounds that `ridge` reads, and the distance from 0 and 1 that keeps the logit of a valid share finite."""


def fixed_random(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Return round 0's random configuration, as realised: the paper's baseline, training without an engineer."""
    return history[0].config


def uniform(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Treat all kinds alike, with the middle hole and wait ratios: the mean of round 0's draws."""
    return LakeConfig.uniform(history[-1].config.kinds, hole=MAX_HOLE / 2, wait=0.5)


def targets_only(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on what is validated and nothing else, all kinds alike, with the ratios of `uniform`: hard only."""
    targets = {row.kind for row in evidence.by_kind}
    return equal_data(history, [kind in targets for kind in history[-1].config.kinds])


def easy_only(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on the quarter of the kinds that are the easiest, all alike, with the ratios of `uniform`."""
    kinds = history[-1].config.kinds
    return equal_data(history, [level < max(1, len(kinds) // 4) for level in difficulty_ranks(kinds)])


def learnability(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Give data where success is uncertain: p (1 - p) of the valid share (SFL), and a floor, which is ours."""
    rows = evidence.known_rows
    p = np.array([rows[kind].valid_share if kind in rows else 0.5 for kind in history[-1].config.kinds])
    return with_data(history, p * (1 - p) + FLOOR)


def frontier(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on the kinds that are solved nearest to half the time, and on nothing else; what the examples teach.

    Data is 1 / rank (PLR's prioritization) by the distance of a kind's valid share from a half (SFL's score), for the
    `NEAREST` four. Of equal distances, in whole percents as a table shows them, the earlier kind ranks higher. Kinds
    that were neither validated nor trained on are not known and get none, unless no kind is known: then all count
    alike. Holes are thinner where they are the main failure and few plans are valid, thicker where most are; waits are
    more where conflicts lead. Ranks, numbers and steps are ours.
    """
    return frontier_design(evidence, history[-1].config.kinds)


def frontier_design(evidence: Evidence, kinds: tuple[Kind, ...]) -> LakeConfig:
    """Return what `frontier` designs of these kinds; it reads nothing but the latest evidence."""
    rows, ranked = evidence.known_rows, nearest_to_half(evidence, kinds)
    weights = [1 / (1 + ranked.index(kind)) if kind in ranked else 0.0 for kind in kinds]
    hole, wait = [FRONTIER_HOLE] * len(kinds), [FRONTIER_WAIT] * len(kinds)
    for i, row in enumerate(map(rows.get, kinds)):
        if row is not None:
            share, failure = percent(row.valid_share, 1), main_failure(row).split()[0]
            hole[i] += FRONTIER_STEP * ((share > MOST) - (share < FEW and failure == "hole"))
            wait[i] += FRONTIER_STEP * (failure == "conflict")
    return in_steps(kinds, weights if ranked else [1.0] * len(kinds), hole, wait)


def nearest_to_half(evidence: Evidence, kinds: Sequence[Kind]) -> list[Kind]:
    """Return the `NEAREST` of these kinds whose valid share is known and nearest to a half, the nearest first."""
    shares = {kind: percent(row.valid_share, 1) for kind, row in evidence.known_rows.items() if kind in kinds}
    return sorted(shares, key=lambda kind: abs(shares[kind] - 50))[:NEAREST]


def adarft(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Follow one target difficulty T for all, moved by each round's valid share in training (AdaRFT).

    T starts at 0, and T <- clip(T + eta tanh(alpha (R - beta)), 0, 100) after each round; the source does so after
    each batch and takes the problems nearest to T. Here kinds, from 0 for the easiest to 100 for the hardest at equal
    distances, get data by a triangle around T that is two distances wide on either side.
    """
    kinds, target = history[-1].config.kinds, 0.0
    for past in history:
        rows = past.evidence.training_rows.values()
        if any(row.n for row in rows):
            share = sum(row.valid for row in rows) / sum(row.n for row in rows)
            target = min(max(target + ETA * math.tanh(ALPHA * (share - BETA)), 0.0), 100.0)
    if len(kinds) == 1:
        return history[-1].config
    difficulties = np.linspace(0, 100, len(kinds))[difficulty_ranks(kinds)]
    near = np.maximum(0, 1 - np.abs(difficulties - target) / (2 * np.sort(difficulties)[1]))
    return with_data(history, near.tolist())


def ladder(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Climb the kinds as levels: equal data for the top four; mastering the top one opens the next (RLVE).

    It starts at the easiest kind and never goes down. A round's training counts for every level that the ladder reaches
    by it: the source climbs within a round's worth of prompts too.
    """
    kinds, top = history[-1].config.kinds, 0
    levels = difficulty_ranks(kinds)
    for past in history:
        mastered = {
            k
            for k, row in past.evidence.training_rows.items()
            if row.groups >= PROMPTS and row.valid >= MASTERED * row.n
        }
        while top < len(kinds) - 1 and kinds[levels.index(top)] in mastered:
            top += 1
    return with_data(history, [float(top - WINDOW < level <= top) for level in levels])


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
            row = past.evidence.training_rows.get(kind)
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


def _replay_probabilities(cells: Sequence[tuple[float, int]], now: int) -> np.ndarray:
    """Return float ``[cells]`` from each one's score and last round; of equal scores the earlier cell ranks higher."""
    scores, rounds = np.reshape(cells, (-1, 2)).T
    rank, stale = 1 + np.argsort(np.argsort(-scores, kind="stable")), now - rounds
    return (1 - STALENESS) / rank / (1 / rank).sum() + STALENESS * stale / stale.sum()


def ridge(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on the kinds that a regression expects nearest to half solved in the coming round; ours.

    A ridge regression of the logits of the kinds' valid shares in the last `RECENT` rounds, on their `features`, the
    hole and wait ratios that they were configured with, and the round, whose weight is the change from round to round.
    Shares are of a round's training answers, of a kind without any of its validation. Thompson sampling: one draw from
    the weights' posterior predicts all kinds, so that what is uncertain is tried; without evidence it is the prior's.
    Data is 1 / rank for the `NEAREST` whose drawn p (1 - p) is highest, as `frontier` has it.
    """
    last, rows, logits = history[-1].round, [], []
    for past in history[-RECENT:]:
        known = past.evidence.known_rows | {kind: row for kind, row in past.evidence.training_rows.items() if row.n}
        for kind, row in zip(past.config.kinds, _inputs(past.config, past.round - last), strict=True):
            if kind in known:
                p = min(max(known[kind].valid_share, EDGE), 1 - EDGE)
                rows.append(row)
                logits.append(math.log(p / (1 - p)))
    kinds = history[-1].config.kinds
    coming = _inputs(with_data(history, [1.0] * len(kinds)), 1)
    mean, root = posterior(np.reshape(rows, (-1, coming.shape[1])), np.array(logits))
    drawn = coming @ (mean + root @ generator(key).standard_normal(len(mean)))
    rank = np.argsort(np.argsort(np.abs(drawn), kind="stable"))  # p (1 - p) falls with the logit's distance from 0
    return with_data(history, np.where(rank < NEAREST, 1 / (1 + rank), 0.0).tolist())


def posterior(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior of a ridge regression's weights: mean ``[n]``, and ``R [n, n]`` with covariance ``R R'``.

    The prior is N(0, s^2) for each weight, the noise has variance s^2: the mean of the squared residuals and of one 1,
    the prior's. ``x [rows, n]`` and ``y [rows]`` may have no row.
    """
    precision = x.T @ x + np.eye(x.shape[1])
    mean = np.linalg.solve(precision, x.T @ y)
    noise = math.sqrt((1 + np.square(y - x @ mean).sum()) / (1 + len(y)))
    return mean, noise * np.linalg.inv(np.linalg.cholesky(precision)).T


def _inputs(config: LakeConfig, when: int) -> np.ndarray:
    """Return float64 ``[kinds, n]``: features of the kinds, hole / ``MAX_HOLE``, wait, and the round from the last."""
    ratios = [np.array(config.hole) / MAX_HOLE, np.array(config.wait), np.full(len(config.kinds), float(when))]
    return np.column_stack([features(config.kinds), *ratios])


def features(kinds: Sequence[Kind]) -> np.ndarray:
    """Return float64 ``[kinds, 2 + families]``: side / ``SIDES``, number of agents, and a 1 in the family's column."""
    families = [[float(kind.family is family) for family in Family] for kind in kinds]
    return np.array([[kind.size / SIDES, kind.num_agents, *of] for kind, of in zip(kinds, families, strict=True)])


def equal_data(history: Sequence[PastRound], included: Sequence[bool]) -> LakeConfig:
    """Return the ratios of `uniform` with equal data for some kinds, ``[kinds]``; for all where none is included."""
    kinds = history[-1].config.kinds
    weights = [float(x) for x in included] if any(included) else [1.0] * len(kinds)
    return legal(kinds, weights, [MAX_HOLE / 2] * len(kinds), [0.5] * len(kinds))


def difficulty_ranks(kinds: Sequence[Kind]) -> list[int]:
    """Return each kind's place in the order of their difficulties, the easiest's being 0."""
    by_difficulty = sorted(kinds, key=lambda kind: (kind.difficulty, kind))
    return [by_difficulty.index(kind) for kind in kinds]


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (fixed_random, uniform, learnability, adarft, ladder, plr, targets_only, easy_only, frontier, ridge)
}
"""Rules by the names that configuration files give them."""
BOARD_RULES = ("ridge",)
"""Rules that read sides or agents; the others read shares by kind, and the kinds' order by difficulty."""

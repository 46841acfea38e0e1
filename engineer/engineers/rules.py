"""Rules that read no more than rates: the paper's baseline, its published answer, and simple curricula.

Plain functions ``(evidence, history, key) -> configuration`` without any state. ``history`` holds at least round 0.
Unless a rule says otherwise it chooses the data ratios, in multiples of 0.005, and hole and wait ratios stay as
they were realised: none of the sources has any.
"""

import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from engineer.context import PastRound, main_failure, percent
from engineer.engineers.base import in_steps, legal, with_data
from engineer.evidence import Evidence, KindEvidence, wilson
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Kind

FLOOR = 0.05
"""Added to every kind's p (1 - p), which is at most 0.25, so that no kind is forgotten."""
TOO_HARD, TOO_EASY = 0.2, 0.7
"""Valid shares outside which `threshold_rule` changes a kind (Reasoning Gym)."""
HOLE_STEP, WAIT_STEP = MAX_HOLE / 10, 0.1
"""One level of difficulty, a tenth of each range."""
PUBLISHED = (
    {3: 0.05, 4: 0.10, 5: 0.15, 6: 0.15, 7: 0.15, 8: 0.175, 9: 0.175, 10: 0.05},
    {3: 0.05, 4: 0.10, 5: 0.15, 6: 0.15, 7: 0.175, 8: 0.175, 9: 0.175, 10: 0.03},
)
"""Data ratios of the paper's V6 in rounds 1 and 2 (Table 6); those of round 2 sum to 1.005 as printed."""
BETA, ALPHA, ETA = 0.5, 2.0, 50.0
"""AdaRFT's target valid share, sensitivity, and step on a scale of difficulty from 0 to 100."""
WINDOW, PROMPTS, MASTERED = 4, 8, 0.9
"""RLVE's levels in use, and the prompts and the valid share at the top level that open the next."""
CONFIDENT, DEVIATIONS = 0.75, 2.0
"""Lower bound of the valid share at which CACTUS widens its radius, and the bound's standard deviations."""
NEAREST = 4
"""Kinds that `frontier` trains on. Two or eight in place of four ended within 3 points of it in the lab, of 22."""
FEW, MOST = 50, 80
"""Valid percentages below which `frontier` thins holes that are the main failure, and above which it thickens them."""
FRONTIER_HOLE, FRONTIER_WAIT, FRONTIER_STEP = 0.25, 0.3, 0.1
"""The ratios that `frontier` starts from, and by how much it moves one."""


def fixed_random(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Return round 0's random configuration for good, as realised: the paper's baseline, training without an engineer.

    What the generator has realised once it realises again, so `previous` gives the same unless something changes a
    configuration in between, such as a gate.
    """
    return history[0].config


def previous(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Return the last round's configuration as realised."""
    return history[-1].config


def uniform(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Treat all kinds alike, with the middle hole and wait ratios: the mean of what `RandomEngineer` draws."""
    return LakeConfig.uniform(history[-1].config.kinds, hole=MAX_HOLE / 2, wait=0.5)


def paper_v6_replay(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Replay the data ratios that the paper's best engineer chose in its own run, rescaled to the sizes of this one.

    Rounds after 2 keep those of round 2. Kinds of one size share its ratio.
    """
    published, sizes = PUBLISHED[min(history[-1].round, 1)], [kind.size for kind in history[-1].config.kinds]
    return with_data(history, [published[size] / sizes.count(size) for size in sizes])


def threshold_rule(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Make kinds harder where the policy is good and easier where it is bad, with the thresholds of Reasoning Gym.

    The source reads the level that is trained on; here it is the validation, whose boards stay the same, as for other
    engineers. What a level is and that a mastered kind gets half its data are ours; a kind without data stays without.
    On 3x3 and 4x4 boards one level of holes may be less than a hole.
    """
    config, shares = history[-1].config, valid_shares(evidence, history[-1].config.kinds)
    harder = np.array([(p > TOO_EASY) - int(p < TOO_HARD) for p in shares])
    return legal(
        config.kinds,
        np.where(harder > 0, 0.5, 1.0) * config.data,
        config.hole + HOLE_STEP * harder,
        config.wait + WAIT_STEP * harder,
    )


def learnability(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Give data where success is uncertain: p (1 - p) of the valid share (SFL), and a floor, which is ours."""
    p = valid_shares(evidence, history[-1].config.kinds)
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
    rows, ranked = known_rows(evidence), nearest_to_half(evidence, kinds)
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
    shares = {kind: percent(row.valid_share, 1) for kind, row in known_rows(evidence).items() if kind in kinds}
    return sorted(shares, key=lambda kind: abs(shares[kind] - 50))[:NEAREST]


def adarft(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Follow one target difficulty T for all, moved by each round's valid share in training (AdaRFT).

    T starts at 0, and T <- clip(T + eta tanh(alpha (R - beta)), 0, 100) after each round; the source does so after
    each batch and takes the problems nearest to T. Here kinds, from 0 for the easiest to 100 for the hardest at equal
    distances, get data by a triangle around T that is two distances wide on either side.
    """
    kinds, target = history[-1].config.kinds, 0.0
    for past in history:
        rows = training_rows(past).values()
        if any(row.n for row in rows):
            share = sum(row.valid for row in rows) / sum(row.n for row in rows)
            target = min(max(target + ETA * math.tanh(ALPHA * (share - BETA)), 0.0), 100.0)
    if len(kinds) == 1:
        return history[-1].config
    difficulties = np.linspace(0, 100, len(kinds))[_levels(kinds)]
    near = np.maximum(0, 1 - np.abs(difficulties - target) / (2 * np.sort(difficulties)[1]))
    return with_data(history, near.tolist())


def ladder(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Climb the kinds as levels: equal data for the top four; mastering the top one opens the next (RLVE).

    It starts at the easiest kind and never goes down. A round's training counts for every level that the ladder reaches
    by it: the source climbs within a round's worth of prompts too.
    """
    kinds, top = history[-1].config.kinds, 0
    levels = _levels(kinds)
    for past in history:
        rows = training_rows(past)
        while top < len(kinds) - 1 and _is_mastered(rows.get(kinds[levels.index(top)])):
            top += 1
    return with_data(history, [float(top - WINDOW < level <= top) for level in levels])


def cactus(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Give equal data to all kinds up to a side, and open the next side where these are solved with confidence.

    CACTUS (Phan et al. 2024) draws goals within a radius of the starts, which grows by one when the completion rate
    less two of its standard deviations reaches .75. A configuration knows no distance of goals, so the board's side
    is the radius here. It starts at the smallest side, grows by at most one a round, and never shrinks. The rate is
    that of a round's training on the kinds within; its bound is Wilson's, with a prompt's answers, which are alike,
    counted as one: the source has the deviation of its last 50 epochs, and a round is one.
    """
    kinds, opened = history[-1].config.kinds, 0
    sides = sorted({kind.size for kind in kinds})
    for past in history:
        within = [row for kind, row in training_rows(past).items() if row.n and kind.size <= sides[opened]]
        prompts = sum(row.groups for row in within)
        solved = prompts * sum(row.valid for row in within) / max(1, sum(row.n for row in within))
        if wilson(solved, prompts, DEVIATIONS)[0] >= CONFIDENT:
            opened = min(opened + 1, len(sides) - 1)
    return with_data(history, [float(kind.size <= sides[opened]) for kind in kinds])


def targets_only(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on what is validated and nothing else, all kinds alike, with the ratios of `uniform`: hard only."""
    targets = {row.kind for row in evidence.by_kind}
    return _even(history, [float(kind in targets) for kind in history[-1].config.kinds])


def target_family(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on every kind of the families that are validated, all alike, with the ratios of `uniform`.

    So it knows what the target is and nothing else. Not among `RULES`, as it is `uniform` where boards have one family:
    a comparison names it ``engineer.engineers.rules:target_family``.
    """
    families = {row.kind.family for row in evidence.by_kind}
    return _even(history, [float(kind.family in families) for kind in history[-1].config.kinds])


def easy_only(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on the quarter of the kinds that are the easiest, all alike, with the ratios of `uniform`."""
    kinds = history[-1].config.kinds
    return _even(history, [float(level < max(1, len(kinds) // 4)) for level in _levels(kinds)])


def hardest(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Only the last kind, with as many holes as there can be and a wait on each board: the worst design.

    Not among `RULES`, as no run should train by it: a comparison that wants to know what design can lose names it
    ``engineer.engineers.rules:hardest``.
    """
    kinds = history[-1].config.kinds
    data = tuple(float(kind == kinds[-1]) for kind in kinds)
    return LakeConfig(kinds=kinds, data=data, hole=(MAX_HOLE,) * len(kinds), wait=(1.0,) * len(kinds))


def agents_ladder(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Climb by hand, whatever the evidence: one agent more each round, and the rung below with it.

    The first designed round has the kinds with the fewest agents alone; kinds on a rung count alike, with the ratios of
    `uniform`.
    """
    kinds, climbed = history[-1].config.kinds, history[-1].round
    rungs = sorted({kind.num_agents for kind in kinds})
    top = min(climbed, len(rungs) - 1)
    return _even(history, [float(kind.num_agents in rungs[max(0, top - 1) : top + 1]) for kind in kinds])


def _even(history: Sequence[PastRound], weights: Sequence[float]) -> LakeConfig:
    """Return the ratios of `uniform` with other data ratios; all kinds alike where no weight is positive."""
    kinds = history[-1].config.kinds
    if not any(weights):
        weights = [1.0] * len(kinds)
    return legal(kinds, weights, [MAX_HOLE / 2] * len(kinds), [0.5] * len(kinds))


def _levels(kinds: Sequence[Kind]) -> list[int]:
    """Return each kind's place in the order of their difficulties, the easiest's being 0."""
    by_difficulty = sorted(kinds, key=lambda kind: (kind.difficulty, kind))
    return [by_difficulty.index(kind) for kind in kinds]


def _is_mastered(row: KindEvidence | None) -> bool:
    return row is not None and row.groups >= PROMPTS and row.valid >= MASTERED * row.n


def training_rows(past: PastRound) -> Mapping[Kind, KindEvidence]:
    """Return the rows of a round's training rollouts by kind; empty where nothing is known."""
    return {row.kind: row for row in past.evidence.training.by_kind} if past.evidence.training else {}


def valid_shares(
    evidence: Evidence, kinds: Sequence[Kind], history: Sequence[PastRound] = (), unknown: float = 0.5
) -> np.ndarray:
    """Return float ``[kinds]``, the valid share of each kind: `KindEvidence.valid_share` of the validation.

    A kind that is not validated has that of its training answers, or of the latest round of ``history`` that knows it,
    and one without any ``unknown``.
    """
    rows: dict[Kind, KindEvidence] = {}
    for known in (*(past.evidence for past in history), evidence):
        rows |= known_rows(known)
    return np.array([rows[kind].valid_share if kind in rows else unknown for kind in kinds])


def known_rows(evidence: Evidence) -> dict[Kind, KindEvidence]:
    """Return a row for each kind of which something is known: its validation, else its training; in ascending order."""
    trained = evidence.training.by_kind if evidence.training else ()
    rows = {row.kind: row for row in (*trained, *evidence.by_kind) if row.n}
    return dict(sorted(rows.items()))

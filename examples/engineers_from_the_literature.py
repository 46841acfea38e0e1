"""More rules of the literature, as engineers of your own: each is one function, which a configuration names.

    python -m rl.train --run runs/sec engineer.kind=examples.engineers_from_the_literature:bandit

A rule reads the latest validation, the finished rounds and a random key, and returns the next round's configuration.
It keeps no state: what it remembers, it reads in the history. Its docstring says which part is the source's and which
is ours. `engineer.RULES` has the ones that did best in the lab (docs/lab/README.md compares all).
"""

from collections.abc import Sequence

import jax
import numpy as np

from engineer import Evidence, KindEvidence, PastRound
from engineer.engineers.base import generator, legal, with_data
from engineer.engineers.rules import equal_data, features
from engineer.evidence import wilson
from engineer.proposal import STEP
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Kind

# ---- the paper's own answers -----------------------------------------------------------------------------------------

PUBLISHED = (
    {3: 0.05, 4: 0.10, 5: 0.15, 6: 0.15, 7: 0.15, 8: 0.175, 9: 0.175, 10: 0.05},
    {3: 0.05, 4: 0.10, 5: 0.15, 6: 0.15, 7: 0.175, 8: 0.175, 9: 0.175, 10: 0.03},
)
"""Data ratios of the paper's V6 in rounds 1 and 2 (Table 6); those of round 2 sum to 1.005 as printed."""


def paper_v6_replay(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Replay the data ratios that the paper's best engineer chose in its own run, rescaled to the sizes of this one.

    Rounds after 2 keep those of round 2. Kinds of one size share its ratio.
    """
    published, sizes = PUBLISHED[min(history[-1].round, 1)], [kind.size for kind in history[-1].config.kinds]
    return with_data(history, [published[size] / sizes.count(size) for size in sizes])


# ---- Reasoning Gym, Stojanovski et al. 2025 --------------------------------------------------------------------------

TOO_HARD, TOO_EASY = 0.2, 0.7
"""Valid shares outside which `threshold_rule` changes a kind."""
HOLE_STEP, WAIT_STEP = MAX_HOLE / 10, 0.1
"""One level of difficulty, a tenth of each range."""


def threshold_rule(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Make kinds harder where the policy is good and easier where it is bad.

    The source reads the level that is trained on; here it is the validation, whose boards stay the same, as for other
    engineers. What a level is and that a mastered kind gets half its data are ours; a kind without data stays without.
    On 3x3 and 4x4 boards one level of holes may be less than a hole.
    """
    config, shares = history[-1].config, _valid_shares(evidence, history[-1:], unknown=0.5)
    harder = np.array([(p > TOO_EASY) - int(p < TOO_HARD) for p in shares])
    return legal(
        config.kinds,
        np.where(harder > 0, 0.5, 1.0) * config.data,
        config.hole + HOLE_STEP * harder,
        config.wait + WAIT_STEP * harder,
    )


# ---- SEC: Self-Evolving Curriculum, Chen et al. 2025 -----------------------------------------------------------------

RATE, TEMPERATURE = 0.5, 0.2
"""Share by which a round moves the bandit's values, and the temperature that turns them into data ratios; ours."""


def bandit(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Treat kinds as arms whose reward is the mean absolute advantage of their training answers.

    Values start at 0 and move by TD(0), Q <- Q + rate (reward - Q), where a kind had data; data ratios are their
    Boltzmann distribution.
    """
    values = dict.fromkeys(history[-1].config.kinds, 0.0)
    for past in history:
        for kind, row in past.evidence.training_rows.items():
            if row.advantage is not None:
                values[kind] += RATE * (row.advantage - values[kind])
    score = np.array(list(values.values()))
    return with_data(history, np.exp((score - score.max()) / TEMPERATURE))


# ---- ACCEL, Parker-Holder et al. 2022 --------------------------------------------------------------------------------

EDITS = 3
"""Edits of a design; ours."""
STEPS = {"data": 0.05, "hole": HOLE_STEP, "wait": WAIT_STEP}
"""By how much an edit moves a ratio; ours."""


def mutate_best(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Make small edits to the round that taught most, the later of two alike.

    What a round taught is the share of its groups with something to learn, weighted by data. An edit moves one ratio
    of one kind by a step, up or down. Score, edits and steps are ours.
    """

    def learnable_share(past: PastRound) -> float:
        data = dict(zip(past.config.kinds, past.config.data, strict=True))
        return sum(
            data[kind] * row.learnable / row.groups for kind, row in past.evidence.training_rows.items() if row.groups
        )

    best = max(reversed(history), key=learnable_share).config
    rng, columns = generator(key), {field: list(getattr(best, field)) for field in STEPS}
    for _ in range(EDITS):
        field = rng.choice(list(STEPS))
        columns[field][rng.integers(len(best.kinds))] += rng.choice((-1, 1)) * STEPS[field]
    return legal(best.kinds, **columns)


# ---- ProCuRL-Target, Tzannetos et al. 2024 ---------------------------------------------------------------------------


def procurl_target(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Give data by p (1 - p) of a kind times its similarity to the targets, the kinds that are validated.

    The source scores a task by Z(c) Z(c*) <psi(c), psi(c*)>; its code has p (1 - p) for Z and exp(-distance) of the
    tasks' parameters for the product, and draws by a softmax. Here targets may all be at 0, which would score all at 0:
    so Z(c*), a constant where the target is one, is left out, and the similarity is the mean of exp(-distance) of
    `features` over the targets. Ours too: data in proportion; a kind's share in the latest round that knew it; and a
    step of data for every kind, by which one that is not known, or was never solved, is seen.
    """
    kinds = history[-1].config.kinds
    targets = features([row.kind for row in evidence.by_kind] or kinds)
    similarity = np.exp(-np.linalg.norm(features(kinds)[:, None] - targets, axis=-1)).mean(axis=1)
    p = _valid_shares(evidence, history, unknown=0.0)
    weights = p * (1 - p) * similarity
    return with_data(history, weights / (weights.sum() or 1.0) + STEP)


# ---- CACTUS, Phan et al. 2024 ----------------------------------------------------------------------------------------

CONFIDENT, DEVIATIONS = 0.75, 2.0
"""Lower bound of the valid share at which CACTUS widens its radius, and the bound's standard deviations."""


def cactus(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Give equal data to all kinds up to a side, and open the next side where these are solved with confidence.

    The source draws goals within a radius of the starts, which grows by one when the completion rate less two of its
    standard deviations reaches .75. A configuration knows no distance of goals, so the board's side is the radius here.
    It starts at the smallest side, grows by at most one a round, and never shrinks. The rate is that of a round's
    training on the kinds within; its bound is Wilson's, with a prompt's answers, which are alike, counted as one: the
    source has the deviation of its last 50 epochs, and a round is one.
    """
    kinds, opened = history[-1].config.kinds, 0
    sides = sorted({kind.size for kind in kinds})
    for past in history:
        within = [row for kind, row in past.evidence.training_rows.items() if row.n and kind.size <= sides[opened]]
        prompts = sum(row.groups for row in within)
        solved = prompts * sum(row.valid for row in within) / max(1, sum(row.n for row in within))
        if wilson(solved, prompts, DEVIATIONS)[0] >= CONFIDENT:
            opened = min(opened + 1, len(sides) - 1)
    return with_data(history, [float(kind.size <= sides[opened]) for kind in kinds])


# ---- ours: curricula by hand, and bounds of a comparison -------------------------------------------------------------


def agents_ladder(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Climb by hand, whatever the evidence: one agent more each round, and the rung below with it.

    The first designed round has the kinds with the fewest agents alone; kinds on a rung count alike, with the ratios of
    `uniform`.
    """
    kinds, climbed = history[-1].config.kinds, history[-1].round
    rungs = sorted({kind.num_agents for kind in kinds})
    top = min(climbed, len(rungs) - 1)
    return equal_data(history, [kind.num_agents in rungs[max(0, top - 1) : top + 1] for kind in kinds])


def target_family(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on every kind of the families that are validated, all alike: a rule that knows the target and no more."""
    families = {row.kind.family for row in evidence.by_kind}
    return equal_data(history, [kind.family in families for kind in history[-1].config.kinds])


def hardest(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Train on the last kind alone, with as many holes as there can be and a wait on each board: the worst design."""
    kinds = history[-1].config.kinds
    data = tuple(float(kind == kinds[-1]) for kind in kinds)
    return LakeConfig(kinds=kinds, data=data, hole=(MAX_HOLE,) * len(kinds), wait=(1.0,) * len(kinds))


def _valid_shares(evidence: Evidence, history: Sequence[PastRound], unknown: float) -> np.ndarray:
    """Return the valid share of each kind, ``[kinds]``, in the latest evidence that knows it, else `unknown`."""
    rows: dict[Kind, KindEvidence] = {}
    for known in (*(past.evidence for past in history), evidence):
        rows |= known.known_rows
    return np.array([rows[kind].valid_share if kind in rows else unknown for kind in history[-1].config.kinds])

"""Synthetic engineer examples to warm-start a from-scratch model; the rule they teach is ours, not the paper's."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from engineer.context import FAILURES, PastRound, Training, build, main_failure, percent
from engineer.evidence import CHECKS, Evidence, SizeEvidence
from engineer.proposal import STEP, to_answer
from jaxlake.config import MAX_HOLE, LakeConfig, counts

FLOOR = 0.05
"""Added to every size's learnability (at most 0.25), so that no size is forgotten."""
LOW, MASTERED = 0.5, 0.8
"""Valid share below which holes are thinned where they are the main failure, and above which they are thickened."""
HOLE_STEP = 0.1
NOISE = 0.02
"""Standard deviation of the ratios around the rule, so that answers differ between examples with alike evidence."""
FAILURE_WEIGHTS = (0.2, 0.1, 0.2, 0.2, 1.0, 0.4, 1.0, 0.5)
"""Dirichlet weights of the checks, in their order: holes and conflicts are what a warm-started policy fails at."""


def example(
    rng: np.random.Generator, sizes: Sequence[int], rounds: int, epochs_per_round: int
) -> tuple[str, str, str, LakeConfig]:
    """Draws one example: a plausible run up to some round, and what a good engineer answers there.

    Args:
      rng: of every draw.
      sizes: board sizes, ascending.
      rounds: rounds of the run, round 0 included; at least 2.
      epochs_per_round: as the context tells it.

    Returns:
      the context (user message), the thinking (at most 40 words), the answer (JSON), and the configuration it holds.
    """
    run = _Run.start(rng, tuple(sizes))
    # Round 0's configuration is never shown, so any stands in for the random one.
    history = [PastRound(0, LakeConfig.uniform(tuple(sizes), hole=0.25, wait=0.3), run.evidence)]
    for past in range(1, int(rng.integers(1, rounds))):
        config = _noisy(rng, rule(run.evidence, _shown(history)))
        run = run.trained(rng)
        history.append(PastRound(past, config, run.evidence))
    config = _noisy(rng, rule(run.evidence, _shown(history)))
    context = build(run.evidence, history, Training(len(history), rounds, epochs_per_round))
    return context, think(run.evidence), to_answer(config), config


def rule(evidence: Evidence, previous: LakeConfig | None = None) -> LakeConfig:
    """Designs a configuration from evidence; what the examples teach.

    Data follows learnability p (1 - p) plus a floor, with p the sampled valid share (the greedy one where nothing was
    sampled). A size gets fewer holes where holes are its main failure and few plans are valid, more where it is
    mastered. Waits move to the share of conflicts among a size's failures. ``previous`` is the configuration that the
    reader of a context can see, hence None in round 1; hole ratios of 0.25 and wait ratios of 0.3 then stand in for it.
    Ratios are multiples of 0.005 and the data ratios sum to 1.
    """
    sizes = tuple(row.size for row in evidence.by_size)
    before = previous or LakeConfig.uniform(sizes, hole=0.25, wait=0.3)
    data, hole, wait = [], [], []
    for i, row in enumerate(evidence.by_size):
        p = _valid_share(row)
        data.append(p * (1 - p) + FLOOR)
        hole.append(before.hole[i] + HOLE_STEP * ((p > MASTERED) - (p < LOW and main_failure(row).startswith("hole"))))
        wait.append((before.wait[i] + row.first_failures["conflict_free"] / max(1, row.n - row.valid)) / 2)
    return _rounded(sizes, data, hole, wait)


def think(evidence: Evidence) -> str:
    """What the examples think before they answer: the weakest size, the most learnable one and the leading failure."""
    weakest = min(evidence.by_size, key=_valid_share)
    learnable = max(evidence.by_size, key=lambda row: _valid_share(row) * (1 - _valid_share(row)))
    failure = FAILURES[max(CHECKS, key=lambda check: evidence.first_failures[check])]
    return (
        f"Weakest size {weakest.size} ({percent(_valid_share(weakest), 1)}% valid), "
        f"most learnable size {learnable.size} ({percent(_valid_share(learnable), 1)}%). "
        f"Leading failure: {failure if evidence.valid < evidence.n else 'none'}."
    )


@dataclasses.dataclass(frozen=True)
class _Run:
    """An imagined policy: a size is solved with a probability that is logistic in its own skill."""

    skills: dict[int, float]
    evidence: Evidence

    @classmethod
    def start(cls, rng: np.random.Generator, sizes: tuple[int, ...]) -> "_Run":
        slope = rng.uniform(0.0, 1.2)
        skill = rng.uniform(-1.5, 2.5)
        middle = (sizes[0] + sizes[-1]) / 2
        skills = {size: skill - slope * (size - middle) + rng.normal(0, 0.6) for size in sizes}
        return cls(skills, _evidence(rng, skills, n=int(rng.integers(12, 129))))

    def trained(self, rng: np.random.Generator) -> "_Run":
        skills = {size: skill + rng.normal(0.4, 0.4) for size, skill in self.skills.items()}
        return _Run(skills, _evidence(rng, skills, n=self.evidence.by_size[0].n))


def _evidence(rng: np.random.Generator, skills: dict[int, float], n: int) -> Evidence:
    """A validation of n boards per size, four samples a board."""
    split = rng.dirichlet(FAILURE_WEIGHTS)
    temperature_cost = rng.uniform(0.2, 1.2)
    rows = []
    for size, skill in skills.items():
        valid = int(rng.binomial(n, _logistic(skill)))
        first = rng.multinomial(n - valid, rng.dirichlet(20 * split + 0.1)).tolist()
        failures = dict(zip(CHECKS, first, strict=True))
        sampled = float(rng.binomial(4 * n, _logistic(skill - temperature_cost)) / (4 * n))
        optimal = int(rng.binomial(valid, rng.uniform(0.7, 1)))
        rows.append(SizeEvidence(size, n, valid, optimal, failures, failures, sampled))
    sampled = float(np.mean([row.sampled_valid for row in rows]))
    return Evidence(tuple(rows), sampled, sampled_se=0.02, samples_per_prompt=4, answer_tokens=20.0, truncated=0.0)


def _shown(history: Sequence[PastRound]) -> LakeConfig | None:
    """The latest configuration that a context shows; round 0's is never shown."""
    return history[-1].config if history[-1].round > 0 else None


def _noisy(rng: np.random.Generator, config: LakeConfig) -> LakeConfig:
    data, hole, wait = (np.asarray(x) + rng.normal(0, NOISE, len(x)) for x in (config.data, config.hole, config.wait))
    return _rounded(config.sizes, data, hole, wait)


def _rounded(sizes: tuple[int, ...], data: Sequence[float], hole: Sequence[float], wait: Sequence[float]) -> LakeConfig:
    """The nearest legal configuration whose ratios are multiples of 0.005."""
    shares = np.maximum(data, STEP)
    exact = LakeConfig(
        sizes=sizes,
        data=tuple((shares / shares.sum()).tolist()),
        hole=tuple(np.clip(hole, 0, MAX_HOLE).tolist()),
        wait=tuple(np.clip(wait, 0, 1).tolist()),
    )
    steps = round(1 / STEP)
    return dataclasses.replace(
        exact,
        data=tuple(count / steps for count in counts(exact, steps)),
        hole=tuple(round(h * steps) / steps for h in exact.hole),
        wait=tuple(round(w * steps) / steps for w in exact.wait),
    )


def _valid_share(row: SizeEvidence) -> float:
    return row.valid / row.n if row.sampled_valid is None else row.sampled_valid


def _logistic(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))

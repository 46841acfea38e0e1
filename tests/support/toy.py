"""A toy learner, on which engineers are tested without a model: a kind is a skill that training on it improves."""

import dataclasses

import jax
import numpy as np

from engineer import Engineer
from engineer.context import PastRound
from engineer.evidence import CHECKS, LEARNABLE, Evidence, KindEvidence, TrainingEvidence
from jaxlake.config import LakeConfig, counts
from jaxlake.kinds import Kind

KINDS = tuple(map(Kind.of, range(3, 11)))
PROMPTS, SAMPLES = 400, 8
"""Of a round; samples to each prompt."""
VALIDATION = (0.3, 0.25)
"""Hole and wait ratio of the boards of the validation."""
GAIN, FORGETTING = 12.0, 0.1
"""Skill gained in a round by a kind that has all data at p = 1/2, a quarter of the number; skill lost by every kind."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """Solves a board of kind k with probability sigmoid(skill_k - difficulty(hole, wait)).

    Attributes:
      skills: float ``[kinds]``.
    """

    skills: np.ndarray

    @classmethod
    def start(cls, rng: np.random.Generator) -> "Learner":
        """Good at small boards, hopeless at large ones."""
        return cls(rng.uniform(1.0, 3.0) - 0.9 * np.arange(len(KINDS)) + rng.normal(0, 0.3, len(KINDS)))

    def success(self, hole: np.ndarray | float, wait: np.ndarray | float) -> np.ndarray:
        """Float ``[kinds]``: the share of answers that are valid."""
        return 1 / (1 + np.exp(4 * (np.asarray(hole) - 0.25) + 2 * (np.asarray(wait) - 0.5) - self.skills))

    def trained(self, config: LakeConfig) -> "Learner":
        """After a round: a kind gains by its share of the data and by p (1 - p)."""
        p = self.success(config.hole, config.wait)
        return Learner(self.skills + GAIN * np.array(config.data) * p * (1 - p) - FORGETTING)

    def answers(self, rng: np.random.Generator, config: LakeConfig) -> TrainingEvidence:
        """What the rollouts of a round say."""
        rows = []
        for kind, count, p in zip(
            config.kinds, counts(config, PROMPTS), self.success(config.hole, config.wait), strict=True
        ):
            if count:
                valid = rng.binomial(SAMPLES, p, size=count)
                rows.append(row(kind, valid / SAMPLES, answers=count * SAMPLES, valid=int(valid.sum())))
        return TrainingEvidence(tuple(rows), ())

    def validated(self, rng: np.random.Generator, training: TrainingEvidence | None = None) -> Evidence:
        """A validation of 100 boards a kind."""
        rows = []
        for kind, p in zip(KINDS, self.success(*VALIDATION), strict=True):
            rows.append(row(kind, rng.binomial(SAMPLES, p, size=100) / SAMPLES, 100, int(rng.binomial(100, p))))
        return Evidence(tuple(rows), 0.5, 0.02, SAMPLES, 20.0, 0.0, training=training)

    @property
    def score(self) -> float:
        """Mean over kinds of the true valid share in the validation."""
        return float(self.success(*VALIDATION).mean())


def row(kind: Kind, shares: np.ndarray, answers: int, valid: int) -> KindEvidence:
    """A kind's row from the valid share of each group; every failure is one at the goal."""
    failures = {**dict.fromkeys(CHECKS, 0), "goal_reached": answers - valid}
    low, high = LEARNABLE
    return KindEvidence(
        kind=kind,
        n=answers,
        valid=valid,
        optimal=valid,
        first_failures=failures,
        any_failures=failures,
        sampled_valid=float(shares.mean()),
        sampled_se=0.0,
        groups=len(shares),
        learnable=int(((shares >= low) & (shares <= high)).sum()),
        all_valid=int((shares == 1).sum()),
        all_invalid=int((shares == 0).sum()),
        advantage=float(2 * np.sqrt(shares * (1 - shares)).mean()),  # of 0/1 rewards over their standard deviation
    )


def run(engineer: Engineer, seed: int, rounds: int = 4) -> tuple[Learner, list[PastRound]]:
    """Round 0 with a random configuration, the others with the engineer's; the policy at the end, and what happened."""
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    learner, config, history = Learner.start(rng), LakeConfig.random(KINDS, key), []
    for k in range(rounds):
        if k:
            config = engineer.propose(history[-1].evidence, history, jax.random.fold_in(key, k)).projected
        training = learner.answers(rng, config)
        learner = learner.trained(config)
        history.append(PastRound(k, config, learner.validated(rng, training)))
    return learner, history

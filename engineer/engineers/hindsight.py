"""An engineer that trains a branch on each of several designs, and takes the best of them."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from engineer.context import PastRound
from engineer.engineers.base import Draw, Rule
from engineer.evidence import Evidence
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig

Scores = Callable[[Sequence[LakeConfig], jax.Array], np.ndarray]
"""``(designs, key) -> float [designs]``: how good the student is after a round of each design."""


CONCENTRATION = 0.1
"""Concentration of random designs' data ratios: with 1, as in round 0, designs of thirty kinds are much the same."""


@dataclasses.dataclass(frozen=True)
class Hindsight:
    """An engineer that knows what its designs do: each round the best of several branches, trained from one state.

    The designs are those of the rules, and random ones of few kinds each beside them.

    Attributes:
      scores: trains a branch on each design. Its keys are not those of the round, so that luck is not chosen.
      rules: the rules whose designs are tried.
      branches: designs a round, the first rules' if there are more of them.
    """

    scores: Scores
    rules: Sequence[Rule]
    branches: int

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Propose the design with the highest score; of equal ones the first."""
        designs = [rule(evidence, history, key) for rule in self.rules[: self.branches]]
        kinds, drawn = history[-1].config.kinds, range(self.branches - len(designs))
        designs += [LakeConfig.random(kinds, jax.random.fold_in(key, number), CONCENTRATION) for number in drawn]
        scores = self.scores(designs, jax.random.fold_in(key, Draw.BRANCH))
        best = int(np.argmax(scores))
        return Proposal(
            engineer="hindsight",
            projected=designs[best],
            candidates=tuple(designs),
            chosen=best,
            scores=tuple(scores.tolist()),
        )

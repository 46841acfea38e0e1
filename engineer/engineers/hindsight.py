"""Engineers that train a branch on each of several designs: one takes the best of them, one learns from its own."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from engineer.context import PastRound
from engineer.engineers.base import Draw, Rule
from engineer.engineers.language import LanguageEngineer
from engineer.evidence import Evidence
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

Scores = Callable[[Sequence[LakeConfig], jax.Array], np.ndarray]
"""``(designs, key) -> float [designs]``: how good the student is after a round of each design."""


CONCENTRATION = 0.1
"""Concentration of random designs' data ratios: with 1, as in round 0, designs of thirty kinds are much the same."""


def random_designs(kinds: Sequence[Kind], key: jax.Array, count: int) -> list[LakeConfig]:
    """Draw configurations that have most of their data on few kinds."""
    return [LakeConfig.random(kinds, jax.random.fold_in(key, number), CONCENTRATION) for number in range(count)]


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
        kinds = history[-1].config.kinds
        designs += random_designs(kinds, key, self.branches - len(designs))
        scores = self.scores(designs, jax.random.fold_in(key, Draw.BRANCH))
        best = int(np.argmax(scores))
        return Proposal(
            engineer="hindsight",
            projected=designs[best],
            candidates=tuple(designs),
            chosen=best,
            scores=tuple(scores.tolist()),
        )


Learn = Callable[[str, Sequence[str], np.ndarray], None]
"""``(message, responses, advantages [responses])``: makes the responses to a message likelier, or less likely."""


@dataclasses.dataclass(frozen=True)
class Learning:
    """A language model that learns to design while it does, from what its own designs gain.

    Attributes:
      engineer: the model; its first design is the one that is taken.
      scores: trains a branch on each design; see `Hindsight`.
      learn: makes an update of the model's parameters.
      branches: designs a round, at least 2.
    """

    engineer: LanguageEngineer
    scores: Scores
    learn: Learn
    branches: int

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Propose what the model would without learning; then learn, where its designs differ in what they gain.

        An answer's advantage is its score above the mean of all, in their standard deviations (GRPO, Shao et al. 2024).
        """
        keys = [key, *(jax.random.fold_in(key, Draw.LEARN + i) for i in range(self.branches - 1))]
        written = [self.engineer.propose(evidence, history, one) for one in keys]
        designs = [proposal.projected for proposal in written]
        if len(set(designs)) == 1:
            return written[0]
        scores = self.scores(designs, jax.random.fold_in(key, Draw.BRANCH))
        if (spread := scores.std()) > 0:
            responses = [proposal.raw for proposal in written]
            self.learn(self.engineer.message(evidence, history), responses, (scores - scores.mean()) / spread)
        return dataclasses.replace(written[0], candidates=tuple(designs), scores=tuple(scores.tolist()))

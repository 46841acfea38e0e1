"""Who designs the next configuration: one interface, ``propose(evidence, history, key) -> Proposal``."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import jax

from engineer import context, proposal
from engineer.context import PastRound, Training
from engineer.evidence import Evidence
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig, project


class Engineer(Protocol):
    """Designs the configuration of the round that follows ``history`` from the latest validation."""

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal: ...


@dataclasses.dataclass(frozen=True)
class Generation:
    """What a model wrote: free thinking, then an answer that followed the grammar (or did not, without a mask).

    Attributes:
      raw: the whole response, verbatim.
      thinking, answer: its parts.
    """

    raw: str
    thinking: str
    answer: str


Generate = Callable[[str, str, jax.Array], Generation]
"""``(prompt, grammar, key) -> Generation``: user message and Lark grammar in, one sampled response out."""


@dataclasses.dataclass(frozen=True)
class RandomEngineer:
    """Draws a configuration and reads nothing; round 0's engineer, and a baseline."""

    sizes: tuple[int, ...]

    def propose(self, evidence: Evidence | None, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Never falls back; ``raw`` and ``thinking`` are empty."""
        config = LakeConfig.random(self.sizes, key)
        return Proposal(
            engineer="random", raw="", thinking="", parsed=None, projected=config, repairs=(), fallback=False
        )


@dataclasses.dataclass(frozen=True)
class CheckpointEngineer:
    """The policy's current parameters as engineer.

    Attributes:
      generate: text generation with those parameters.
      rounds: rounds of the run, round 0 included.
      epochs_per_round: as the context tells it.
    """

    generate: Generate
    rounds: int
    epochs_per_round: int

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Writes the context, lets the model answer and projects the answer.

        An answer that holds no configuration leaves the previous round's in force (``fallback``); it is never
        replaced by a made-up one.

        Args:
          evidence: the validation after the last round of ``history``.
          history: every finished round in ascending order, at least round 0.
          key: of the model's sampling.

        Raises:
          ValueError: no finished round, hence no configuration to fall back to.
        """
        if not history:
            raise ValueError("the checkpoint engineer designs from round 1 on: it needs at least one finished round")
        previous = history[-1].config
        training = Training(history[-1].round + 1, self.rounds, self.epochs_per_round)
        prompt = context.build(evidence, history, training)
        generation = self.generate(prompt, proposal.grammar(previous.sizes), key)
        parsed = proposal.parse(generation.answer)
        projected, repairs = (previous, ()) if parsed is None else project(parsed, previous)
        return Proposal(
            engineer="checkpoint",
            raw=generation.raw,
            thinking=generation.thinking,
            parsed=parsed,
            projected=projected,
            repairs=repairs,
            fallback=parsed is None,
        )

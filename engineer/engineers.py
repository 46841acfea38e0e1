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


class NoAnswer(Exception):
    """A model that could not be asked or gave nothing back: its server is gone or too slow, the prompt is too long."""


Generate = Callable[[str, str, jax.Array], Generation]
"""``(prompt, grammar, key) -> Generation``: user message and Lark grammar in, one sampled response out.

It may raise `NoAnswer`, which costs an attempt; anything else that it raises goes through.
"""


@dataclasses.dataclass(frozen=True)
class RandomEngineer:
    """Draws a configuration and reads nothing; round 0's engineer, and a baseline."""

    sizes: tuple[int, ...]

    def propose(self, evidence: Evidence | None, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Never falls back; ``raw`` and ``thinking`` are empty."""
        config = LakeConfig.random(self.sizes, key)
        return Proposal(
            engineer="random",
            raw="",
            thinking="",
            parsed=None,
            projected=config,
            repairs=(),
            fallback=False,
            attempts=1,
            errors=(),
        )


@dataclasses.dataclass(frozen=True)
class CheckpointEngineer:
    """The policy's current parameters as engineer.

    Attributes:
      generate: text generation with those parameters.
      rounds: rounds of the run, round 0 included.
      epochs_per_round: as the context tells it.
      attempts: how often it is asked, at most, for an answer that holds a configuration; at least 1.
    """

    generate: Generate
    rounds: int
    epochs_per_round: int
    attempts: int

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Writes the context, lets the model answer and projects the answer.

        An answer that holds no configuration is asked for again, with the same context and a key of its own. When
        every attempt has failed the previous round's configuration stays in force (``fallback``); it is never
        replaced by a made-up one. Nothing that the model writes raises anything.

        Args:
          evidence: the validation after the last round of ``history``.
          history: every finished round in ascending order, at least round 0.
          key: of the model's sampling in the first attempt, from which those of the others are derived.

        Raises:
          ValueError: no finished round, hence no configuration to fall back to.
        """
        if not history:
            raise ValueError("the checkpoint engineer designs from round 1 on: it needs at least one finished round")
        previous = history[-1].config
        training = Training(history[-1].round + 1, self.rounds, self.epochs_per_round)
        prompt, grammar = context.build(evidence, history, training), proposal.grammar(previous.sizes)

        raw, thinking, parsed, errors = "", "", None, []
        for attempt in range(self.attempts):
            try:
                generation = self.generate(prompt, grammar, jax.random.fold_in(key, attempt) if attempt else key)
            except NoAnswer as error:
                fault = _line(error)
            else:
                raw, thinking, parsed = generation.raw, generation.thinking, proposal.parse(generation.answer)
                fault = proposal.fault(generation.answer, parsed, previous.sizes)
            if fault is None:
                break
            errors.append(fault)
        projected, repairs = (previous, ()) if fault else project(parsed, previous)
        return Proposal(
            engineer="checkpoint",
            raw=raw,
            thinking=thinking,
            parsed=parsed,
            projected=projected,
            repairs=repairs,
            fallback=fault is not None,
            attempts=attempt + 1,
            errors=tuple(errors),
        )


def _line(error: NoAnswer) -> str:
    """Its message in one line that a record can hold; a server may send pages."""
    text = " ".join(str(error).split()) or "no answer"
    return text if len(text) <= 200 else text[:197] + "..."

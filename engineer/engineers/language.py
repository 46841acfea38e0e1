"""A language model as engineer: context in, one or several answers out, of which one is chosen."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from engineer import proposal
from engineer.context import Context, PastRound, Training
from engineer.engineers.base import Draw, Pilot, mean_by_data, need_round
from engineer.engineers.shuffle import derangement, relabelled
from engineer.evidence import Evidence
from engineer.lenient_json import parse_lenient
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig, project
from jaxlake.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Generation:
    """One response of a model: free thinking, then an answer that followed the grammar (or did not, without a mask).

    Attributes:
      raw: the whole response, verbatim.
      thinking, answer: the parts of the response.
      cut_at: number of tokens at which a limit ended it; None where it ended by itself, or where nobody is told.
    """

    raw: str
    thinking: str
    answer: str
    cut_at: int | None = None

    @classmethod
    def of(cls, raw: str, cut_at: int | None = None) -> "Generation":
        """Part a response whose thinking, where it shows any, is closed by a tag."""
        thinking, closed, answer = raw.rpartition("</think>")
        return cls(raw, thinking.strip().removeprefix("<think>").strip(), answer if closed else raw, cut_at)


class NoAnswer(Exception):
    """A model that could not be asked or gave nothing back: its server is gone or too slow, the prompt is too long."""


Generate = Callable[[str, str, jax.Array, int], list[Generation]]
"""``(prompt, grammar, key, count) -> generations``: user message and Lark grammar in, sampled responses out.

At least one and at most ``count`` of them. It may raise `NoAnswer`, which costs an attempt; anything else that it
raises goes through.
"""


@dataclasses.dataclass(frozen=True)
class LanguageEngineer:
    """A language model as engineer: the policy's current parameters, those at the start, or somebody's server.

    Attributes:
      name: the engineer's name in the record.
      generate: text generation with the model.
      context: the message that the model reads.
      training: the bookkeeping of a round, by its number.
      attempts: the most times that the model is asked for an answer that holds a configuration; at least 1.
      proposals: answers asked for at once. Of several that hold a configuration the pilot chooses the one on whose
        boards there is most to learn, mean p (1 - p) weighted by the data ratios; of equal ones the first.
      pilot: answers a few boards of a configuration; several proposals require one.
      masked: the answers follow the grammar. If not, a model that is asked again is told what was wrong.
      shuffled: the model reads each kind's evidence under another kind's name. One that does as well as before does
        not read it.
      fits: function that says whether a user message has room.
    """

    name: str
    generate: Generate
    context: Context
    training: Callable[[int], Training]
    attempts: int
    proposals: int = 1
    pilot: Pilot | None = None
    masked: bool = True
    shuffled: bool = False
    fits: Callable[[str], bool] = lambda text: True

    def __post_init__(self) -> None:
        if self.proposals > 1 and self.pilot is None:
            raise ValueError(f"engineer {self.name}: {self.proposals} proposals require a pilot to choose one of them")

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Write the context, let the model answer and project the answer.

        Where no answer holds a configuration the model is asked again, with a key of its own. When every attempt has
        failed the previous round's configuration stays in force (``fallback``); it is never replaced by a made-up one.
        Nothing that the model writes raises anything.

        Args:
          evidence: the validation after the last round of ``history``.
          history: every finished round in ascending order, at least round 0.
          key: the random key of the model's sampling in the first attempt, from which the keys of all else are derived.

        Raises:
          ValueError: no finished round, hence no configuration to fall back to; one kind, hence nothing to shuffle.
        """
        need_round(self.name, history)
        previous, training = history[-1].config, self.training(history[-1].round + 1)
        if self.shuffled:
            validated = (row.kind for row in evidence.by_kind)
            labels = derangement(sorted({*previous.kinds, *validated}), jax.random.fold_in(key, Draw.SHUFFLE))
            evidence = relabelled(evidence, labels)
            history = [dataclasses.replace(past, evidence=relabelled(past.evidence, labels)) for past in history]

        def prompt(complaint: str) -> str:
            return self.context.build(evidence, history, training, lambda text: self.fits(text + complaint)) + complaint

        answers, errors, attempts = self._ask(prompt, previous, key)
        usable = [answer for answer in answers if not answer.errors]
        candidates = tuple(answer.projected for answer in usable)
        chosen = self._choose(candidates, jax.random.fold_in(key, Draw.CHOICE)) if candidates else 0
        nothing = Proposal(engineer=self.name, projected=previous)
        return dataclasses.replace(
            (usable or answers[-1:] or [nothing])[chosen],
            fallback=not usable,
            attempts=attempts,
            errors=tuple(errors),
            candidates=candidates,
            chosen=chosen,
        )

    def _ask(
        self, prompt: Callable[[str], str], previous: LakeConfig, key: jax.Array
    ) -> tuple[list[Proposal], list[str], int]:
        """Ask until an answer holds a configuration, at most ``attempts`` times.

        Args:
          prompt: the user message with a complaint about the last answer at its end.

        Returns:
          The answers that came last, all errors, and how often the model was asked.
        """
        answers: list[Proposal] = []
        errors: list[str] = []
        grammar = proposal.grammar(previous.kinds)
        complaint = ""
        for attempt in range(self.attempts):
            attempt_key = jax.random.fold_in(key, attempt) if attempt else key
            try:
                generations = self.generate(prompt(complaint), grammar, attempt_key, self.proposals)
            except NoAnswer as error:
                errors.append(_line(error))
                continue
            answers = [read_answer(self.name, generation, previous) for generation in generations]
            faults = [fault for answer in answers for fault in answer.errors]
            errors += faults
            if len(faults) < len(answers):
                break
            if not self.masked:
                complaint = _COMPLAINT.format(fault=faults[-1])
        return answers, errors, attempt + 1

    def _choose(self, candidates: tuple[LakeConfig, ...], key: jax.Array) -> int:
        """Return the index of the candidate to take; all are piloted with one key, so that they meet alike luck."""
        if self.pilot is None or len(candidates) == 1:
            return 0
        return int(np.argmax([learnability(config, self.pilot(config, key)) for config in candidates]))


def read_answer(engineer: str, generation: Generation, previous: LakeConfig) -> Proposal:
    """Return one response as a proposal; where it holds no configuration, with the error and the previous one.

    Args:
      engineer: the engineer's name.
    """
    text, kinds = generation.answer, previous.kinds
    parsed, repairs = parse_lenient(text, kinds)
    fault = proposal.fault(text, parsed, kinds)
    # What stands in a thought that was cut off is a draft, and a chat template may have opened it unseen in the prompt.
    if generation.cut_at is not None and (fault or "</think>" not in generation.raw):
        fault = f"the answer was cut off at {generation.cut_at:,} tokens"
    read = Proposal(
        engineer=engineer,
        raw=generation.raw,
        thinking=generation.thinking,
        parsed=parsed,
        projected=previous,
        errors=(fault,) if fault else (),
    )
    if fault or parsed is None:
        return read
    projected, projections = project(parsed, previous)
    return dataclasses.replace(read, projected=projected, repairs=(*repairs, *projections))


def learnability(config: LakeConfig, shares: Mapping[Kind, np.ndarray]) -> float:
    """Return what a pilot sees to learn: mean p (1 - p) over a kind's boards, and over the kinds by their data ratios.

    Args:
      config: the piloted configuration.
      shares: float ``[boards]`` for each kind, share of a board's answers that are valid.
    """
    return mean_by_data(config, {kind: float((p * (1 - p)).mean()) for kind, p in shares.items()})


_COMPLAINT = "\n\nYour last answer could not be used: {fault}. Answer again, in the form asked for."


def _line(error: NoAnswer) -> str:
    """Return an error's message in one line that a record can hold; a server may send pages."""
    text = " ".join(str(error).split()) or "no answer"
    return text if len(text) <= 200 else text[:197] + "..."

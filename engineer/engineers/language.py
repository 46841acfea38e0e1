"""A language model as engineer: context in, an answer out, which is read and projected."""

import dataclasses
from collections.abc import Callable, Sequence

import jax

from engineer import proposal
from engineer.context import Context, PastRound, Training
from engineer.engineers.base import Draw, generator
from engineer.engineers.shuffle import derangement, permutation, permuted, relabelled, renamed
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
      cut_at: number of tokens at which a limit ended it; None where it ended by itself, or where no limit is known.
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
    """A model that gave nothing back, such as a server that is gone or too slow; one line says why."""


Generate = Callable[[str, str, jax.Array], Generation]
"""``(prompt, grammar, key) -> generation``: user message and Lark grammar in, a sampled response out.

It may raise `NoAnswer`, which costs an attempt; anything else that it raises goes through.
"""


@dataclasses.dataclass(frozen=True)
class LanguageEngineer:
    """A language model as engineer: the policy's current parameters, those at the start, or a server.

    Attributes:
      name: the engineer's name in the record.
      generate: text generation with the model.
      context: the message that the model reads.
      training: the bookkeeping of a round, by its number.
      attempts: the most times that the model is asked for an answer that holds a configuration; at least 1.
      masked: the answers follow the grammar. If not, a repeated question names the fault of the last answer.
      shuffled: the model reads each kind's evidence under another kind's name. One that does as well as before does
        not read it.
      renamed: as `shuffled`, but past designs, too, have the other names, and the answer is read under them. What is
        said is true then, and only a habit, such as a liking for the kind that usually comes first, leads astray.
      fits: function that says whether a user message has room.
    """

    name: str
    generate: Generate
    context: Context
    training: Callable[[int], Training]
    attempts: int
    masked: bool = True
    shuffled: bool = False
    renamed: bool = False
    fits: Callable[[str], bool] = lambda text: True

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Write the context, let the model answer and project the answer.

        Where no answer holds a configuration the model is asked again, with a key of its own. When every attempt has
        failed the previous round's configuration stays in force (``fallback``); it is never replaced by a made-up one.
        Nothing that the model writes raises anything.

        Args:
          evidence: the validation after the last round of ``history``.
          history: every finished round in ascending order, at least round 0.
          key: the random key of the model's sampling in the first attempt, from which the keys of all else are derived.
        """
        labels: dict[Kind, Kind] = {}
        if self.renamed:
            labels = permutation(history, generator(jax.random.fold_in(key, Draw.SHUFFLE)))
            history = permuted(history, labels)
            evidence = history[-1].evidence
        elif self.shuffled:
            validated = (row.kind for row in evidence.by_kind)
            labels = derangement(sorted({*history[-1].config.kinds, *validated}), jax.random.fold_in(key, Draw.SHUFFLE))
            evidence = relabelled(evidence, labels)
            history = [dataclasses.replace(past, evidence=relabelled(past.evidence, labels)) for past in history]
        previous = history[-1].config

        grammar, complaint = proposal.grammar(previous.kinds), ""
        read = Proposal(engineer=self.name, projected=previous)
        errors: list[str] = []
        for attempt in range(self.attempts):
            attempt_key = jax.random.fold_in(key, attempt) if attempt else key
            try:
                generation = self.generate(self.message(evidence, history, complaint), grammar, attempt_key)
            except NoAnswer as error:
                errors.append(str(error))
                continue
            read = read_answer(self.name, generation, previous)
            if not read.errors:
                break
            errors += read.errors
            if not self.masked:
                complaint = _COMPLAINT.format(fault=errors[-1])
        fallback = len(errors) == self.attempts
        if self.renamed:
            back = {label: kind for kind, label in labels.items()}
            read = dataclasses.replace(read, projected=renamed(read.projected, back))
        return dataclasses.replace(
            read,
            fallback=fallback,
            attempts=attempt + 1,
            errors=tuple(errors),
            candidates=() if fallback else (read.projected,),
        )

    def message(self, evidence: Evidence, history: Sequence[PastRound], complaint: str = "") -> str:
        """Return what the model reads: the context of the next round, and what was wrong with its last answer."""
        training = self.training(history[-1].round + 1)
        return self.context.build(evidence, history, training, lambda text: self.fits(text + complaint)) + complaint


def read_answer(engineer: str, generation: Generation, previous: LakeConfig) -> Proposal:
    """Return one response as a proposal; where it holds no configuration, with the error and the previous one.

    Args:
      engineer: the engineer's name.
    """
    text, kinds = generation.answer, previous.kinds
    parsed, slips = parse_lenient(text, kinds)
    fault = proposal.fault(text, parsed, kinds)
    if generation.cut_at is not None:  # half a configuration, or a draft in a thought
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
    return dataclasses.replace(read, projected=projected, repairs=(*slips, *projections))


_COMPLAINT = "\n\nYour last answer could not be used: {fault}. Answer again, in the form asked for."

"""A language model as engineer: context in, an answer out, which is read and projected."""

import dataclasses
from collections.abc import Callable, Sequence

import jax

from engineer import proposal
from engineer.context import Context, PastRound, Training
from engineer.evidence import Evidence
from engineer.lenient_json import parse_lenient
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig, project


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
        """Split a response whose thinking, where it shows any, is closed by a tag."""
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
      fits: function that says whether a user message has room.
    """

    name: str
    generate: Generate
    context: Context
    training: Callable[[int], Training]
    attempts: int
    masked: bool = True
    fits: Callable[[str], bool] = lambda text: True

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Write the context, let the model answer and project the answer.

        Where no answer holds a configuration the model is asked again, with a key of its own. When every attempt has
        failed the previous round's configuration stays in force (``fallback``); it is never replaced by a made-up one.
        Nothing that the model writes raises anything.
        """
        previous, training = history[-1].config, self.training(history[-1].round + 1)
        message = self.context.build(evidence, history, training, self.fits)
        grammar, complaint, errors = proposal.grammar(previous.kinds), "", list[str]()
        read = Proposal(engineer=self.name, projected=previous)
        for attempt in range(self.attempts):
            attempt_key = jax.random.fold_in(key, attempt) if attempt else key
            try:
                generation = self.generate(message + complaint, grammar, attempt_key)
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
        candidates = () if fallback else (read.projected,)
        return dataclasses.replace(
            read, fallback=fallback, attempts=attempt + 1, errors=tuple(errors), candidates=candidates
        )


def read_answer(engineer: str, generation: Generation, previous: LakeConfig) -> Proposal:
    """Return an engineer's response as a proposal; without a configuration with the error and the previous one."""
    text, kinds = generation.answer, previous.kinds
    parsed, slips = parse_lenient(text, kinds)
    fault = proposal.fault(text, parsed, kinds)
    if generation.cut_at is not None:  # half a configuration, or a draft in a thought
        fault = f"the answer was cut off at {generation.cut_at:,} tokens"
    projected, repairs = (previous, ()) if fault or parsed is None else project(parsed, previous)
    return Proposal(
        engineer=engineer,
        raw=generation.raw,
        thinking=generation.thinking,
        parsed=parsed,
        projected=projected,
        repairs=() if fault else (*slips, *repairs),
        errors=(fault,) if fault else (),
    )


_COMPLAINT = "\n\nYour last answer could not be used: {fault}. Answer again, in the form asked for."

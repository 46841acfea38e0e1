"""A model that is asked questions, on the devices here or behind a server; each answer is kept as it comes."""

import contextlib
import dataclasses
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from jaxlake.arguments import seed_key
from jaxlake.benchmark import Benchmark
from rl import distributed
from rl.config import ConfigError
from rl.judge.answers import Answerer, Show
from rl.judge.record import Answer, Record
from rl.model.sampler import SamplingParams
from rl.run.signals import Interrupted, Stop
from rl.run.tracking import Display

if TYPE_CHECKING:
    from rl.judge.server import ChatClient

CALL = 4
"""Answers in one call of the sampler, in multiples of its rows. The last ones of a call leave rows empty, which costs
half a long answer's time; a process that is killed loses a call."""
FAILURES_IN_A_ROW = 10
"""Requests without an answer, after all their attempts, at which the server is given up."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A message to a model.

    Attributes:
      id, sample: name of the answer in a `Record`.
      seed: seed of a server's draw.
    """

    id: str
    sample: int
    message: str
    seed: int = 0


Answering = Generator[Answer, None, None]
"""Answers in the order in which they come; closing it ends the work."""


class Asker(Protocol):
    """A model that answers questions.

    Attributes:
      identity: plain values that affect the answers, beside the questions.
      failure: why a question got no answer, the last of them.
    """

    @property
    def identity(self) -> dict[str, Any]: ...

    @property
    def failure(self) -> str: ...

    def ask(self, questions: Sequence[Question], missing: np.ndarray, show: Show) -> Answering:
        """Yield the answers that are `missing`, bool ``[questions]``; all processes call it alike and get the same."""
        ...


@dataclasses.dataclass(frozen=True)
class ModelAsker:
    """A model on the devices here, which answers `rl.judge.suite.questions`.

    It answers in calls that begin at the same places whatever is missing. Where a call has lost some answers, all of it
    is answered again: the tokens depend on the question's place, but the last bit of a number may depend on how long
    the longest prompt beside it is.
    """

    answerer: Answerer
    suite: Benchmark
    sampling: SamplingParams
    samples: int
    seed: int
    failure: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        return dict(self.answerer.identity)

    def ask(self, questions: Sequence[Question], missing: np.ndarray, show: Show) -> Answering:
        processes, places = jax.process_count(), {name: i for i, name in enumerate(self.suite.ids)}
        block = max(CALL * self.answerer.rows // (self.samples * processes), 1) * processes * self.samples
        for begin in range(0, len(questions), block):
            part, wanted = questions[begin : begin + block], missing[begin : begin + block]
            if wanted.any():
                boards, key = self.suite.instances[[places[q.id] for q in part[:: self.samples]]], seed_key(self.seed)
                answers = self.answerer.answer(boards, self.samples, self.sampling, key, show, begin)
                texts, lengths, cut = answers.texts(np.arange(len(part))), answers.lengths, answers.truncated
                for i, question in enumerate(part):
                    if wanted[i]:
                        yield Answer(question.id, question.sample, texts[i], int(lengths[i]), bool(cut[i]))


class ServerAsker:
    """A model behind a server, which is asked `concurrency` questions at once."""

    def __init__(self, client: "ChatClient", concurrency: int):
        self._client, self._concurrency, self.failure = client, concurrency, ""

    @property
    def identity(self) -> dict[str, Any]:
        return {"url": self._client.url, "api_model": self._client.model, "sent": self._client.sent}

    def ask(self, questions: Sequence[Question], missing: np.ndarray, show: Show) -> Answering:
        """Yield as `Asker` says; ConfigError if no request can succeed, or `FAILURES_IN_A_ROW` did not."""
        from rl.judge.server import RequestFailed  # needs a package that not everyone has

        wanted = [question for question, lacks in zip(questions, missing, strict=True) if lacks]
        messages, seeds, in_a_row = [q.message for q in wanted], [q.seed for q in wanted], 0
        with contextlib.closing(self._client.map(messages, seeds, self._concurrency)) as results:
            for i, result in results:
                if isinstance(result, RequestFailed):
                    self.failure, in_a_row = str(result), in_a_row + 1
                    if in_a_row == FAILURES_IN_A_ROW:
                        raise ConfigError(
                            f"{self._client.url}: {in_a_row} requests in a row failed, the last: {result}"
                        )
                else:
                    in_a_row, (text, length, cut) = 0, (result.text, result.completion_tokens, result.truncated)
                    yield Answer(wanted[i].id, wanted[i].sample, text, length, cut)


def collect(
    asker: Asker,
    questions: Sequence[Question],
    folder: Path,
    identity: dict[str, Any],
    display: Display,
    stop: Stop,
    task: str = "answers",
) -> Record | None:
    """Have each question answered once, and keep every answer in a folder; all processes of a job call this alike.

    Raises as `Record`; a signal to one process is Interrupted on all, and the answers that arrived are kept.

    Args:
      questions: questions in a fixed order, whatever their number, so that the same place has the same answer.
      identity: values that affect the answers, beside the asker's own; a folder with others is refused.

    Returns:
      The record, closed, with answers to other questions among its own; None on all processes but the first.
    """
    identity = identity | asker.identity  # a digest of parameters that all processes hold together
    opened = distributed.together(
        lambda: Record(folder, identity) if distributed.is_main() else None,
        ConfigError,
        f"{folder}: refused by process 0",
    )
    with opened or contextlib.nullcontext() as record:
        known = record.answers if record else {}
        missing = np.array([(question.id, question.sample) not in known for question in questions])
        missing = distributed.all_gather(missing[None])[0]  # process 0 knows what there is
        done = int((~missing).sum())
        if done and missing.any():
            display.say(f"Resuming: {done:,} of {missing.size:,} answers are there")
        display.stage(task, missing.size, done=done)

        def show(finished: int = 0) -> None:
            if finished:
                display.within(f"{finished} of this call")
            if number := stop.agreed():
                raise Interrupted(number)

        with contextlib.closing(asker.ask(questions, missing, show)) as arriving:
            for answer in arriving:
                if record is not None:
                    record.add(answer)
                display.advance()
                show()
        return record

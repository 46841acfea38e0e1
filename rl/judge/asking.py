"""A model that is asked questions, be it on the devices here or behind a server; each answer is kept as it comes."""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxlake.arguments import seed_key
from jaxlake.benchmark import Benchmark
from rl import distributed
from rl.config import Config, ConfigError
from rl.judge.answers import Answerer
from rl.judge.record import Answer, Record
from rl.model.sampler import SamplingParams
from rl.run.signals import Interrupted, Stop
from rl.run.tracking import Display

if TYPE_CHECKING:
    from rl.judge.server import ChatClient, Request

CALL = 4
"""Answers in one call of the sampler, in multiples of its rows. The last ones of a call leave rows empty, which costs
half a long answer's time; a process that is killed loses a call."""
FAILURES_IN_A_ROW = 10
"""Requests without an answer, after all their attempts, at which the server is given up."""

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Question:
    """A message that wants an answer.

    Attributes:
      id, sample: name of the answer in a `Record`.
      seed: seed of a server's draw.
    """

    id: str
    sample: int
    message: str
    seed: int = 0


Write = Callable[[int, Sequence[Question], Say], Sequence[tuple[str, int, bool]]]
"""Writes texts, with their tokens and whether they were cut off, to questions from a place among all of them on."""


@dataclasses.dataclass(frozen=True)
class Asker:
    """A model that answers questions.

    Attributes:
      identity: plain values that affect the answers, beside the questions.
      ask: takes questions, which of them lack an answer, and what hears how far it is; yields answers as they come. All
        processes of a job call it alike.
      failures: why, for each id and sample that got no answer.
    """

    identity: dict[str, Any]
    ask: Callable[[Sequence[Question], np.ndarray, Say], Generator[list[Answer], None, None]]
    failures: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)

    @classmethod
    def in_process(cls, write: Write, block: int, identity: dict[str, Any]) -> "Asker":
        """Make one of a model on the devices here.

        It writes in calls that begin at the same places whatever is missing. Where a call has lost some answers, all of
        it is answered again: the tokens depend on the question's place, but the last bit of a number may depend on how
        long the longest prompt beside it is.

        Args:
          block: questions of a call.
        """

        def ask(questions: Sequence[Question], missing: np.ndarray, within: Say) -> Generator[list[Answer], None, None]:
            for begin in range(0, len(questions), block):
                wanted, part = missing[begin : begin + block], questions[begin : begin + block]
                if wanted.any():
                    written = zip(part, write(begin, part, within), wanted, strict=True)
                    yield [Answer(question.id, question.sample, *text) for question, text, lacks in written if lacks]

        return cls(identity, ask)

    @classmethod
    def of_server(
        cls,
        client: "ChatClient",
        request: Callable[..., "Request"],
        concurrency: int,
        identity: dict[str, Any],
    ) -> "Asker":
        """Make one of a model behind a server, which is asked a first small question at once.

        Args:
          request: makes what is sent of a message and a ``seed``.
          identity: values that affect the answers, beside the server and its requests.

        Raises:
          ApiError: if the first question gets no answer; from `ask`, if no request can succeed, or `FAILURES_IN_A_ROW`
            did not.
        """
        from rl.judge.server import ApiError, RequestFailed  # needs a package that not everyone has

        client.check(request(""))
        failures: dict[tuple[str, int], str] = {}

        def ask(questions: Sequence[Question], missing: np.ndarray, within: Say) -> Generator[list[Answer], None, None]:
            wanted = [question for question, lacks in zip(questions, missing, strict=True) if lacks]
            requests = [request(question.message, seed=question.seed) for question in wanted]
            in_a_row = 0
            with contextlib.closing(client.map(requests, concurrency)) as results:  # type: ignore[type-var]
                for index, result in results:
                    question = wanted[index]
                    if not isinstance(result, RequestFailed):
                        in_a_row = 0
                        yield [Answer(question.id, question.sample, result.text, result.tokens, result.truncated)]
                        continue
                    within(f"failed: {len(failures) + 1}, the last: {result}"[:60])
                    failures[question.id, question.sample] = str(result)
                    in_a_row += 1
                    if in_a_row == FAILURES_IN_A_ROW:
                        raise ApiError(f"{client.url}: {in_a_row} requests in a row failed, the last: {result}")

        identity = identity | {"url": client.url, "api_model": client.model, "sent": client.sent(request(""))}
        return cls(identity, ask, failures=failures)


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

    Args:
      questions: questions in a fixed order, whatever their number, so that the same place has the same answer.
      identity: values that affect the answers, beside the asker's own; a folder with others is refused.

    Returns:
      The record, closed, with answers to other questions among its own; None on all processes but the first.

    Raises:
      ConfigError: if the folder holds something else, or another process writes there.
      Interrupted: on all processes, if a signal came to one; the answers that arrived are kept.
    """
    opened = distributed.together(
        lambda: Record(folder, identity | asker.identity) if distributed.is_main() else None,
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

        def within(status: str = "") -> None:
            if status:
                display.within(status)
            if number := stop.agreed():
                raise Interrupted(number)

        with contextlib.closing(asker.ask(questions, missing, within)) as arriving:
            for answers in arriving:
                if record is not None:
                    record.add(answers)
                display.advance(steps=len(answers))
                within()
        return record


def suite_identity(config: Config, sampling: SamplingParams, samples: int) -> dict[str, Any]:
    """Return the values that decide on the answers to a suite, for any answerer."""
    text = {"max_new_tokens": config.text.max_new_tokens, "thinking": config.text.thinking}
    return {"samples": samples, **dataclasses.asdict(sampling), "seed": config.seed, **text}


def board_asker(answerer: Answerer, suite: Benchmark, config: Config, sampling: SamplingParams, samples: int) -> Asker:
    """Return who answers the questions to a suite's boards, `rl.judge.suite.questions`, on the devices here."""
    processes, places = jax.process_count(), {name: i for i, name in enumerate(suite.ids)}
    boards = max(CALL * answerer.rows // (samples * processes), 1) * processes

    def write(begin: int, questions: Sequence[Question], within: Say) -> list[tuple[str, int, bool]]:
        asked = suite.instances[[places[question.id] for question in questions[::samples]]]

        def show(done: int) -> None:
            within(f"{done}/{len(questions)} of this call")

        answers = answerer.answer(asked, samples, sampling, seed_key(config.seed), show, begin)
        texts = answers.texts(np.arange(len(questions)))
        return list(zip(texts, answers.lengths.tolist(), answers.truncated.tolist(), strict=True))

    identity = suite_identity(config, sampling, samples) | dict(answerer.identity)
    return Asker.in_process(write, boards * samples, identity)

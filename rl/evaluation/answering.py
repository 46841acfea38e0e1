"""The way to have a suite answered: what a folder holds is not asked for again; judges nothing."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.benchmark import Benchmark
from rl import distributed
from rl.config import ConfigError
from rl.evaluation.record import Answer, Record
from rl.evaluation.sources import Source
from rl.run.signals import Interrupted, Stop
from rl.run.tracking import Display


def answer_suite(
    source: Source,
    asked: Benchmark,
    folder: Path,
    identity: dict[str, Any],
    display: Display,
    stop: Stop,
    task: str = "answers",
) -> Record | None:
    """Have a source answer each board, and keep every answer in a folder as it comes; all processes call this alike.

    Args:
      source: who answers, and how often.
      asked: the boards.
      folder: of the record.
      identity: what decides on the answers; a folder with another is refused.
      task: what the progress display calls this.

    Returns:
      The record, closed, with answers to other boards of the same suite among its own; None on all processes but the
      first.

    Raises:
      ConfigError: if the folder holds something else, or another process writes there.
      Interrupted: on all processes, if a signal came to one; all answers that have come are kept.
    """
    with _opened(folder, identity) as record:
        known = record.answers if record else {}
        missing = [[(board, sample) not in known for sample in range(source.samples)] for board in asked.ids]
        missing = distributed.all_gather(np.array(missing)[None])[0]  # process 0 knows what there is
        done = int((~missing).sum())
        if done and missing.any():
            display.say(f"Goes on: {done:,} of {missing.size:,} answers are there")
        display.stage(task, missing.size, done=done)

        def check_stop() -> None:
            if number := stop.agreed():
                raise Interrupted(number)

        def write(answers: Sequence[Answer]) -> None:
            if record is not None:
                record.add(answers)
                record.note_refused(source.client, display.say)
            display.advance(steps=len(answers))
            check_stop()

        def within(status: str) -> None:
            display.within(status)
            check_stop()

        source.answer(asked, missing, write, within)
        return record


@contextlib.contextmanager
def _opened(folder: Path, identity: dict[str, Any]) -> Iterator[Record | None]:
    """Open the record on process 0, nothing on the others; where that one is refused, all stop."""
    record, refusal = None, None
    if distributed.is_main():
        try:
            record = Record(folder, identity)
        except ConfigError as error:
            refusal = error
    if distributed.agree(refusal is not None):
        raise refusal or ConfigError(f"{folder}: refused by process 0")
    with record or contextlib.nullcontext():
        yield record

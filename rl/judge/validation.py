"""The validation of a student, with its evidence and samples of the answers."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from engineer import evidence as evidence_
from engineer.evidence import Evidence, TrainingEvidence
from jaxlake.files import record
from jaxlake.generate import Dataset
from jaxlake.types import Check, Instance, Verdict
from rl.config import Config
from rl.judge.answers import GREEDY, Answerer, Answers, judge
from rl.model.policy import writer
from rl.model.sampler import SamplingParams
from rl.run.keys import Purpose, make_round_key
from rl.run.recorder import Recorder


class Validated(Protocol):
    """The part of a `rl.students.Student` that validations need.

    Attributes:
      config: the run's configuration.
      validation: the boards that no training shows; known after `Student.restore`.
    """

    @property
    def config(self) -> Config: ...

    @property
    def validation(self) -> Dataset: ...

    def answerer(self) -> Answerer:
        """Return who answers boards as the student does now."""
        ...


def validate(
    student: Validated, recorder: Recorder, name: str, occasion: int, training: TrainingEvidence | None = None
) -> Evidence:
    """Have the validation boards answered, greedily and by sampling; write ``evidence.json`` and ``samples.json``.

    A signal ends it by `Interrupted`, with everything saved as it was before.

    Args:
      name: folder in the run directory.
      occasion: number of the keys: 0 at the beginning, 1 after the warm start, one more after each round.
      training: outcome of the training of the round that ends with this validation.
    """
    config, data, display = student.config, student.validation, recorder.display
    settings, boards, optima = config.validation, data.instances, np.asarray(data.solutions.cost)
    stage = name.replace("rounds/", "round ").replace("_", " ")
    display.stage(f"{stage}: validation", len(optima) * (1 + settings.samples))
    answerer, key = student.answerer(), make_round_key(config.seed, Purpose.VALIDATE, occasion)
    greedy = answerer.answer(boards, 1, GREEDY, key, _advance(recorder))
    verdicts = judge(boards, optima, greedy.plans)
    sampling = SamplingParams(settings.temperature, settings.top_k, settings.top_p)
    sampled = answerer.answer(boards, settings.samples, sampling, key, _advance(recorder))
    valid = judge(boards, optima, sampled.plans).valid
    failures = evidence_.typical_failures(data.kinds, verdicts.checks)
    evidence = dataclasses.replace(
        evidence_.evidence_from_verdicts(
            kinds=data.kinds,
            checks=verdicts.checks,
            optimal=verdicts.optimal,
            tokens=greedy.lengths,
            truncated=greedy.truncated,
            sampled_valid=valid.reshape(-1, settings.samples).mean(axis=-1),
            samples_per_prompt=settings.samples,
        ),
        environment=evidence_.environment(data),
        training=training,
        trajectories=tuple(
            evidence_.trajectory(data.kinds[i], boards[i], greedy.plans[i], verdicts.checks[i], answer)
            for i, answer in zip(failures, greedy.texts(failures), strict=True)
        ),
    )
    samples = _samples(writer(config.student.text), answerer, data, greedy, verdicts)
    recorder.directory.write(f"{name}/samples.json", samples)
    recorder.directory.write(f"{name}/evidence.json", evidence.to_json())  # last: a report takes it for the whole
    recorder.meter.read()  # what validation compiles is not the next step's
    display.say(f"{stage}: {summary(evidence)}")
    return evidence


def summary(evidence: Evidence) -> str:
    """Return the line that a terminal shows of a validation, whose boards were answered by sampling too."""
    assert evidence.sampled_se is not None  # `validation.samples` is 1 at least
    return (
        f"valid {evidence.valid / evidence.n:.1%} greedy, {evidence.sampled_valid:.1%} sampled "
        f"(+- {1.96 * evidence.sampled_se:.1%}) of {evidence.n} validation boards"
    )


def _advance(recorder: Recorder) -> Callable[[int], None]:
    """Return a function that shows how many answers of a call are done, from where the display is, and stops it."""
    display, before = recorder.display, recorder.display.done
    return recorder.with_stop_check(lambda done: display.advance(steps=before + done - display.done))


def _samples(
    write: Callable[[Instance], str],
    answerer: Answerer,
    data: Dataset,
    greedy: Answers,
    verdicts: Verdict,
) -> list[dict[str, Any]]:
    """Return some boards with their greedy answers, evenly spread over the set, in plain JSON."""
    boards, total = data.instances, len(data.kinds)
    rows = np.linspace(0, total - 1, min(12, total)).astype(int)
    texts = greedy.texts(rows)
    lost = answerer.first_lost(boards[rows], texts) if answerer.first_lost else [None] * len(texts)
    return [
        {
            "instance": {key: record(boards[i], "")[key] for key in ("size", "holes", "starts", "goals")},
            "prompt": write(boards[i]),
            "answer": answer,
            "lost_at": None if greedy.truncated[i] else place,  # it may have been on its way
            "checks": {c.name.lower(): bool(verdicts.checks[i, c]) for c in Check},
            "optimal": bool(verdicts.optimal[i]),
            "cost": int(verdicts.cost[i]),
            "optimum": int(data.solutions.cost[i]),
        }
        for i, answer, place in zip(rows, texts, lost, strict=True)
    ]

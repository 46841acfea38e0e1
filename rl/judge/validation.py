"""Files of a validation: its evidence, and samples of the answers; asks nobody for any."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from engineer import evidence as evidence_
from engineer.evidence import Evidence, KindEnvironment, TrainingEvidence, Trajectory
from jaxlake.files import record
from jaxlake.record import Array
from jaxlake.types import Check, Instance, Plan, Verdict
from rl.run.recorder import Recorder


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers to all boards of a validation, numpy arrays ``[n]``, the same on all processes.

    Attributes:
      instances, optima: the boards and their least costs.
      kinds: object, `Kind` of each.
      environment: description of the boards.
      verdicts, tokens, truncated: verdict on one greedy answer to each, its length, and whether it was cut off.
      sampled_valid: float, share of the sampled answers that are valid.
      samples: number of sampled answers to a board.
      plans, texts: give the greedy answers to the boards with these indices.
      first_lost: of answers to the boards with these indices, the place in each that loses the last valid plan
        (`rl.learn.credit.first_lost`); None where nobody writes.
    """

    instances: Instance
    optima: np.ndarray
    kinds: np.ndarray
    environment: tuple[KindEnvironment, ...]
    verdicts: Verdict
    tokens: np.ndarray
    truncated: np.ndarray
    sampled_valid: np.ndarray
    samples: int
    plans: Callable[[Array], Plan]
    texts: Callable[[Array], list[str]]
    prompt: Callable[[Instance], str]
    first_lost: Callable[[Array, list[str]], list[int | None]] | None = None


def keep_validation(
    recorder: Recorder, name: str, answers: Answers, training: TrainingEvidence | None = None
) -> Evidence:
    """Make evidence of a validation and the training before it; write ``evidence.json`` and ``samples.json``."""
    evidence = evidence_.evidence_from_verdicts(
        kinds=answers.kinds,
        checks=answers.verdicts.checks,
        optimal=answers.verdicts.optimal,
        tokens=answers.tokens,
        truncated=answers.truncated,
        sampled_valid=answers.sampled_valid,
        samples_per_prompt=answers.samples,
    )
    evidence = dataclasses.replace(
        evidence, environment=answers.environment, training=training, trajectories=_trajectories(answers)
    )
    recorder.directory.write(f"{name}/evidence.json", evidence.to_json())
    recorder.directory.write(f"{name}/samples.json", _samples(answers))
    recorder.meter.read()  # what validation compiles is not the next step's
    assert evidence.sampled_se is not None  # `validation.samples` is 1 at least
    recorder.display.say(
        f"{stage_name(name)}: valid {evidence.valid / evidence.n:.1%} greedy, {evidence.sampled_valid:.1%} sampled "
        f"(+- {1.96 * evidence.sampled_se:.1%}) of {evidence.n} validation boards"
    )
    return evidence


def stage_name(folder: str) -> str:
    """Return what a display calls the validation in a folder of the run: ``round 0`` for ``rounds/0``."""
    return folder.replace("rounds/", "round ").replace("_", " ")


def _trajectories(answers: Answers) -> tuple[Trajectory, ...]:
    """The failures that the evidence shows, of the greedy answers."""
    checks = answers.verdicts.checks
    chosen = evidence_.typical_failures(answers.kinds, checks)
    plans, texts = answers.plans(chosen), answers.texts(chosen)
    return tuple(
        evidence_.trajectory(answers.kinds[i], answers.instances[i], plans[place], checks[i], texts[place])
        for place, i in enumerate(chosen)
    )


def _samples(answers: Answers, count: int = 12) -> list[dict[str, Any]]:
    """Some boards with their greedy answers, evenly spread over the set, in plain JSON."""
    total, verdicts = len(answers.kinds), answers.verdicts
    chosen = np.linspace(0, total - 1, min(count, total)).astype(int)
    rows = []
    texts = answers.texts(chosen)
    lost = answers.first_lost(chosen, texts) if answers.first_lost else [None] * len(texts)
    for i, answer, place in zip(chosen, texts, lost, strict=True):
        place = None if answers.truncated[i] else place  # it may have been on its way
        instance = answers.instances[i]
        board = record(instance, "")
        rows.append(
            {
                "instance": {key: board[key] for key in ("size", "holes", "starts", "goals")},
                "prompt": answers.prompt(instance),
                "answer": answer,
                "lost_at": place,
                "checks": {c.name.lower(): bool(verdicts.checks[i, c]) for c in Check},
                "optimal": bool(verdicts.optimal[i]),
                "cost": int(verdicts.cost[i]),
                "optimum": int(answers.optima[i]),
            }
        )
    return rows

"""Validation: the fixed boards of a run, answered greedily and by sampling, as evidence and samples."""

import dataclasses
from typing import Any

import jax
import numpy as np

from engineer import evidence as evidence_
from engineer.evidence import Evidence, TrainingEvidence, Trajectory
from jaxlake.types import ABSENT, Check, Verdict
from rl import distributed
from rl.policy import Policy, writer
from rl.report.samples import samples_markdown
from rl.run.boards import BoardSet, mixed_boards
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.state import TrainState
from rl.sampler import Rollout, SamplingParams


def draw_validation_set(policy: Policy, seed: int) -> BoardSet:
    """Draws the boards that the settings `validation` ask for, which every validation of a run answers.

    Raises:
      ConfigError: if no solvable board is found, or a prompt does not fit `text.max_prompt_tokens`.
    """
    settings, key = policy.config.validation, make_key(seed, Purpose.VALIDATION_SET)
    kinds = policy.config.target_kinds
    boards = mixed_boards(policy.config, kinds, settings.holes, settings.wait, key, settings.instances)
    return dataclasses.replace(BoardSet.of(policy, boards), environment=evidence_.environment(boards))


def validate(
    policy: Policy,
    state: TrainState,
    recorder: Recorder,
    boards: BoardSet,
    name: str,
    occasion: int,
    training: TrainingEvidence | None = None,
) -> Evidence:
    """Answers the validation set, and writes ``evidence.json``, ``samples.json`` and ``samples.md`` to ``<name>/``.

    Args:
      name: folder in the run directory.
      occasion: of the keys: 0 before the warm start, 1 after it, one more after each round.
      training: of the round that ends with this validation; goes into the evidence.

    Raises:
      Interrupted: with everything saved as it was before.
    """
    config, display = policy.config, recorder.display
    settings, label = config.validation, name.replace("rounds/", "round ").replace("_", " ")
    part = distributed.share(len(boards.prompts), "validation.instances")
    prompts, optima = boards.prompts.take(part), boards.optima[part]
    display.stage(f"{label}: validation", len(prompts) * (1 + settings.samples))

    def answer(number: int, samples: int, sampling: SamplingParams) -> tuple[Rollout, Verdict]:
        before = display.done
        rollout = policy.rollout(
            policy.rollout_parameters(state.parameters),
            prompts,
            make_key(config.seed, Purpose.VALIDATE, occasion, number),
            samples=samples,
            sampling=sampling,
            progress=recorder.stoppable(state, lambda done: display.advance(steps=before + done - display.done)),
        )
        return rollout, policy.judge(prompts, rollout, optima)

    greedy, verdicts = answer(0, 1, SamplingParams(temperature=0.0))
    _, sampled = answer(1, settings.samples, SamplingParams(settings.temperature, settings.top_k, settings.top_p))
    rollout, verdicts, valid = distributed.all_gather((greedy, verdicts, sampled.valid))
    evidence = evidence_.evidence_from_verdicts(
        kinds=boards.kinds,
        checks=verdicts.checks,
        optimal=verdicts.optimal,
        tokens=rollout.mask.sum(axis=-1),
        truncated=rollout.truncated,
        sampled_valid=valid.reshape(-1, settings.samples).mean(axis=-1),
        samples_per_prompt=settings.samples,
    )
    evidence = dataclasses.replace(
        evidence,
        environment=boards.environment,
        training=training,
        trajectories=_trajectories(policy, boards, rollout, verdicts),
    )
    samples = _samples(policy, boards, rollout, verdicts)
    recorder.directory.write(f"{name}/evidence.json", evidence.to_json())
    recorder.directory.write(f"{name}/samples.json", samples)
    recorder.directory.write(f"{name}/samples.md", samples_markdown(samples))
    recorder.meter.read()  # what validation compiles is not the next step's
    assert evidence.sampled_se is not None  # `validation.samples` is 1 at least
    display.say(
        f"{label}: valid {evidence.valid / evidence.n:.1%} greedy, {evidence.sampled_valid:.1%} sampled "
        f"(+- {1.96 * evidence.sampled_se:.1%}) of {evidence.n} validation boards"
    )
    return evidence


def _trajectories(policy: Policy, boards: BoardSet, rollout: Rollout, verdicts: Verdict) -> tuple[Trajectory, ...]:
    """The failures that the evidence shows, of the greedy answers."""
    instances = boards.prompts.instances
    chosen = evidence_.typical_failures(boards.kinds, verdicts.checks)
    rollout, instances, kinds = rollout[chosen], instances[chosen], boards.kinds[chosen]
    plans, answers = policy.read(instances, rollout), policy.texts(rollout.tokens, rollout.mask)
    return tuple(
        evidence_.trajectory(kinds[i], instances[i], plans[i], verdicts.checks[place], answers[i])
        for i, place in enumerate(chosen)
    )


def _samples(
    policy: Policy, boards: BoardSet, rollout: Rollout, verdicts: Verdict, count: int = 12
) -> list[dict[str, Any]]:
    """Some boards with their greedy answers, evenly spread over the set, in plain JSON."""
    instances, total = boards.prompts.instances, len(boards.prompts)
    chosen = np.linspace(0, total - 1, min(count, total)).astype(int)
    write = writer(policy.config.text)
    rows = []
    for i, answer in zip(chosen, policy.texts(rollout.tokens[chosen], rollout.mask[chosen]), strict=True):
        instance = instances[i]
        rows.append(
            {
                "instance": {
                    "size": int(instance.size),
                    "holes": _coordinates(np.flatnonzero(instance.holes), instance.max_size),
                    "starts": _coordinates(instance.starts, instance.max_size),
                    "goals": _coordinates(instance.goals, instance.max_size),
                },
                "prompt": write(instance),
                "answer": answer,
                "checks": {c.name.lower(): bool(verdicts.checks[i, c]) for c in Check},
                "optimal": bool(verdicts.optimal[i]),
                "cost": int(verdicts.cost[i]),
                "optimum": int(boards.optima[i]),
            }
        )
    return rows


def _coordinates(cells: np.ndarray | jax.Array, max_size: int) -> list[list[int]]:
    return [[int(x) for x in divmod(cell, max_size)] for cell in cells if cell != ABSENT]

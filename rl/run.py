"""What every stage of a run shares: the policy and its arrays, keys, the validation set, saving and stopping."""

import dataclasses
import enum
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from engineer import evidence as evidence_
from engineer.evidence import Evidence
from jaxlake import text
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, generate
from jaxlake.types import ABSENT, Check, Instance, Objective, Verdict
from jaxlake.verify import verify
from rl import distributed, grpo
from rl.checkpoint import Progress, RunDirectory
from rl.config import Config, ConfigError
from rl.policy import Answers, Policy, Prompts, row
from rl.qwen3 import lora
from rl.sampler import Rollout, Sampling
from rl.tracking import Display, TensorBoard


class Purpose(enum.IntEnum):
    """What a key is drawn for; part of the key, so that no two draws share one."""

    PARAMETERS = 0
    VALIDATION_SET = 1
    WARM_START_SET = 2
    WARM_START_STEP = 3
    VALIDATE = 4
    DESIGN = 5
    BUILD = 6
    ORDER = 7
    ROLLOUT = 8


class Interrupted(Exception):
    """The user asked to stop; everything is saved."""


@dataclasses.dataclass
class Run:
    """A run under way, one and the same on every process of a job.

    Attributes:
      parameters, optimizer_state: as they are now; donated to each update and replaced by its result.
      progress: saved together with them.
      validation, optima: the whole validation set; each process answers its share.
      stop: set by a signal to this process, honoured by all at the next safe moment.
      board: None on all processes but the first.
    """

    config: Config
    directory: RunDirectory
    display: Display
    policy: Policy
    parameters: nnx.State
    optimizer_state: optax.OptState | None
    progress: Progress
    validation: Prompts
    optima: np.ndarray
    stop: threading.Event
    board: TensorBoard | None

    @property
    def objective(self) -> Objective:
        """What an optimal plan minimises in this run."""
        return Objective(self.config.lake.objective)

    def key(self, purpose: Purpose, round: int = 0, step: int = 0) -> jax.Array:
        """The key of one draw, from these and the seed alone: a resumed run draws what an unbroken one would."""
        return make_key(self.config.seed, purpose, round, step)

    def switch(self, optimizer: optax.GradientTransformation) -> None:
        """Begins with another optimizer."""
        self.optimizer_state = grpo.init(optimizer, self.parameters, self.policy.mesh)

    def begin(self, optimizer: optax.GradientTransformation) -> None:
        """Sets up the optimizer and, where there is a checkpoint, puts everything back to it.

        Raises:
          ConfigError: if the checkpoint does not match the model.
        """
        self.switch(optimizer)
        if self.directory.has_checkpoint():
            arrays = self.directory.restore(self._arrays())
            frozen = lora.split(self.parameters)[1]
            self.parameters = nnx.merge_state(arrays["parameters"], frozen)
            self.optimizer_state = arrays["optimizer"]
            where = "warm start" if self.progress.stage == "warm_start" else f"round {self.progress.round}"
            self.display.say(f"Goes on in {self.directory.path}: {where}, after step {self.progress.step}")
        self.directory.cut_logs(self.progress)

    def _arrays(self) -> dict[str, Any]:
        """What is saved: of a model with adapters these alone, as its base never changes."""
        return {"parameters": lora.split(self.parameters)[0], "optimizer": self.optimizer_state}

    def judge(self, prompts: Prompts, answers: Answers, optima: np.ndarray) -> Verdict:
        """Verdicts ``[B]`` on the answers to prompts ``[P]`` with their optimal costs ``[P]``; numpy arrays."""
        samples = len(answers.rollout.tokens) // len(prompts)
        instances, optima = jax.tree.map(lambda x: np.repeat(x, samples, axis=0), (prompts.instances, optima))
        return jax.tree.map(np.asarray, verify(instances, answers.plans, optima, objective=self.objective))

    def answer(
        self,
        prompts: Prompts,
        key: jax.Array,
        *,
        samples: int,
        sampling: Sampling,
        progress: Callable[[int], None],
    ) -> Answers:
        """What the current parameters answer to this process's prompts; a copy for the sampler lives while it does.

        Args:
          progress: told how many answers are finished. A wish to stop is honoured there.

        Raises:
          Interrupted: with everything saved as it was before.
        """

        def told(done: int) -> None:
            progress(done)
            self.check_stop()

        parameters = self.policy.rollout_parameters(self.parameters)
        return self.policy.answer(parameters, prompts, key, samples=samples, sampling=sampling, progress=told)

    def save(self) -> None:
        """Saves arrays and progress in one atomic step."""
        self.directory.save(self._arrays(), self.progress)

    def step_done(self, metrics: dict[str, Any], seconds: dict[str, float], status: str) -> None:
        """Logs a step, saves where one is due, and stops where the user asked for it."""
        self.progress.step += 1
        place = {"phase": metrics.pop("phase"), "round": self.progress.round, "step": self.progress.step}
        self.directory.append("metrics.jsonl", place | {k: round(float(v), 6) for k, v in metrics.items()})
        self.directory.append("timings.jsonl", place | {k: round(v, 3) for k, v in seconds.items()})
        self.display.advance(status)
        if self.board is not None:
            self.board.write(place, metrics)
        if self.progress.step % self.config.checkpoint.every_steps == 0:
            self.save()
        self.check_stop()

    def check_stop(self) -> None:
        """Saves and raises Interrupted if the user asked any process to stop; all call it, and only between steps."""
        if distributed.agree(self.stop.is_set()):
            self.save()
            raise Interrupted

    def validate(self, name: str, occasion: int) -> Evidence:
        """Answers the validation set greedily and by sampling, and writes the evidence to ``<name>/evidence.json``.

        Args:
          name: folder in the run directory.
          occasion: of the keys: 0 before the warm start, 1 after it, one more after each round.
        """
        settings, label = self.config.validation, name.replace("rounds/", "round ").replace("_", " ")
        part = distributed.share(len(self.validation), "validation.instances")
        prompts, optima = self.validation.take(part), self.optima[part]
        self.display.stage(f"{label}: validation", len(prompts) * (1 + settings.samples))

        def answer(number: int, samples: int, sampling: Sampling) -> tuple[Answers, Verdict]:
            before = self.display.done
            answers = self.answer(
                prompts,
                self.key(Purpose.VALIDATE, occasion, number),
                samples=samples,
                sampling=sampling,
                progress=lambda done: self.display.advance(steps=before + done - self.display.done),
            )
            return answers, self.judge(prompts, answers, optima)

        greedy, verdicts = answer(0, 1, Sampling(temperature=0.0))
        _, sampled = answer(1, settings.samples, Sampling(settings.temperature, settings.top_k, settings.top_p))
        rollout, verdicts, valid = distributed.gather((greedy.rollout, verdicts, sampled.valid))
        found = evidence_.gather(
            sizes=self.validation.instances.size,
            checks=verdicts.checks,
            optimal=verdicts.optimal,
            tokens=rollout.mask.sum(axis=-1),
            truncated=rollout.truncated,
            sampled_valid=valid.reshape(-1, settings.samples).mean(axis=-1),
            samples_per_prompt=settings.samples,
        )
        self.directory.write(f"{name}/evidence.json", found.to_json())
        self.directory.write(f"{name}/samples.json", self._samples(rollout, verdicts))
        self.display.say(
            f"{label}: valid {found.valid / found.n:.1%} greedy, {found.sampled_valid:.1%} sampled "
            f"(+- {1.96 * found.sampled_se:.1%}) of {found.n} validation boards"
        )
        return found

    def _samples(self, rollout: Rollout, verdicts: Verdict, count: int = 12) -> list[dict[str, Any]]:
        """Some boards with their greedy answers, evenly spread over the validation set, in plain JSON."""
        instances, total = self.validation.instances, len(self.validation)
        chosen = np.linspace(0, total - 1, min(count, total)).astype(int)
        found = []
        for i, answer in zip(chosen, self.policy.texts(rollout.tokens[chosen], rollout.mask[chosen]), strict=True):
            instance = row(instances, i)
            found.append(
                {
                    "instance": {
                        "size": int(instance.size),
                        "holes": _coordinates(np.flatnonzero(instance.holes), instance.max_size),
                        "starts": _coordinates(instance.starts, instance.max_size),
                        "goals": _coordinates(instance.goals, instance.max_size),
                    },
                    "prompt": text.prompt(instance, text.PromptStyle(self.config.text.style)),
                    "answer": answer,
                    "checks": {c.name.lower(): bool(verdicts.checks[i, c]) for c in Check},
                    "optimal": bool(verdicts.optimal[i]),
                    "cost": int(verdicts.cost[i]),
                    "optimum": int(self.optima[i]),
                }
            )
        return found


class Stopwatch:
    """Seconds spent in each named part of a step."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Books the time since the last lap under `part`."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


def _coordinates(cells: np.ndarray, max_size: int) -> list[list[int]]:
    return [[int(x) for x in divmod(cell, max_size)] for cell in cells if cell != ABSENT]


def make_key(seed: int, purpose: Purpose, round: int = 0, step: int = 0) -> jax.Array:
    """See `Run.key`."""
    key = jax.random.key(seed)
    for number in (purpose, round, step):
        key = jax.random.fold_in(key, number)
    return key


def mixed_boards(
    config: Config, holes: Sequence[float], wait: float, key: jax.Array, count: int, exclude: Instance | None = None
) -> Dataset:
    """Boards of all the run's sizes alike, an equal share of each hole ratio, one after the other; none twice.

    On small boards two ratios can mean the same number of holes, so each part leaves out what the ones before hold.
    """
    parts = []
    for i, hole in enumerate(holes):
        lake = LakeConfig.uniform(config.lake.sizes, hole, wait)
        share = count * (i + 1) // len(holes) - count * i // len(holes)
        if share:
            parts.append(build_boards(config, lake, jax.random.fold_in(key, i), share, exclude))
            drawn = parts[-1].instances
            exclude = drawn if exclude is None else jax.tree.map(lambda *x: np.concatenate(x), exclude, drawn)
    instances, solutions, needs_wait = jax.tree.map(
        lambda *x: np.concatenate([np.asarray(y) for y in x]),
        *((part.instances, part.solutions, part.needs_wait) for part in parts),
    )
    return Dataset(
        instances=instances,
        solutions=solutions,
        needs_wait=needs_wait,
        report=tuple(report for part in parts for report in part.report),
    )


def build_boards(config: Config, lake: LakeConfig, key: jax.Array, count: int, exclude: Instance | None) -> Dataset:
    """The generator with the run's number of agents and objective.

    Raises:
      ConfigError: if it finds no solvable board.
    """
    try:
        return generate(
            lake,
            key,
            count,
            num_agents=config.lake.num_agents,
            objective=Objective(config.lake.objective),
            exclude=exclude,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None

"""What every stage of a run shares: the policy and its arrays, keys, the validation set, saving and stopping."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from engineer import evidence as evidence_
from engineer.evidence import Evidence, SizeEnvironment, TrainingEvidence, Trajectory
from jaxlake.types import ABSENT, Check, Objective, Verdict
from jaxlake.verify import verify
from rl import distributed, grpo
from rl.config import Config, RunError
from rl.policy import Policy, Prompts, writer
from rl.qwen3 import lora
from rl.qwen3.logprobs import Sequences
from rl.report.samples import samples_markdown
from rl.run.checkpoint import Progress
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.signals import Interrupted, Stop
from rl.run.state import Pending, Standing, make_reference, needs_reference, pack, rows_of
from rl.run.tracking import Display, Meter, Profiler, Trackers
from rl.sampler import Rollout, Sampling


@dataclasses.dataclass
class Run:
    """A run under way, one and the same on every process of a job.

    Attributes:
      parameters, optimizer_state: as they are now; donated to each update and replaced by its result.
      reference: the trained part of the parameters when the rounds began, for the divergence or the engineer `base`;
        None where neither needs it, and before.
      progress, pending: saved together with all of these.
      validation, optima: the whole validation set; each process answers its share.
      stop: set by a signal to this process, honoured by all at the next safe moment.
      trackers, meter, profiler: see `rl.run.tracking`.
      environment: of the validation set, for its evidence.
    """

    config: Config
    directory: RunDirectory
    display: Display
    policy: Policy
    parameters: nnx.State
    optimizer_state: optax.OptState
    reference: nnx.State | None
    progress: Progress
    pending: Pending | None
    validation: Prompts
    optima: np.ndarray
    stop: Stop
    trackers: Trackers
    meter: Meter
    profiler: Profiler
    environment: tuple[SizeEnvironment, ...]

    @property
    def objective(self) -> Objective:
        """What an optimal plan minimises in this run."""
        return Objective(self.config.lake.objective)

    def key(self, purpose: Purpose, round: int = 0, step: int = 0) -> jax.Array:
        """The key of one draw, from these and the seed alone.

        So a run has no state of a random generator to save: resumed, it draws what an unbroken one would.
        """
        return make_key(self.config.seed, purpose, round, step)

    def begin_rounds(self, optimizer: optax.GradientTransformation) -> None:
        """Ends the warm start: from here on another optimizer, and the reference if one is needed; saved."""
        self.progress.stage, self.progress.step = "rounds", 0
        self.optimizer_state = grpo.init(optimizer, self.parameters, self.policy.mesh)
        if needs_reference(self.config):
            self.reference = make_reference(lora.split(self.parameters)[0], self.policy)
        self.save()

    def reference_parameters(self) -> nnx.State:
        """All parameters of the reference policy: its own ones with the frozen base, which never changes."""
        return nnx.merge_state(self.reference, lora.split(self.parameters)[1])

    def judge(self, prompts: Prompts, rollout: Rollout, optima: np.ndarray) -> Verdict:
        """Reads the answers to prompts ``[P]`` with optimal costs ``[P]``: verdicts ``[B]``, numpy arrays."""
        samples = len(rollout.tokens) // len(prompts)
        instances, optima = jax.tree.map(lambda x: np.repeat(x, samples, axis=0), (prompts.instances, optima))
        plans = self.policy.read(instances, rollout)
        return jax.tree.map(np.asarray, verify(instances, plans, optima, objective=self.objective))

    def answer(
        self,
        prompts: Prompts,
        key: jax.Array,
        *,
        samples: int,
        sampling: Sampling,
        progress: Callable[[int], None],
    ) -> Rollout:
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
        return self.policy.rollout(parameters, prompts, key, samples=samples, sampling=sampling, progress=told)

    def save(self) -> None:
        """Saves everything in one atomic step: of a model with adapters these alone, as its base never changes.

        Raises:
          RunError: if it cannot be written; the checkpoints before it are untouched.
        """
        standing = Standing(self.parameters, self.optimizer_state, self.reference, self.progress, self.pending)
        self.directory.save(pack(standing))

    def step_done(self, metrics: dict[str, Any], seconds: dict[str, float], status: str) -> None:
        """Logs a step, saves where one is due, and stops where the user asked for it."""
        self.pending = None
        self.progress.step, self.progress.update = self.progress.step + 1, 0
        self.progress.total_steps += 1
        place = {"phase": metrics.pop("phase"), "round": self.progress.round, "step": self.progress.step}
        metrics = {k: float(f"{float(v):.6g}") for k, v in metrics.items()}  # digits: a rate may be 1e-6
        measured = {k: round(v, 3) for k, v in (seconds | self.meter.read()).items()}
        self.directory.append("metrics.jsonl", place | metrics)
        self.directory.append("timings.jsonl", place | measured)
        self.display.advance(status)
        self.trackers.write(place, self.progress.total_steps, metrics, measured)
        self.profiler.step_done()
        self.directory.checkpoints.check()
        if self.progress.step % self.config.checkpoint.every_steps == 0:
            self.save()
            self.meter.read()  # what a save compiles is not the next step's
        self.check_stop()

    def check_stop(self) -> None:
        """Saves and raises Interrupted if the user asked any process to stop.

        All processes call it together, wherever parameters, optimizer state, progress and pending go together.
        """
        if number := self.stop.agreed():
            self.save()
            raise Interrupted(number)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around long work that changes nothing of the run: a signal ends it at once, see `Stop.at_once`.

        Raises:
          Interrupted: with everything saved as it was before.
        """
        try:
            with self.stop.at_once():
                yield
        except Interrupted:
            self.save()
            raise

    def note_update(self, metrics: dict[str, float], batch: grpo.Batch | Sequences) -> None:
        """Counts the updates in a row that were skipped, as their loss or gradient was not finite.

        Raises:
          RunError: after `grpo.max_skipped` of them. Their batch is in `skipped/` of the run (of several processes each
            writes its own rows), and a checkpoint holds the parameters, which none of them has changed.
        """
        if not metrics["update_skipped"]:
            self.progress.skipped = 0
            return
        self.progress.skipped += 1
        where = "warm start" if self.progress.stage == "warm_start" else f"round {self.progress.round}"
        where += f", step {self.progress.step + 1}"
        self.display.say(f"{where}: an update is skipped, as its loss or gradient is not finite")
        limit = self.config.grpo.max_skipped
        if self.progress.skipped < limit:
            return
        name = f"{where.replace(', ', '_').replace(' ', '_')}_process_{jax.process_index()}.npz"
        folder = self.directory.path / "skipped"
        folder.mkdir(exist_ok=True)
        np.savez(folder / name, **rows_of(batch))
        self.progress.skipped = 0  # the next try has as many
        self.save()
        raise RunError(
            f"{where}: {limit} updates in a row were not finite (grpo.max_skipped = {limit}); the last one's batch is "
            f"{folder / name}, and the last good parameters are saved: the same command tries again from there"
        )

    def note_validation(self, label: str, found: Evidence) -> None:
        """Keeps the policy in `best/` if no validation before had more valid samples; a checkpoint must follow.

        Args:
          label: "warm_start" or "rounds/<k>".
        """
        best = self.progress.best
        if best is not None and found.sampled_valid <= best["sampled_valid"]:
            return
        round = label if label == "warm_start" else int(label.removeprefix("rounds/"))
        note = {"round": round, "sampled_valid": found.sampled_valid, "valid": found.valid / found.n, "boards": found.n}
        self.export("best", note)
        self.progress.best = {
            "round": round,
            "sampled_valid": found.sampled_valid,
            "checkpoint": self.directory.checkpoints.next_step,
        }

    def export(self, name: str, validation: dict[str, Any] | None = None) -> None:
        """Writes the policy as a Hugging Face folder of the run, which is never half there.

        Args:
          validation: how good it is; goes to validation.json in it.

        Raises:
          ConfigError: if the folder cannot be written.
        """
        with self.directory.replaced(name) as folder:
            self.policy.save(folder, self.parameters)
            if validation is not None:
                self.directory.write(f"{folder.name}/validation.json", validation)

    def validate(self, name: str, occasion: int, training: TrainingEvidence | None = None) -> Evidence:
        """Answers the validation set greedily and by sampling, and writes the evidence to ``<name>/evidence.json``.

        Args:
          name: folder in the run directory.
          occasion: of the keys: 0 before the warm start, 1 after it, one more after each round.
          training: of the round that ends with this validation; goes into the evidence.
        """
        settings, label = self.config.validation, name.replace("rounds/", "round ").replace("_", " ")
        part = distributed.share(len(self.validation), "validation.instances")
        prompts, optima = self.validation.take(part), self.optima[part]
        self.display.stage(f"{label}: validation", len(prompts) * (1 + settings.samples))

        def answer(number: int, samples: int, sampling: Sampling) -> tuple[Rollout, Verdict]:
            before = self.display.done
            rollout = self.answer(
                prompts,
                self.key(Purpose.VALIDATE, occasion, number),
                samples=samples,
                sampling=sampling,
                progress=lambda done: self.display.advance(steps=before + done - self.display.done),
            )
            return rollout, self.judge(prompts, rollout, optima)

        greedy, verdicts = answer(0, 1, Sampling(temperature=0.0))
        _, sampled = answer(1, settings.samples, Sampling(settings.temperature, settings.top_k, settings.top_p))
        rollout, verdicts, valid = distributed.gather((greedy, verdicts, sampled.valid))
        found = evidence_.gather(
            sizes=self.validation.instances.size,
            checks=verdicts.checks,
            optimal=verdicts.optimal,
            tokens=rollout.mask.sum(axis=-1),
            truncated=rollout.truncated,
            sampled_valid=valid.reshape(-1, settings.samples).mean(axis=-1),
            samples_per_prompt=settings.samples,
        )
        found = dataclasses.replace(
            found,
            environment=self.environment,
            training=training,
            trajectories=self._trajectories(rollout, verdicts),
        )
        self.directory.write(f"{name}/evidence.json", found.to_json())
        samples = self._samples(rollout, verdicts)
        self.directory.write(f"{name}/samples.json", samples)
        self.directory.write(f"{name}/samples.md", samples_markdown(samples))
        self.meter.read()  # what validation compiles is not the next step's
        self.display.say(
            f"{label}: valid {found.valid / found.n:.1%} greedy, {found.sampled_valid:.1%} sampled "
            f"(+- {1.96 * found.sampled_se:.1%}) of {found.n} validation boards"
        )
        return found

    def _trajectories(self, rollout: Rollout, verdicts: Verdict) -> tuple[Trajectory, ...]:
        """The failures that the evidence shows, of the greedy answers to the validation set."""
        chosen = evidence_.typical_failures(self.validation.instances.size, verdicts.checks)
        rollout, instances = rollout[chosen], self.validation.instances[chosen]
        plans, answers = self.policy.read(instances, rollout), self.policy.texts(rollout.tokens, rollout.mask)
        return tuple(
            evidence_.trajectory(instances[i], plans[i], verdicts.checks[place], answers[i])
            for i, place in enumerate(chosen)
        )

    def _samples(self, rollout: Rollout, verdicts: Verdict, count: int = 12) -> list[dict[str, Any]]:
        """Some boards with their greedy answers, evenly spread over the validation set, in plain JSON."""
        instances, total = self.validation.instances, len(self.validation)
        chosen = np.linspace(0, total - 1, min(count, total)).astype(int)
        write = writer(self.config.text)
        found = []
        for i, answer in zip(chosen, self.policy.texts(rollout.tokens[chosen], rollout.mask[chosen]), strict=True):
            instance = instances[i]
            found.append(
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
                    "optimum": int(self.optima[i]),
                }
            )
        return found


def _coordinates(cells: np.ndarray, max_size: int) -> list[list[int]]:
    return [[int(x) for x in divmod(cell, max_size)] for cell in cells if cell != ABSENT]

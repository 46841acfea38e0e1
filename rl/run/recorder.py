"""What a run leaves behind while it goes on, in files, logs and on the screen, and the signal that stops it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from engineer.evidence import Evidence
from rl import grpo
from rl.config import RunError
from rl.qwen3.logprobs import Sequences
from rl.run.checkpoint import Snapshot
from rl.run.directory import RunDirectory
from rl.run.progress import Progress
from rl.run.signals import Interrupted, Stop
from rl.run.state import rows_of
from rl.run.tracking import Display, Meter, Profiler, Trackers


class State(Protocol):
    """The state of whatever learns in a run."""

    progress: Progress

    def snapshot(self) -> Snapshot:
        """Return what a checkpoint holds of it."""
        ...


@dataclasses.dataclass
class Recorder:
    """Saves, logs and shows the steps of a run, and stops it where nothing is lost.

    Attributes:
      stop: set by a signal to this process, honoured by all at the next safe moment.
      trackers, meter, profiler: see `rl.run.tracking`.
    """

    directory: RunDirectory
    display: Display
    stop: Stop
    trackers: Trackers
    meter: Meter
    profiler: Profiler

    def save(self, state: State) -> None:
        """Saves all of a state in one atomic step.

        Raises:
          RunError: if it cannot be written; the checkpoints before it are untouched.
        """
        self.directory.save(state.snapshot())

    def step_done(
        self, state: State, metrics: dict[str, Any], seconds: dict[str, float], status: str, save_every: int
    ) -> None:
        """Counts and logs a step, saves every `save_every` of them, and stops where the user asked for it."""
        progress = state.progress
        progress.step, progress.update = progress.step + 1, 0
        progress.total_steps += 1
        place = {"phase": metrics.pop("phase"), "round": progress.round, "step": progress.step}
        metrics = {k: float(f"{float(v):.6g}") for k, v in metrics.items()}  # digits: a rate may be 1e-6
        measured = {k: round(v, 3) for k, v in (seconds | self.meter.read()).items()}
        self.directory.append("metrics.jsonl", place | metrics)
        self.directory.append("timings.jsonl", place | measured)
        self.display.advance(status)
        self.trackers.write(place, progress.total_steps, metrics, measured)
        self.profiler.step_done()
        self.directory.checkpoints.check()
        if progress.step % save_every == 0:
            self.save(state)
            self.meter.read()  # what a save compiles is not the next step's
        self.check_stop(state)

    def check_stop(self, state: State) -> None:
        """Saves and raises Interrupted if the user asked any process to stop.

        All processes call it together, wherever all parts of the state go together.
        """
        if number := self.stop.agreed():
            self.save(state)
            raise Interrupted(number)

    def stoppable(self, state: State, progress: Callable[[int], None]) -> Callable[[int], None]:
        """The same progress function, at whose calls a wish to stop is honoured, too (`check_stop`)."""

        def report(done: int) -> None:
            progress(done)
            self.check_stop(state)

        return report

    @contextlib.contextmanager
    def interruptible(self, state: State) -> Iterator[None]:
        """Around long work that does not change the state: a signal ends it at once, see `Stop.at_once`.

        Raises:
          Interrupted: with everything saved as it was before.
        """
        try:
            with self.stop.at_once():
                yield
        except Interrupted:
            self.save(state)
            raise

    def note_update(
        self, state: State, metrics: dict[str, float], batch: grpo.Batch | Sequences, max_skipped: int
    ) -> None:
        """Counts the updates in a row that were skipped, as their loss or gradient was not finite.

        Raises:
          RunError: after `max_skipped` of them. Their batch is in `skipped/` of the run (of several processes each
            writes its own rows), and a checkpoint holds the parameters, which none of them has changed.
        """
        progress = state.progress
        if not metrics["update_skipped"]:
            progress.skipped = 0
            return
        progress.skipped += 1
        where = "warm start" if progress.stage == "warm_start" else f"round {progress.round}"
        where += f", step {progress.step + 1}"
        self.display.say(f"{where}: an update is skipped, as its loss or gradient is not finite")
        if progress.skipped < max_skipped:
            return
        name = f"{where.replace(', ', '_').replace(' ', '_')}_process_{jax.process_index()}.npz"
        folder = self.directory.path / "skipped"
        folder.mkdir(exist_ok=True)
        rows: dict[str, Any] = rows_of(batch)
        np.savez(folder / name, **rows)
        progress.skipped = 0  # the next try has as many
        self.save(state)
        raise RunError(
            f"{where}: {max_skipped} updates in a row were not finite (grpo.max_skipped = {max_skipped}); the last "
            f"one's batch is {folder / name}, and the last good parameters are saved: the same command tries again "
            "from there"
        )

    def keep_best(self, state: State, save: Callable[[Path], None], label: str, evidence: Evidence) -> None:
        """Keeps what learns in `best/` if no validation before had more valid samples; a checkpoint must follow.

        Args:
          save: writes it to a folder.
          label: "warm_start" or "rounds/<k>".
        """
        best = state.progress.best
        if best is not None and evidence.sampled_valid <= best["sampled_valid"]:
            return
        where = {
            "round": label if label == "warm_start" else int(label.removeprefix("rounds/")),
            "sampled_valid": evidence.sampled_valid,
        }
        self.export(save, "best", where | {"valid": evidence.valid / evidence.n, "boards": evidence.n})
        state.progress.best = where | {"checkpoint": self.directory.checkpoints.next_step}

    def export(self, save: Callable[[Path], None], name: str, validation: dict[str, Any] | None = None) -> None:
        """Writes what learns as a folder of the run, which is never half there.

        Args:
          save: writes it to a folder.
          validation: how good it is; goes to validation.json in it.

        Raises:
          ConfigError: if the folder cannot be written.
        """
        with self.directory.replaced(name) as folder:
            save(folder)
            if validation is not None:
                self.directory.write(f"{folder.name}/validation.json", validation)

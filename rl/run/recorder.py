"""The traces of a run in files, logs and on the screen, and the signal that stops it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from engineer.evidence import Evidence
from rl.config import RunError
from rl.run.checkpoint import Snapshot
from rl.run.directory import RunDirectory
from rl.run.progress import Progress
from rl.run.signals import Interrupted, Stop
from rl.run.tracking import Display, Meter, Trackers

MAX_SKIPPED = 3
"""Updates in a row that are not finite, after which a run stops."""


class RunState(Protocol):
    """The state of whatever learns in a run; `snapshot` is the content of a checkpoint."""

    progress: Progress

    @property
    def parameters(self) -> Any: ...
    def snapshot(self) -> Snapshot: ...


class Checkpointed(Protocol):
    """Whatever learns in a run: a state, and `save`, which writes a folder to be used without the run."""

    @property
    def state(self) -> RunState: ...
    def save(self, folder: Path) -> None: ...


class Recorder:
    """Saves, logs and shows the steps of a run, and stops it where nothing is lost.

    Use as a context manager around the run: it makes the folder, and cuts the logs back to the run's saved state.

    Args:
      stop: the wish to stop, set by a signal to this process and honoured by all at the next safe moment.
      learner: whatever learns; its state is looked up whenever it is needed.
      sources: what a checkpoint is to name beside the learner's own, see `Snapshot.source`.
    """

    def __init__(
        self,
        directory: RunDirectory,
        display: Display,
        stop: Stop,
        learner: Checkpointed,
        sources: Mapping[str, str] = MappingProxyType({}),
    ):
        self.directory, self.display, self.stop = directory, display, stop
        self.meter = Meter()
        self._learner, self._sources = learner, sources
        self._trackers = Trackers(directory.config, directory.path, display.say)

    def __enter__(self) -> "Recorder":
        self.directory.create()
        self.directory.cut_logs(self.progress)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._trackers.close(failed=kind is not None)

    @property
    def progress(self) -> Progress:
        return self._learner.state.progress

    def save(self) -> None:
        """Save the state in one atomic step; RunError if it cannot be written, and the checkpoints before it stay."""
        snapshot = self._learner.state.snapshot()
        self.directory.save(dataclasses.replace(snapshot, source={**snapshot.source, **self._sources}))

    def step_done(
        self, metrics: dict[str, Any], seconds: dict[str, float], status: str, save_every: int | None
    ) -> None:
        """Count and log a step (metrics with its `phase`), save every `save_every`, and stop if the user asked to.

        With None neither: the state is ahead of the steps that are logged.

        RunError, with nothing written, if what is trained is not finite.
        """
        progress, arrays = self.progress, self._learner.state.snapshot().arrays
        if not is_finite([tree for name, tree in arrays.items() if name != "optimizer"]):
            raise RunError(
                f"{progress}: the next step's parameters are not finite, and nothing of it is saved; a smaller "
                "learning_rate may help"
            )
        progress.step += 1
        progress.total_steps += 1
        place = {"phase": metrics.pop("phase"), "round": progress.round, "step": progress.step}
        metrics = {k: float(f"{float(v):.6g}") for k, v in metrics.items()}  # digits: a rate may be 1e-6
        measured = {k: round(v, 3) for k, v in (seconds | self.meter.read()).items()}
        self.directory.append("metrics.jsonl", place | metrics)
        self.directory.append("timings.jsonl", place | measured)
        self.display.advance(status)
        self._trackers.write(place, progress.total_steps, metrics, measured)
        if save_every is None:
            return
        if progress.step % save_every == 0:
            self.save()
            self.meter.read()  # what a save compiles is not the next step's
        self.check_stop()

    def check_stop(self) -> None:
        """Save and raise Interrupted if the user asked any process to stop.

        All processes call it together, wherever all parts of the state go together.
        """
        if number := self.stop.agreed():
            self.save()
            raise Interrupted(number)

    def with_stop_check(self, progress: Callable[[int], None] = lambda done: None) -> Callable[[int], None]:
        """Return the same progress function with `check_stop` at each of its calls."""

        def report(done: int) -> None:
            progress(done)
            self.check_stop()

        return report

    @contextlib.contextmanager
    def save_on_interrupt(self) -> Iterator[None]:
        """Surround long work that does not change the state: a signal ends it, and everything is saved as before."""
        try:
            with self.stop.interrupt_immediately():
                yield
        except Interrupted:
            self.save()
            raise

    def note_update(self, metrics: dict[str, float]) -> None:
        """Count updates in a row that were skipped, as loss or gradient were not finite; RunError at `MAX_SKIPPED`."""
        progress = self.progress
        progress.skipped = progress.skipped + 1 if metrics["update_skipped"] else 0
        if progress.skipped:
            self.display.say(f"{progress}: an update is skipped, as its loss or gradient is not finite")
        if progress.skipped == MAX_SKIPPED:
            raise RunError(
                f"{progress}: {MAX_SKIPPED} updates in a row were not finite; the same command tries again from the "
                "last checkpoint"
            )

    def keep_best(self, name: str, evidence: Evidence) -> None:
        """Keep what learns in `best/` if "warm_start" or "rounds/<k>" is the best so far; a checkpoint must follow."""
        progress = self.progress
        if progress.best is not None and evidence.sampled_valid <= progress.best["sampled_valid"]:
            return
        k = name if name == "warm_start" else int(name.removeprefix("rounds/"))
        best = {"round": k, "sampled_valid": evidence.sampled_valid}
        self.export("best", best | {"valid": evidence.valid / evidence.n, "boards": evidence.n})
        progress.best = best

    def export(self, name: str, validation: dict[str, Any] | None = None) -> None:
        """Write what learns as a folder, never half there, its scores in validation.json; ConfigError if that fails."""
        with self.directory.replaced(name) as folder:
            self._learner.save(folder)
            if validation is not None:
                self.directory.write(f"{folder.name}/validation.json", validation)


@jax.jit
def is_finite(tree: Any) -> jax.Array:
    """Return whether all numbers of a tree are finite, bool ``[]``."""
    return jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()

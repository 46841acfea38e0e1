"""Progress and metrics of a running run: a live line or plain lines, TensorBoard, Weights & Biases."""

import contextlib
import functools
import importlib
import math
import os
import resource
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from jaxlake.files import write_whole
from rl import distributed
from rl.config import Config, ConfigError
from rl.config.choices import WandbMode

PLAIN_EVERY = 10.0
"""Seconds between the lines of a log file."""
PATIENCE = 2.0
"""Seconds after which a step shows its progress."""
CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
"""Control characters that a model may write and a terminal would obey; tabs and line ends stay."""
WANDB_TIMEOUT = 8
"""Seconds for which Weights & Biases may hold up a run, at its begin and at its end: SIGTERM is honoured within 10."""


class Display:
    """Shows one stage of work at a time; messages stay, the live line goes. In a file there are plain lines instead.

    A notebook gets plain lines as well: rich's own way makes an output of each message and needs ipywidgets. Use as a
    context manager, so that the terminal is left in order whatever happens.

    Args:
      quiet: show nothing, as all processes of a job but one do.

    Attributes:
      done: steps of the stage that lie behind.
    """

    def __init__(self, quiet: bool = False):
        # Not for rich to guess: notebooks set FORCE_COLOR, by which it takes files of their children for terminals too.
        self.console = Console(
            highlight=False, soft_wrap=True, quiet=quiet, force_jupyter=False, force_terminal=sys.stdout.isatty()
        )
        # A dumb terminal, such as that of an editor, cannot write over a line: it gets those of a file.
        self._moves = self.console.is_terminal and not self.console.is_dumb_terminal
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),  # so that the whole line has 80 columns
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            transient=True,
            disable=quiet or not self._moves,
        )
        self._task: TaskID | None = None
        self._name, self._total, self.done, self._told = "", 0, 0, 0
        self._last = self._advanced = 0.0

    def __enter__(self) -> "Display":
        self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._moves:  # elsewhere rich 13 ends with an empty line
            self._live.stop()

    def say(self, message: str) -> None:
        """Print a line that stays."""
        self.console.print(message.translate(CONTROLS), markup=False)

    def stage(self, name: str, total: int, done: int = 0) -> None:
        """Begins a stage of `total` steps, `done` of which lie behind."""
        if self._task is not None:
            self._live.remove_task(self._task)
        self._task = self._live.add_task(name, total=total, completed=done, status="")
        self._name, self._total, self.done, self._told = name, total, done, done
        self._last = self._advanced = time.monotonic()

    def advance(self, status: str = "", steps: int = 1) -> None:
        """Count `steps` more and show `status`, such as ``reward 0.41  valid 38 %``."""
        self.done += steps
        self._advanced = time.monotonic()
        self._show(status)

    def within(self, status: str) -> None:
        """Show how far the next step is, once it has taken a while: on a short one it would only flicker."""
        if time.monotonic() - self._advanced > PATIENCE:
            self._show(status)

    def _show(self, status: str) -> None:
        if self._task is not None:
            self._live.update(self._task, completed=self.done, status=status)
        now = time.monotonic()
        if not self._moves and (now - self._last > PLAIN_EVERY or self.done == self._total):
            # At the rate since the line before: the first steps compile, and a mean over all would promise hours.
            done = self.done - self._told
            left = f"{(now - self._last) / done * (self._total - self.done):.0f} s left" if done else ""
            self._last, self._told = now, self.done
            self.say("  ".join(filter(None, (self._name, f"{self.done}/{self._total}", status, left))))


class Trackers:
    """Hands the metrics of each step to TensorBoard and Weights & Biases, as `tracking` asks for.

    The x axis of both is the step of the whole run, so a curve runs through warm start and rounds. Nothing is
    opened, and no file written, before the first step.

    Raises:
      ConfigError: if a package is missing, or there is no login to Weights & Biases.
    """

    def __init__(self, config: Config, run: Path, say: Callable[[str], None]):
        settings = config.tracking
        self._trackers: list[TensorBoard | WeightsAndBiases] = [TensorBoard(run)] if settings.tensorboard else []
        self._trackers += [WeightsAndBiases(config, run, say)] if settings.wandb is not WandbMode.OFF else []

    def close(self, failed: bool) -> None:
        """End what was opened; `failed` says how the run ended."""
        for tracker in self._trackers:
            tracker.close(failed)

    def write(
        self, place: Mapping[str, Any], total_step: int, metrics: Mapping[str, Any], timings: Mapping[str, float]
    ) -> None:
        """Add a step, on the main process; the first one after a resume says from where on the run is done again.

        Args:
          place: {"phase", "round", "step"}; the phase is the first part of a metric's name, as in ``round/reward``.
          total_step: number of the step in the whole run, from 1.
          metrics: None and what is not finite is left out.
          timings: seconds and figures of the process, shown as ``timings/rollout`` and so on.
        """
        if not distributed.is_main():
            return
        named = {f"{place['phase']}/{name}": value for name, value in metrics.items()}
        named |= {f"timings/{name}": value for name, value in timings.items()}
        finite = {name: float(value) for name, value in named.items() if value is not None and math.isfinite(value)}
        for tracker in self._trackers:
            tracker.write(finite, total_step)


class TensorBoard:
    """Writes events to the run's `tensorboard/`. A `kill -9` loses the last second of them."""

    def __init__(self, run: Path):
        self._make_writer = _import("tensorboardX", "tensorboard = true").SummaryWriter
        self._folder = run / "tensorboard"
        self._writer: Any = None

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Add the values at a step; of the first one, all that is there from it on is purged."""
        if self._writer is None:
            suffix = f".{step:08}"  # or two sessions of one second would write one file
            self._writer = self._make_writer(str(self._folder), purge_step=step, flush_secs=1, filename_suffix=suffix)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, failed: bool) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """Logs to one run of Weights & Biases per run directory, however often it is resumed; never stops a run.

    The run's id is in `wandb/id`. Offline, each resume makes another folder in the run's `wandb/`; a step that is done
    again after a crash is in both, with the same numbers. A `kill -9` loses W&B's last second.
    """

    def __init__(self, config: Config, run: Path, say: Callable[[str], None]):
        self._wandb = _import("wandb", f"wandb = {config.tracking.wandb}")
        self._config, self._directory, self._say = config, run, say
        self._run: Any = None
        self._broken = False
        os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")  # silent or not, it advertises where openai is imported
        os.environ.setdefault("WANDB__TRANSACTION_LOG_FLUSH_INTERVAL", "1")  # seconds; 15 by default
        if config.tracking.wandb is WandbMode.ONLINE:
            self._wandb.setup(settings=self._wandb.Settings(mode="online", silent=True))
            if not self._wandb.login(prompt=False, verify=False):
                raise ConfigError("tracking.wandb = online: not logged in; run `wandb login`, or set it to offline")

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Log the values at a step."""
        if self._broken:
            return
        try:
            self._run = self._run or self._open()
            self._run.log(dict(values), step=step)
        except Exception as error:  # whatever it is: what only watches a run must not end it
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._say(f"W&B failed ({reason}); the run continues without it, its metrics are in metrics.jsonl")
            self._broken = True

    def close(self, failed: bool) -> None:
        """End the session; what cannot be sent in time stays in the run's `wandb/`."""
        if self._run is not None:
            with contextlib.suppress(Exception):  # as in `write`
                self._run.finish(exit_code=int(failed))

    def _open(self) -> Any:
        identity = self._directory / "wandb" / "id"
        if not identity.exists():
            identity.parent.mkdir(exist_ok=True)
            write_whole(identity, secrets.token_hex(4).encode())
        return self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "jaxlake"),
            name=self._directory.resolve().name,
            id=identity.read_text(encoding="utf-8"),
            resume="allow",
            dir=self._directory,
            mode=self._config.tracking.wandb.value,
            config=self._config.model_dump(mode="json"),
            settings=self._wandb.Settings(
                silent=True,  # the terminal is the display's
                console="off",
                disable_git=True,
                init_timeout=WANDB_TIMEOUT,
                finish_timeout=WANDB_TIMEOUT,
            ),
        )


def _import(package: str, setting: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ConfigError(f"tracking.{setting}: needs pip install 'jaxlake[track]'") from None


class Meter:
    """Memory and compilations of this process, for timings.jsonl.

    A program counts when XLA hands it over, compiled anew or from the persistent cache: either way something ran in a
    shape that it had not run in before, and the step waited.
    """

    def __init__(self) -> None:
        self._seen = len(_compilations())

    def read(self) -> dict[str, float]:
        """`memory_gb`, the peak so far, and `compilations` since the last call.

        The peak, in 10^9 bytes, is that of the fullest local device; on a CPU that of the process's resident memory.
        """
        before, self._seen = self._seen, len(_compilations())
        statistics = [device.memory_stats() or {} for device in jax.local_devices()]
        peaks = [each["peak_bytes_in_use"] for each in statistics if "peak_bytes_in_use" in each]
        if len(peaks) < len(statistics):
            unit = 1 if sys.platform == "darwin" else 1024
            peaks = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]
        return {"memory_gb": max(peaks) / 1e9, "compilations": self._seen - before}


@functools.cache
def _compilations() -> list[float]:
    """Seconds of every compilation since the first call; the listener is registered once, because it stays for good."""
    seconds: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seconds


class Stopwatch:
    """Seconds spent in each named part of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Books the time since the last lap under `part`."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now

"""Progress and metrics of a running run: a live line or plain lines, TensorBoard, Weights & Biases."""

import contextlib
import functools
import importlib
import math
import os
import resource
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxlake.files import write_whole
from rl import distributed
from rl.config import Config, ConfigError

PLAIN_EVERY = 10.0
"""Seconds between the lines of a log file."""
PATIENCE = 2.0
"""Seconds after which a step shows its progress."""
CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
"""Control characters that a model may write and a terminal would obey; tabs and line ends stay."""
WANDB_TIMEOUT = 8
"""Seconds for which Weights & Biases may hold up a run, at its begin and at its end: SIGTERM is honoured within 10."""


class Display:
    """Shows one stage of work at a time: messages stay, and a line below them tells how far the stage is.

    On a terminal that line is written over and goes in the end; elsewhere it is written anew every ten seconds.

    Args:
      quiet: show nothing, as all processes of a job but one do.

    Attributes:
      done: finished steps of the stage.
    """

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        # A dumb terminal, such as that of an editor, cannot write over a line.
        self._moves = not quiet and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._name, self._total, self.done, self._done_before = "", 0, 0, 0
        self._last = self._advanced = 0.0

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *error: Any) -> None:
        self._erase()

    def say(self, message: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            self._erase()
            print(message.translate(CONTROLS), flush=True)

    def stage(self, name: str, total: int, done: int = 0) -> None:
        """Begin a stage of `total` steps, `done` of which are finished."""
        self._name, self._total, self.done, self._done_before = name, total, done, done
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
        seconds = time.monotonic() - self._last
        is_due = seconds > PLAIN_EVERY or self.done == self._total
        if not (self._moves or is_due):
            return
        # At the rate since the line before: the first steps compile, and a mean over all would promise hours.
        done = self.done - self._done_before
        left = f"{seconds / done * (self._total - self.done):.0f} s left" if done else ""
        line = "  ".join(filter(None, (self._name, f"{self.done}/{self._total}", status, left)))
        if is_due:
            self._last, self._done_before = time.monotonic(), self.done
        if self._moves:
            self._erase()
            print(line[: shutil.get_terminal_size().columns - 1], end="", flush=True)
        else:
            self.say(line)

    def _erase(self) -> None:
        if self._moves:
            print("\r\033[2K", end="", flush=True)


class Trackers:
    """Hands the metrics of each step to TensorBoard and Weights & Biases, as `tracking` asks for; never stops a run.

    Nothing is opened, and no file written, before the first step.

    Raises:
      ConfigError: if a package is missing, or there is no login to Weights & Biases.
    """

    def __init__(self, config: Config, run: Path, say: Callable[[str], None]):
        settings, self._say = config.tracking, say
        self._trackers: list[TensorBoard | WeightsAndBiases] = [TensorBoard(run)] if settings.tensorboard else []
        self._trackers += [WeightsAndBiases(config, run)] if settings.wandb != "disabled" else []

    def close(self, failed: bool) -> None:
        """End what was opened; `failed` says how the run ended."""
        while self._trackers:
            with contextlib.suppress(Exception):  # as in `write`
                self._trackers.pop().close(failed)

    def write(
        self, place: Mapping[str, Any], total_step: int, metrics: Mapping[str, Any], timings: Mapping[str, float]
    ) -> None:
        """Add a step, on the main process; what is not finite is left out.

        Args:
          place: {"phase", "round", "step"}; the phase is the first part of a metric's name, as in ``round/reward``.
          total_step: the x axis, the number of the step in the whole run, from 1.
          timings: seconds and figures of the process, shown as ``timings/rollout`` and so on.
        """
        if not distributed.is_main():
            return
        values = {f"{place['phase']}/{name}": value for name, value in metrics.items()}
        values |= {f"timings/{name}": value for name, value in timings.items()}
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        for tracker in [*self._trackers]:
            try:
                tracker.write(finite, total_step)
            except Exception as error:  # whatever it is: what only watches a run must not end it
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                self._say(f"{tracker.name} failed ({reason}); the run continues without it, see metrics.jsonl")
                self._trackers.remove(tracker)
                with contextlib.suppress(Exception):
                    tracker.close(failed=True)


class TensorBoard:
    """Writes events to the run's `tensorboard/`. A `kill -9` loses the last second of them."""

    name = "TensorBoard"

    def __init__(self, run: Path):
        self._make_writer = _import("tensorboardX", "tensorboard = true").SummaryWriter
        self._folder = str(run / "tensorboard")
        self._writer: Any = None

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Add the values at a step; of the first one, all that is there from it on is purged."""
        if self._writer is None:
            suffix = f".{step:08}"  # or two sessions of one second would write one file
            self._writer = self._make_writer(self._folder, purge_step=step, flush_secs=1, filename_suffix=suffix)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, failed: bool) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """Logs to one run of Weights & Biases per run directory, however often it is resumed.

    The run's id is in `wandb/id`. Offline, each resume makes another folder in the run's `wandb/`; a step that is done
    again after a crash is in both, with the same numbers. A `kill -9` loses W&B's last second.
    """

    name = "W&B"

    def __init__(self, config: Config, run: Path):
        mode = config.tracking.wandb
        self._wandb, self._config, self._directory = _import("wandb", f"wandb = {mode}"), config, run
        self._run: Any = None
        os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")  # silent or not, it advertises where openai is imported
        os.environ.setdefault("WANDB__TRANSACTION_LOG_FLUSH_INTERVAL", "1")  # seconds; 15 by default
        if mode == "online":
            self._wandb.setup(settings=self._wandb.Settings(mode="online", silent=True))
            if not self._wandb.login(prompt=False, verify=False):
                raise ConfigError("tracking.wandb = online: not logged in; run `wandb login`, or set it to offline")

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Log the values at a step."""
        self._run = self._run or self._open()
        self._run.log(dict(values), step=step)

    def close(self, failed: bool) -> None:
        """End the session; what cannot be sent in time stays in the run's `wandb/`."""
        if self._run is not None:
            self._run.finish(exit_code=int(failed))

    def _open(self) -> Any:
        identity = self._directory / "wandb" / "id"
        if not identity.exists():
            identity.parent.mkdir(exist_ok=True)
            write_whole(identity, secrets.token_hex(4).encode())
        # silent, console: the terminal is the display's
        seconds = {"init_timeout": WANDB_TIMEOUT, "finish_timeout": WANDB_TIMEOUT}
        return self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "jaxlake"),
            name=self._directory.resolve().name,
            id=identity.read_text(encoding="utf-8"),
            resume="allow",
            dir=self._directory,
            mode=self._config.tracking.wandb,
            config=self._config.model_dump(mode="json"),
            settings=self._wandb.Settings(silent=True, console="off", disable_git=True, **seconds),
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
        """Return `memory_gb`, the peak of the fullest local device (on a CPU, of this process) in 10^9 bytes, and
        `compilations` since the last call.
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
    """Return the seconds of every compilation since the first call; a listener of JAX stays for good."""
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
        """Book the time since the last lap under `part`."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now

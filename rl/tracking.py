"""What a person sees while a run goes on: a live line on a terminal, else plain lines; TensorBoard if asked."""

import functools
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rl.config import ConfigError

PLAIN_EVERY = 10.0
"""Seconds between the lines of a log file."""
PATIENCE = 2.0
"""Seconds after which a step tells what goes on within it."""


class Display:
    """Shows one stage of work at a time; messages stay, the live line goes.

    Use as a context manager, so that the terminal is left in order whatever happens.

    Args:
      quiet: show nothing, as all processes of a job but one do.

    Attributes:
      done: steps of the stage that lie behind.
    """

    def __init__(self, quiet: bool = False):
        self.console = Console(highlight=False, soft_wrap=True, quiet=quiet)
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),  # so that the whole line has 80 columns
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self._task = None
        self._name, self._total, self.done, self._begun_at = "", 0, 0, 0
        self._last = self._started = self._advanced = 0.0

    def __enter__(self) -> "Display":
        self._live.start()
        return self

    def __exit__(self, *error) -> None:
        self._live.stop()

    def say(self, message: str) -> None:
        """A line that stays."""
        self.console.print(message, markup=False)

    def stage(self, name: str, total: int, done: int = 0) -> None:
        """Begins a stage of `total` steps, `done` of which lie behind."""
        if self._task is not None:
            self._live.remove_task(self._task)
        self._task = self._live.add_task(name, total=total, completed=done, status="")
        self._name, self._total, self.done, self._begun_at = name, total, done, done
        self._last = self._started = self._advanced = time.monotonic()

    def advance(self, status: str = "", steps: int = 1) -> None:
        """Counts `steps` more and shows `status`, such as ``reward 0.41  valid 38 %``."""
        self.done += steps
        self._advanced = time.monotonic()
        self._show(status)

    def within(self, status: str) -> None:
        """Shows how far the next step is, once that has taken a while: on a short one it would only flicker."""
        if time.monotonic() - self._advanced > PATIENCE:
            self._show(status)

    def _show(self, status: str) -> None:
        self._live.update(self._task, completed=self.done, status=status)
        now = time.monotonic()
        if not self.console.is_terminal and (now - self._last > PLAIN_EVERY or self.done == self._total):
            self._last = now
            done = self.done - self._begun_at
            left = f"{(now - self._started) / done * (self._total - self.done):.0f} s left" if done else ""
            self.say(f"{self._name}  {self.done}/{self._total}  {status}  {left}")


class TensorBoard:
    """Writes the metrics of each step as TensorBoard events, a curve per stage and metric.

    Args:
      run: directory of the run; the events go to its `tensorboard/`.

    Raises:
      ConfigError: if the extra `track` is not installed.
    """

    def __init__(self, run: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ConfigError("tracking.tensorboard = true: needs pip install 'jaxlake[track]'") from None
        self._make_writer = functools.cache(lambda: SummaryWriter(str(run / "tensorboard")))  # not before it is used

    def write(self, place: dict[str, Any], metrics: dict[str, Any]) -> None:
        """Adds a step's metrics at its place: {"phase", "round", "step"}."""
        stage = "warm_start" if place["phase"] == "warm_start" else f"round_{place['round']}"
        for name, value in metrics.items():
            self._make_writer().add_scalar(f"{name}/{stage}", float(value), place["step"])
        self._make_writer().flush()

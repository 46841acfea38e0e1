"""A watch over a process without progress: it says where the process waits, and can end it to be restarted."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import jax

IDLE = 0.01
"""Share of one core below which a process counts as idle. XLA's lost executions use none at all."""
OURS = ("jaxlake", "engineer", "rl")


class StallWatch:
    """A thread that reports when nothing has moved for a while and the processor is idle.

    A long compilation or a slow step keeps a core busy and is not reported. Use as a context manager.

    Args:
      seconds: time in which something must move.
      ends: kill the process instead of waiting on, unless it waits for another thread.
    """

    def __init__(self, seconds: float, say: Callable[[str], None], ends: bool = False):
        self._seconds, self._say, self._ends = seconds, say, ends
        self._main, self._over = threading.get_ident(), threading.Event()
        self.touch()

    def touch(self) -> None:
        self._moved, self._used = time.monotonic(), time.process_time()

    def __enter__(self) -> "StallWatch":
        threading.Thread(target=self._watch, name="stall watch", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(min(self._seconds / 4, 5.0)):
            idle = time.process_time() - self._used < IDLE * (waited := time.monotonic() - self._moved)
            if waited < self._seconds or not idle:
                continue
            frame = sys._current_frames()[self._main]
            ends = self._ends and frame.f_globals.get("__name__") != "threading"
            self._say(
                f"nothing has moved for {waited:.0f} s and the processor is idle: waiting in {_place(frame)}, with JAX "
                f"{jax.__version__}. "
                + (
                    "This process ends and is restarted"
                    if ends
                    else f"To end it: kill -9 {os.getpid()}; then rerun the same command to resume"
                )
                + " (docs/troubleshooting.md, Hangs)"
            )
            if ends:
                os.kill(os.getpid(), signal.SIGKILL)


def _place(frame: FrameType | None) -> str:
    """Name the innermost of our own functions that the frame is in."""
    while frame and str(frame.f_globals.get("__name__")).partition(".")[0] not in OURS:
        frame = frame.f_back
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})" if frame else "other people's code"

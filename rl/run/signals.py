"""Ctrl-C, SIGTERM and SIGHUP: noted, agreed on by all processes of a job, and honoured where nothing is lost."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import jax
import numpy as np

from rl import distributed


class Interrupted(Exception):
    """A signal asked to stop; everything is saved."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Stop:
    """A wish to stop, from Ctrl-C, SIGTERM or a terminal that is closed (SIGHUP): the signal's number, 0 before it."""

    def __init__(self) -> None:
        self.number = 0
        self._immediately = False

    @contextlib.contextmanager
    def interrupt_immediately(self) -> Iterator[None]:
        """Fulfil the wish in here as soon as Python can: for long work that has nothing to save of its own.

        Not in a job of several processes: the others would wait for this one. There it is noted, as elsewhere.

        Raises:
          Interrupted: wherever the work is.
        """
        self._immediately = not jax.distributed.is_initialized()
        try:
            if self._immediately and self.number:
                raise Interrupted(self.number)
            yield
        finally:
            self._immediately = False

    def agreed(self) -> int:
        """Return the number of a signal that any process of the job got, 0 if none; all call it at the same place."""
        return int(distributed.all_gather(np.array([self.number])).max())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Another SIGTERM is none of a user's: `timeout`, for one, sends it to the process and then to its group.
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number
        self._cut_off(number, frame)

    def _cut_off(self, number: int, frame: FrameType | None) -> None:
        """Raise in `interrupt_immediately`; again a moment later, as Python drops what `__del__` and the like raise."""
        on_its_way = isinstance(sys.exception(), Interrupted)
        if self._immediately and not on_its_way:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            raise Interrupted(self.number)

    def listen(self) -> None:
        """Take the signals, also from JAX, which has a handler of SIGTERM of its own in a job of several processes."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
                signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, self._cut_off)

    @contextlib.contextmanager
    def listening(self) -> Iterator["Stop"]:
        """Note these signals while it lasts; a second Ctrl-C stops at once, without saving."""
        taken = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
        before = {number: signal.getsignal(number) for number in taken}
        self.listen()
        try:
            yield self
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

"""Ctrl-C, SIGTERM and SIGHUP: noted, agreed on by all processes of a job, and honoured where nothing is lost."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

import jax
import numpy as np

from rl import distributed

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked to stop; everything is saved."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Stop:
    """A wish to stop, from Ctrl-C, SIGTERM or a terminal that is closed (SIGHUP): the signal's number, 0 before it."""

    number = 0
    _immediately = False

    @contextlib.contextmanager
    def interrupt_immediately(self) -> Iterator[None]:
        """Raise Interrupted inside this block as soon as a signal comes: for long work with nothing of its own to save.

        Not in a job of several processes, where the others would wait for this one: there it is noted, as elsewhere.
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
        if self.number:
            # Another SIGTERM is none of a user's: `timeout`, for one, sends it to the process and then to its group.
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.number = number
        if self._immediately:
            raise Interrupted(number)

    def listen(self) -> None:
        """Take the signals, also from JAX, which has a handler of SIGTERM of its own in a job of several processes."""
        for number in _SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
                signal.signal(number, self._on_signal)

    @contextlib.contextmanager
    def listening(self) -> Iterator["Stop"]:
        """Note these signals while it lasts; a second Ctrl-C stops at once, without saving."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

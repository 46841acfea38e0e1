"""Runs that are disturbed at a moment that a test chooses: killed, or stopped by a signal."""

import contextlib
import importlib.util
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


class Killed(BaseException):
    """As a process that is killed: nothing that the program does about errors happens, but locks go."""


def kill() -> None:
    raise Killed


def stop() -> None:
    signal.raise_signal(signal.SIGTERM)


@contextlib.contextmanager
def at_call(
    place: object, name: str, number: int, disturb: Callable[[], None], counts: Callable[..., bool] | None = None
) -> Iterator[list[str]]:
    """Disturb call `number` of a function, from 1, before it does anything (0: none); yield a list of its calls.

    Calls count of whose arguments `counts` is true; without it all do.
    """
    calls, function = [], getattr(place, name)

    def disturbed(*arguments, **options):
        if counts is None or counts(*arguments, **options):
            calls.append(name)
            if len(calls) == number:
                disturb()
        return function(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, disturbed)
        yield calls
    assert len(calls) >= number, "the moment never came"


def load_script(place: str) -> ModuleType:
    """Return a file of the repository that is in no package, as a module."""
    path = Path(__file__).parents[2] / place
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Errors that end a command in one line: a mistake of the user's, and a run that cannot continue."""

import json
from collections.abc import Mapping
from typing import Any


class RunError(RuntimeError):
    """A problem that stops a run whose configuration is right, told in one line."""


class ConfigError(ValueError):
    """A user's mistake in a configuration or on the command line, told in one line."""


def refuse_difference(what: object, was: Mapping[str, Any], now: Mapping[str, Any], remedy: str) -> None:
    """Raise ConfigError naming the first value that differs from what a folder or file was made with.

    Args:
      what: the folder or file.
      was, now: plain JSON values by name, as they were and as they are.
      remedy: what the user can do about it.
    """
    for name in [*now, *(was.keys() - now.keys())]:
        if was.get(name) != now.get(name):
            before, after = (json.dumps(values.get(name)).replace('"', "") for values in (was, now))
            raise ConfigError(f"{what}: {name} was {before}, is now {after}; {remedy}")

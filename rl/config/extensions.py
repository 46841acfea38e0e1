"""Functions of the user's own that a configuration names as ``module:function``: an engineer, a reward, and others."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic

from rl.config.errors import ConfigError
from rl.config.fields import OWN, flat, keys, words
from rl.config.sections import Config

_FUNCTION = pydantic.TypeAdapter[Callable[..., Any]](pydantic.ImportString[Callable[..., Any]])


def is_own(name: str) -> bool:
    """Return whether a setting names a function of the user's own, and not one of ours."""
    return ":" in name


def find(key: str, name: str) -> Callable[..., Any]:
    """Return the function ``module:function``; modules of the current directory are found too.

    Args:
      key: the setting that names it, for the ConfigError where it is not there.
    """
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:  # a console script does not look there, `python -m` does
        sys.path.append(folder)
    try:
        return _FUNCTION.validate_python(name)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{key} = {name}: {error.errors()[0]['msg']}") from None


def check_extensions(config: Config) -> None:
    """Find all functions that a configuration names; ConfigError if one is not there."""
    fields = keys()
    for key, value in flat(config.model_dump()).items():
        if isinstance(value, str) and is_own(value) and OWN in words(fields[key].annotation):
            find(key, value)

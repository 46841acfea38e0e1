"""Functions of the user's own that a configuration names as ``module:function``: an engineer, a reward, and others."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl.config.errors import ConfigError
from rl.config.fields import OWN, words
from rl.config.types import REFERENCE, Section


def is_own(name: str) -> bool:
    """Return whether a setting names a function of the user's own, and not one of ours."""
    return re.fullmatch(REFERENCE, name) is not None


def find(key: str, name: str) -> Callable[..., Any]:
    """Return the function ``module:function``; modules of the current directory are found too.

    An error inside the module passes through as it is: its traceback is what its author needs.

    Args:
      key: the setting that names it, for the errors.

    Raises:
      ConfigError: if there is no such module, or no such function in it.
    """
    module, _, function = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:  # a console script does not look there, `python -m` does
        sys.path.append(folder)
    try:
        own = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{key} = {name}: there is no module {error.name} here ({folder}) or installed") from None
    if not callable(own):
        raise ConfigError(f"{key} = {name}: module {module} has no function {function}")
    return own


def check_extensions(section: Section, prefix: str = "") -> None:
    """Find all functions that a section and those in it name; ConfigError if one is not there."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            check_extensions(value, f"{prefix}{name}.")
        elif isinstance(value, str) and is_own(value) and OWN in words(field.annotation):
            find(f"{prefix}{name}", value)

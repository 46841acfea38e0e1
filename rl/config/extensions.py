"""Functions of the user's own that a configuration names as ``module:function``: an engineer, a reward, and others."""

import functools
import hashlib
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


def check_extensions(config: Config) -> dict[str, str]:
    """Find all functions that a configuration names; ConfigError if one is not there.

    Returns:
      By key and value a digest of the file that each is from, whose other functions it may call.
    """
    fields, digests = keys(), {}
    for key, value in flat(config.model_dump()).items():
        if isinstance(value, str) and is_own(value) and OWN in words(fields[key].annotation):
            digests[f"{key} = {value}"] = _digest(find(key, value), value)
    return digests


@functools.cache  # of the file as it was imported, whatever becomes of it
def _digest(function: Callable[..., Any], name: str) -> str:
    modules = {name.partition(":")[0], str(getattr(function, "__module__", ""))} & sys.modules.keys()
    files = sorted(file for module in modules if (file := getattr(sys.modules[module], "__file__", None)))
    return digest(b"".join(Path(file).read_bytes() for file in files))


def digest(content: bytes) -> str:
    """Return a digest of a file's content by which a run knows it again."""
    return hashlib.sha256(content).hexdigest()[:16]

"""Configurations from YAML files and dotted overrides: read, build, override, validate; mistakes end in one line."""

import difflib
import functools
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml
from pydantic_core import ErrorDetails

from rl.config.errors import ConfigError
from rl.config.fields import flat, keys, words
from rl.config.sections import Config
from rl.config.types import Section

_PACKAGE = Path(__file__).parents[1]
SHIPPED = (_PACKAGE if (_PACKAGE / "configs").exists() else _PACKAGE.parent) / "configs"
"""Folder of the configurations that come with the package: beside it in a checkout, inside it where it is installed."""


SomeSection = TypeVar("SomeSection", bound=Section)
Values = dict[str, Any]


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read the YAML file of a run, which may build on another, and apply overrides such as ``student.learn.samples=4``.

    A ConfigError names, in one line, the key, its value and what it must be.
    """
    return validate(Config, override(build(read(path), path), overrides), str(path))


def build(values: Values, path: Path) -> Values:
    """Return the values of a file on top of those of the file that it names as its ``base``, if it names one.

    Args:
      values: values of the file, in the form of a run's configuration.
      path: path of the file. A base lies beside it, or comes with the package.
    """
    layers, paths = [dict(values)], [path]
    while name := layers[-1].pop("base", None):
        beside, shipped = paths[-1].parent / name, SHIPPED / name
        base = shipped if shipped.exists() and not beside.exists() else beside
        if base.resolve() in {path.resolve() for path in paths}:
            raise ConfigError(f"{paths[-1]}: base = {name}: must lead to a file without a base")
        layers.append(read(base))
        paths.append(base)
    return functools.reduce(merge, reversed(layers), {})


def merge(values: Values, changes: Mapping[str, Any]) -> Values:
    """Return values of a configuration with some of them changed; sections are merged, anything else is replaced.

    Changes that name another kind of student replace the section of the student: its settings are the kind's own.

    Args:
      changes: nested sections or dotted keys.
    """
    changes = _merge({}, changes)
    kind = _kind_of_student(values, "writer")
    if _kind_of_student(changes, kind) != kind:
        values = values | {"student": {}}
    return _merge(values, changes)


def _merge(values: Values, changes: Mapping[str, Any]) -> Values:
    merged = dict(values)
    for key, value in changes.items():
        name, dot, rest = str(key).partition(".")
        value = {rest: value} if dot else value
        if isinstance(value, Mapping):
            section = merged.get(name)
            value = _merge(section if isinstance(section, dict) else {}, value)
        merged[name] = value
    return merged


def _kind_of_student(values: Values, default: str) -> str:
    student = values.get("student")
    return student.get("kind", default) if isinstance(student, dict) else default


def read(path: Path) -> Values:
    """Return the keys and values of a YAML file; ConfigError if it holds something else."""
    try:
        values = _parse(path.read_bytes(), str(path)) or {}
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; those that come with jaxlake are in {SHIPPED}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold keys and values")
    return values


def override(values: Values, overrides: Sequence[str]) -> Values:
    """Return the values of a file changed by overrides such as ``seed=1``; ConfigError if one is not of this form."""
    changes: Values = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"override {text!r}: must be key=value, such as seed=1")
        changes = _merge(changes, {key: _parse(value, f"override {text!r}")})
    return merge(values, changes)


def validate(section: type[SomeSection], values: Values, source: str) -> SomeSection:
    """Return the values of a file as a configuration; ConfigError as of `load`, naming the source too."""
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{source}: {_one_line(error.errors()[0], keys(section))}") from None


def _one_line(error: ErrorDetails, known: Mapping[str, Any]) -> str:
    parts = [part for part in error["loc"] if isinstance(part, str) and "[" not in part]  # no numbers and types
    kind, value = "", error["input"]
    if "student" in parts[:-1]:  # pydantic names the kind of a student after it
        kind = parts.pop(parts.index("student") + 1)
    if ".".join(parts[:-1]) in known:  # and the member of a union after the key
        parts.pop()
    key = ".".join(parts)
    match error["type"]:
        case "extra_forbidden":
            if any(f"{other}.".startswith(f"{key}.") for other in known):
                return f"student.kind = {kind} has no {key}; --help lists the keys of each"
            key = next(iter(flat({key: value})), key)  # of an unknown section its first key
            same_name = [other for other in known if other.endswith(f".{key.rpartition('.')[2]}")]
            nearest = same_name or difflib.get_close_matches(key, known, n=1, cutoff=0)
            return f"unknown key {key}; the nearest is {nearest[0]}"
        case "missing":
            return f"{key} must be given"
        case "enum" | "literal_error":
            message = f"must be one of {', '.join(words(known[key].annotation))}"
        case _:
            message = error["msg"].removeprefix("Value error, ").replace("Input should", "must")
    if isinstance(value, dict):  # the values of a section do not go together
        return f"{key}: {message}" if key else message
    return f"{key} = {textwrap.shorten(json.dumps(value, default=str), 60)}: {message}"


class _Loader(yaml.SafeLoader):
    """A loader that reads 1e-4 as a number, in which YAML 1.1 misses a point."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _parse(text: str | bytes, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader with one more number format
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(error).split())}") from None

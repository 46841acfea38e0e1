"""Configurations from YAML files and dotted overrides: read, build, override, validate; mistakes end in one line."""

import copy
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml
from pydantic_core import ErrorDetails

from rl.config.errors import ConfigError
from rl.config.fields import OWN, keys, words
from rl.config.sections import Config
from rl.config.types import Section

_PACKAGE = Path(__file__).parents[1]
SHIPPED = (_PACKAGE if (_PACKAGE / "configs").exists() else _PACKAGE.parent) / "configs"
"""Folder of the configurations that come with the package: beside it in a checkout, inside it where it is installed."""


SomeSection = TypeVar("SomeSection", bound=Section)
Values = dict[str, Any]


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read the YAML file of a run, which may build on another, and apply overrides such as ``student.learn.samples=4``.

    Raises:
      ConfigError: naming the key, its value and what it must be; one line.
    """
    return validate(Config, override(build(read(path), path), overrides), str(path))


def build(values: Values, path: Path, source: str = "", above: tuple[Path, ...] = ()) -> Values:
    """Return the values of a file on top of those of the file that it names as its ``base``, if it names one.

    Args:
      values: values of the file, in the form of a run's configuration.
      path: path of the file. A base lies beside it, or comes with the package.
      source: origin of the values, for errors; the file if not given.
      above: files that build on this one.

    Raises:
      ConfigError: if a base cannot be read, builds on itself or does not fit; one line.
    """
    below: Values = {}
    if "base" in values:
        name, above = str(values["base"]), (*above, path.resolve())
        beside, shipped = path.parent / name, SHIPPED / name
        base = shipped if shipped.exists() and not beside.exists() else beside
        if base.resolve() in above:
            raise ConfigError(f"{path}: base = {name}: builds on this file; a base must lead to a file without one")
        below = build(read(base), base, above=above)
    changes = {name: value for name, value in values.items() if name != "base"}
    return merge(below, changes, source or str(path))


def merge(values: Mapping[str, Any], changes: Mapping[str, Any], source: str) -> Values:
    """Return values of a configuration with some of them changed; sections are merged, anything else is replaced.

    Changes that name another kind of student replace the section of the student: its settings are the kind's own.

    Raises:
      ConfigError: if a section is given one value, or a key is dotted.
    """
    merged = copy.deepcopy(dict(values))
    if _student(changes, _student(values)) != _student(values):
        merged.pop("student", None)
    for name, value in changes.items():
        if "." in str(name):
            raise ConfigError(f"{source}: {name} is no key; sections are nested, such as rounds: {{count: 3}}")
        if isinstance(merged.get(name), dict):
            if not isinstance(value, dict):
                raise ConfigError(f"{source}: {name} is a section, and {value!r} no section's values")
            merged[name] = merge(merged[name], value, f"{source}.{name}")
        else:
            merged[name] = value
    return merged


def _student(values: Mapping[str, Any], default: str = "writer") -> Any:
    """Return the kind of student that values name."""
    student = values.get("student")
    return student.get("kind", default) if isinstance(student, Mapping) else default


def read(path: Path) -> Values:
    """Return the keys and values of a YAML file, whatever they are.

    Raises:
      ConfigError: if it cannot be read or holds something else; one line.
    """
    try:
        values = _parse(path.read_text(encoding="utf-8"), str(path)) or {}
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; those that come with jaxlake are in {SHIPPED}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not YAML: it is no text") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold keys and values, not {_short(values)}")
    return values


def override(values: Values, overrides: Sequence[str]) -> Values:
    """Put overrides such as ``seed=1`` into the values of a file, and return these.

    Raises:
      ConfigError: if one is not of this form; one line.
    """
    changes: Values = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"override {override!r}: must be key=value, such as seed=1")
        *sections, name = key.split(".")
        place = changes
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"override {override!r}: {section} is no section")
        place[name] = _parse(value, f"override {override!r}")
    return merge(values, changes, "overrides")


def validate(section: type[SomeSection], values: Values, source: str) -> SomeSection:
    """Return the values of a file as a configuration.

    Raises:
      ConfigError: naming the source, the key, its value and what it must be; one line.
    """
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{source}: {_one_line(error.errors()[0], section)}") from None


def _one_line(error: ErrorDetails, section: type[Section]) -> str:
    place, kind = _place(error["loc"])
    value = error["input"]
    message = error["msg"].removeprefix("Value error, ").replace("Input should", "must")
    *sections, name = place or ["configuration"]
    key, known = ".".join(place), keys(section)
    if error["type"] == "extra_forbidden":
        if any(f"{other}.".startswith(f"{key}.") for other in known):
            return f"student.kind = {kind} has no {key}; --help lists the keys of each"
        while isinstance(value, dict) and value:  # an unknown section: its first key
            name, value = next(iter(value.items()))
            key = f"{key}.{name}"
        by_name = [other for other in known if other.rpartition(".")[2] == name]
        nearest = by_name or difflib.get_close_matches(key, known, n=1, cutoff=0.0 if sections else 0.5)
        return f"unknown key {key}; " + (f"the nearest is {nearest[0]}" if nearest else "--help lists them all")
    if error["type"] == "missing":
        return f"{key} must be given"
    if error["type"] == "enum":
        *others, last = words(known[key].annotation)
        last = f"{last}, a function of your own" if last == OWN else last
        message = f"must be one of {', '.join(others)} or {last}"
    elif isinstance(value, dict):  # the values of a section do not go together, or it is none
        key = f"{key} is no section" if error["type"].endswith("_type") else key
        return f"{key}: {message}" if key else message
    return f"{key} = {_short(value)}: {message}"


def _place(loc: tuple[int | str, ...]) -> tuple[list[str], str]:
    """Return the parts of a dotted key that pydantic names, and the kind of student; numbers and types are left out."""
    parts = [
        part for part in loc if isinstance(part, str) and "[" not in part and part not in ("enum", "constrained-int")
    ]
    if "student" not in parts[:-1]:
        return parts, ""
    kind = parts.pop(parts.index("student") + 1)
    return parts, kind


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-4, without a point, as a string and off as false; this loader reads a number and a word."""


_Loader.yaml_implicit_resolvers = {k: list(v) for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()}
for _initial, _resolvers in _Loader.yaml_implicit_resolvers.items():
    if _initial not in "tTfF":
        _Loader.yaml_implicit_resolvers[_initial] = [r for r in _resolvers if r[0] != "tag:yaml.org,2002:bool"]
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader with one more number format
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f", line {mark.line + 1}" if mark and "\n" in text.rstrip() else ""
        raise ConfigError(f"{source}{where}: not YAML: {problem or ' '.join(str(error).split())}") from None

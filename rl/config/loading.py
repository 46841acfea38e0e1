"""Configurations from YAML files and dotted overrides: read, override, validate; mistakes end in one line."""

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml

from rl.config.errors import ConfigError
from rl.config.sections import Config, Section


def _shipped() -> Path:
    package = Path(__file__).parents[1]
    return package / "configs" if (package / "configs").exists() else package.parent / "configs"


SHIPPED = _shipped()
"""Folder of the configurations that come with the package: beside it in a checkout, inside it where it is installed."""


SomeSection = TypeVar("SomeSection", bound=Section)


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a YAML file and applies overrides such as ``grpo.learning_rate=1e-4``.

    Raises:
      ConfigError: naming the key, its value and what is allowed; one line.
    """
    return validate(Config, override(read(path), overrides), str(path))


def read(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file, whatever they are.

    Raises:
      ConfigError: if it cannot be read or holds something else; one line.
    """
    try:
        values = _parse(path.read_text(), str(path)) or {}
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; those that come with jaxlake are in {SHIPPED}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not YAML: it is no text") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold keys and values, not {_short(values)}")
    return values


def override(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Puts overrides such as ``grpo.learning_rate=1e-4`` into the values of a file, and returns these.

    Raises:
      ConfigError: if one is not of this form; one line.
    """
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"override {override!r}: must be key=value, such as grpo.learning_rate=1e-4")
        *sections, name = key.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"override {override!r}: {section} is no section")
        place[name] = _parse(value, f"override {override!r}")
    return values


def validate(section: type[SomeSection], values: dict[str, Any], source: str) -> SomeSection:
    """The values of a file as a configuration.

    Raises:
      ConfigError: naming the source, the key, its value and what is allowed; one line.
    """
    try:
        # Through JSON, where strict mode still takes a list for a tuple, as YAML has no tuples.
        return section.model_validate_json(json.dumps(values, default=str))
    except pydantic.ValidationError as error:
        raise ConfigError(f"{source}: {_one_line(error.errors()[0], section)}") from None


def _one_line(error: dict[str, Any], section: type[Section]) -> str:
    place, message = error["loc"], error["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    if place and str(place[-1]).startswith("literal["):  # the first of two allowed kinds; `Own` is the other
        place, message = place[:-1], f"{message}, or module:function, a function of your own"
    *sections, name = place or ("configuration",)
    key = ".".join(map(str, place))
    if error["type"] == "extra_forbidden":
        known = keys(section)
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0 if sections else 0.5)
        by_name = [other for other in known if other.rpartition(".")[2] == name]
        hint = (by_name or nearest or [None])[0]
        return f"unknown key {key}; " + (f"the nearest is {hint}" if hint else "--help lists them all")
    if isinstance(error["input"], dict):  # a section whose values do not go together
        return f"{key}: {message}" if key else message
    return f"{key} = {_short(error['input'])}: {message}"


def keys(section: type[Section] = Config, prefix: str = "") -> dict[str, pydantic.fields.FieldInfo]:
    """Every dotted key with its field, in the order of the file."""
    found = {}
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found |= keys(field.annotation, f"{prefix}{name}.")
        else:
            found[prefix + name] = field
    return found


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

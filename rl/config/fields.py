"""Fields of a configuration by dotted key, and the words that they choose from."""

import enum
import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pydantic_core
from pydantic.fields import FieldInfo

from engineer import RULES
from rl.config.sections import Config
from rl.config.types import Origin, Own, RuleName, Section

FREE = ("engineer.api.", "checkpoint.", "tracking.")
"""Keys or their beginnings: the settings that a resumed run may change, because no number depends on them."""
ROUNDING = ("student.learn.micro_batch", "student.sampler.rows", "student.model.remat", "mesh.")
"""Likewise, where numbers depend on it in their last bits alone, by the order of sums."""
OWN = "module:function"
"""The form of a setting that names a function of the user's own."""


def sections(section: type[Section] = Config, name: str = "") -> Iterator[tuple[str, type[Section]]]:
    """Yield a section and all in it with their dotted names, each before those in it; "" is the outermost.

    Sections of one name are those of a union, such as the kinds of students.
    """
    yield name, section
    for part, field in section.model_fields.items():
        for inner in _sections(field.annotation):
            yield from sections(inner, f"{name}.{part}".removeprefix("."))


def _sections(kind: Any) -> list[type[Section]]:
    """Return the section that a type is, or those that it is a union of."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return [kind]
    return [section for part in typing.get_args(kind) for section in _sections(part)]


def settings(section: type[Section]) -> dict[str, FieldInfo]:
    """Return the fields of a section that are no sections themselves."""
    return {name: field for name, field in section.model_fields.items() if not _sections(field.annotation)}


def keys(section: type[Section] = Config) -> dict[str, FieldInfo]:
    """Return every dotted key with its field, section by section; of a key of several students the last one's."""
    return {
        f"{name}.{key}".removeprefix("."): field
        for name, part in sections(section)
        for key, field in settings(part).items()
    }


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested sections by dotted key."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        flattened |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flattened


def decisive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return by dotted key the values of a run's configuration that must stay for the run to be resumed."""
    return {key: value for key, value in flat(values).items() if not key.startswith(FREE + ROUNDING)}


def words(kind: Any) -> list[str]:
    """Return the words that a value, or each of its parts, may be; none for a type that is no choice."""
    if kind in (RuleName, Own):
        return [*RULES] if kind == RuleName else [OWN]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [member.value for member in kind]
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return [part for part in parts if isinstance(part, str)]
    return [word for part in parts for word in words(part)]


def as_override(value: Any) -> str:
    """Return a value of a configuration as an override would give it, such as ``[3,4]`` or ``null``."""
    return json.dumps(pydantic_core.to_jsonable_python(value)).replace('"', "")


def origin(field: FieldInfo) -> str:
    """Return where the default of a setting comes from, and the paper's value if it is another."""
    for mark in field.metadata:
        if isinstance(mark, Origin):
            if field.default != mark.value:
                return f"ours: the paper has {as_override(mark.value)}"
            return f"{mark.tag}: {mark.remark}".removesuffix(": ")
    return "ours"

"""Fields of a configuration by dotted key: their words, and where values come from."""

import enum
import typing
from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from engineer import RULES
from rl.config.origins import Origin, ours
from rl.config.sections import Config
from rl.config.types import Own, RuleName, Section

FREE = ("engineer.api.", "checkpoint.", "tracking.")
"""Keys or their beginnings: the settings that a resumed run may change, because no number depends on them."""
ROUNDING = ("grpo.micro_batch", "sampler.rows", "model.remat", "model.attention", "mesh.")
"""Likewise, where numbers depend on it in their last bits alone, by the order of sums."""
OWN = "module:function"
"""The form of a setting that names a function of the user's own."""


def sections(section: type[Section] = Config, name: str = "") -> dict[str, type[Section]]:
    """Return a section and all in it by dotted name, each before those in it; "" is the name of the outermost."""
    found = {name: section}
    for part, field in section.model_fields.items():
        if inner := _section(field):
            found |= sections(inner, f"{name}.{part}".removeprefix("."))
    return found


def keys(section: type[Section] = Config) -> dict[str, FieldInfo]:
    """Return every dotted key with its field, section by section."""
    return {
        f"{name}.{key}".removeprefix("."): field
        for name, part in sections(section).items()
        for key, field in part.model_fields.items()
        if not _section(field)
    }


def _section(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested sections by dotted key."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def decisive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return by dotted key the values of a run's configuration that must stay for the run to be resumed."""
    return {key: value for key, value in flat(values).items() if not key.startswith(FREE + ROUNDING)}


def words(kind: Any) -> list[str]:
    """Return the words that a value, or each of its parts, may be; none for a type that is no choice."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [member.value for member in kind]
    if kind in (RuleName, Own):
        return [*RULES] if kind == RuleName else [OWN]
    return [word for part in typing.get_args(kind) for word in words(part)]


def origin(field: FieldInfo, value: Any) -> str:
    """Return where the value of a setting comes from, see `Origin.of`."""
    marks = [mark for mark in field.metadata if isinstance(mark, Origin)]
    return (marks or [ours()])[0].of(value, field.default)


def provenance(config: Config) -> dict[str, str]:
    """Return by dotted key where each value of a run comes from.

    A text begins with ``paper`` or ``inferred`` where the value is the paper's, or follows from what it says, whoever
    set it; with ``ours`` where it is our default; with ``changed`` where a file or the command line gave another.
    """
    values = flat(config.model_dump())
    return {key: origin(field, values[key]) for key, field in keys(type(config)).items() if key in values}

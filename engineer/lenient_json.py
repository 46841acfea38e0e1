"""Reads the configuration in a model's answer: JSON, or what the package `json_repair` makes of another text."""

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jaxlake.config import FIELDS
from jaxlake.kinds import Kind

READ = 4_000
"""Characters up to the last brace that are repaired: 28 kinds over lines have 2,100, and 4,000 braces take a second."""


def parse_lenient(text: str, kinds: Sequence[Kind]) -> tuple[dict[str, dict[str, float]] | None, tuple[str, ...]]:
    """Read the last usable configuration after the last ``</think>``, also within another object. Never raises.

    Without the package `json_repair` only the JSON from the first to the last brace is read.

    Args:
      text: the whole response.
      kinds: the designed kinds, of which one must have a number; others are read too.

    Returns:
      Ratios by kind and name, NaN where the value is no number, or None; and in words what was overlooked.
    """
    _, closed, answer = text.rpartition("</think>")
    answer = answer if closed else answer.partition("<think>")[0]
    content, slips = _read(answer)
    unusable = None
    for value in reversed([*_objects(content)]):
        rows = {str(name): entry for name, entry in value.items() if isinstance(entry, dict)}
        ratios = {name: {field: _ratio(x) for field, x in entry.items()} for name, entry in rows.items()}
        numbers = [ratios.get(str(kind), {}).get(field, math.nan) for kind in kinds for field in FIELDS]
        if any(map(math.isfinite, numbers)):
            return ratios, slips
        unusable = unusable or ratios
    return unusable, ()


def _read(answer: str) -> tuple[Any, tuple[str, ...]]:
    """Return the content of an answer, a list where it holds several objects, and what was overlooked."""
    braced = answer[answer.find("{") : answer.rfind("}") + 1]
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(braced), ()
    with contextlib.suppress(ModuleNotFoundError, ValueError, RecursionError):
        import json_repair

        return json_repair.loads(braced[-READ:]), ("not strict JSON",)
    return None, ()


def _objects(content: Any) -> Iterator[dict[Any, Any]]:
    """Yield every object of a content, each before those within it."""
    if isinstance(content, dict):
        yield content
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _objects(part)


def _ratio(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan

"""Reads a configuration that a model wrote without a grammar: JSON and its common slips; a retry does the rest.

Nothing here raises, whatever the text, and a longer text takes no more time.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from engineer.proposal import brace_pairs, fault, read_number, window
from jaxlake.config import FIELDS
from jaxlake.kinds import Kind

LONGEST = 3_000
"""Characters of an object that is tried; a configuration of eight kinds has 330, spread over lines 1,000."""
TRIES = 12
"""Objects that are tried, the last ones. A configuration that cannot be read costs one for itself and one a kind."""

_WORD = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*+"?) | '(?:[^'\\\n]|\\.)*+'?
    | (?P<comment>//[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z)) | [^\s{}\[\]:,"'\#/](?:[^{}\[\]:,"'\#/\n]*[^\s{}\[\]:,"'\#/])?""",
    re.VERBOSE | re.DOTALL,
)
_LAST_COMMA = re.compile(r",(\s*[}\]])")
_SIZE = re.compile(
    r"(?:(?:board|grid|map|size|side|n)[\W_]*)*(\d{1,2})(?:\s*[x×*]\s*\1)?\s*(?:board|grid|map)?s?", re.IGNORECASE
)
_FIELD = re.compile(rf"({'|'.join(FIELDS)})s?[ _-]?(?:ratio|share)?", re.IGNORECASE)


def parse_lenient(text: str, kinds: Sequence[Kind]) -> tuple[dict[str, dict[str, float]] | None, tuple[str, ...]]:
    """Read the last usable configuration after the last ``</think>``, also within another object. Never raises.

    What `parse` reads is read alike. Beyond it: single quotes or none, comments, a comma before the end; sizes as
    ``3x3``, ``size_3`` or ``N=3``; names as ``holes`` or ``data_ratio``; ``"0.2"`` and ``20%``. A column without
    percent signs is percent where ratios make no sense of it: every value is 0 or in [1, 100] and one is at least 2.
    The name of one of the kinds means that kind, even if it could be a size: ``4x4`` is one with four agents.

    Args:
      text: the whole response.
      kinds: those of which one must have a number; others are read too.

    Returns:
      Ratios by kind and name, NaN for what is no number, or None; and in words what was overlooked.
    """
    answer = window(text)
    names, unusable = frozenset(map(str, kinds)), None
    for start, end in [pair for pair in brace_pairs(answer) if pair[1] - pair[0] <= LONGEST][:TRIES]:
        value, notes = _read_object(answer[start:end])
        rows = {
            name: entry
            for name, entry in value.items()
            if isinstance(entry, dict) and (_SIZE.fullmatch(name) or _is_kind(name))
        }
        if not rows:
            continue
        ratios = {
            name if name in names else _rename(_SIZE, name, notes): _read_entry(entry, notes)
            for name, entry in rows.items()
        }
        _scale_percent(ratios, notes)
        if not fault(answer, ratios, kinds):
            return ratios, tuple(dict.fromkeys(notes))
        unusable = unusable or (ratios, ())
    return unusable or (None, ())


def _is_kind(name: str) -> bool:
    try:
        return bool(Kind.of(name))
    except ValueError:
        return False


def _read_object(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return an object written in JSON or nearly so, empty where it is neither, and what was overlooked."""
    for mend, notes in ((str, []), (_mend, ["not strict JSON"])):
        try:
            return json.loads(mend(text)), notes
        except (ValueError, RecursionError):
            continue
    return {}, []


def _mend(text: str) -> str:
    """Return the text with every word in double quotes, numbers too, no comment, and no comma before an end."""
    return _LAST_COMMA.sub(r"\1", _WORD.sub(_quote, text))


def _quote(word: re.Match[str]) -> str:
    if word["comment"]:
        return ""
    return word["string"] or '"' + word[0].strip("'`“”‘’").replace('"', "").replace("\\", "") + '"'


def _read_entry(entry: dict[str, Any], notes: list[str]) -> dict[str, float]:
    return {_rename(_FIELD, name, notes): _read_ratio(value, notes) for name, value in entry.items()}


def _rename(names: re.Pattern[str], name: str, notes: list[str]) -> str:
    """Return what a name stands for; unknown ones stay."""
    match = names.fullmatch(name)
    meant = match[1].lower() if match else name
    if meant != name:
        notes.append(f"{name!r} is read as {meant!r}")
    return meant


def _read_ratio(value: Any, notes: list[str]) -> float:
    if not isinstance(value, str):
        return read_number(value)
    try:
        ratio = float(value.removesuffix("%"))
    except ValueError:
        return math.nan
    if value.endswith("%"):
        notes.append("percent signs")
        return ratio / 100
    return ratio


def _scale_percent(ratios: dict[str, dict[str, float]], notes: list[str]) -> None:
    """Turn columns that can only be percent into ratios, in place."""
    for name in FIELDS:
        column = [entry[name] for entry in ratios.values() if math.isfinite(entry.get(name, math.nan))]
        if max(column, default=0) >= 2 and all(x == 0 or 1 <= x <= 100 for x in column):
            notes.append(f"{name} is in percent")
            for entry in ratios.values():
                if name in entry:
                    entry[name] /= 100

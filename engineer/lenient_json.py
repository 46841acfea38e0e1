"""Reads the configuration in a model's answer: JSON and its common slips; a retry does the rest.

Nothing here raises, whatever the text, and a longer text takes no more time.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from engineer.proposal import fault
from jaxlake.config import FIELDS
from jaxlake.kinds import Kind

READ = 16_000
"""Characters of an answer that are read, its last; a configuration of eight kinds has 330, spread over lines 1,000."""
LONGEST = 3_000
"""Characters of an object whose slips are mended; a configuration of eight kinds has 330, spread over lines 1,000."""
TRIES = 12
"""Objects that are tried, the last ones. A configuration that cannot be read costs one for itself and one a kind."""

_WORD = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*+"?) | '(?:[^'\\\n]|\\.)*+'?
    | (?P<comment>//[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z)) | [^\s{}\[\]:,"'\#/](?:[^{}\[\]:,"'\#/\n]*[^\s{}\[\]:,"'\#/])?""",
    re.VERBOSE | re.DOTALL,
)
_BRACE = re.compile("[{}]")
_BRACE_OR_STRING = re.compile(r'[{}]|"(?:[^"\\\n]|\\.)*+"?')
_LAST_COMMA = re.compile(r",(\s*[}\]])")
_SIZE = re.compile(
    r"(?:(?:board|grid|map|size|side|n)[\W_]*)*(\d{1,2})(?:\s*[x×*]\s*\1)?\s*(?:board|grid|map)?s?", re.IGNORECASE
)
_FIELD = re.compile(rf"({'|'.join(FIELDS)})s?[ _-]?(?:ratio|share)?", re.IGNORECASE)


def parse_lenient(text: str, kinds: Sequence[Kind]) -> tuple[dict[str, dict[str, float]] | None, tuple[str, ...]]:
    """Read the last usable configuration after the last ``</think>``, also within another object. Never raises.

    Slips that it understands: single quotes or none, comments, a comma before the end; sizes as ``3x3``, ``size_3`` or
    ``N=3``; names as ``holes`` or ``data_ratio``; ``"0.2"`` and ``20%``. A column without percent signs is percent
    where ratios make no sense of it: every value is 0 or in [1, 100] and one is at least 2. The name of one of the
    kinds means that kind, even if it could be a size: ``4x4`` is one with four agents.

    Args:
      text: the whole response.
      kinds: the designed kinds, of which one must have a number; others are read too.

    Returns:
      Ratios by kind and name, NaN where the value is no number, or None; and in words what was overlooked.
    """
    answer = _window(text)
    names, unusable = frozenset(map(str, kinds)), None
    for start, end in brace_pairs(answer)[:TRIES]:
        value, notes = _read_object(answer[start:end])
        rows = {
            name: entry
            for name, entry in value.items()
            if isinstance(entry, dict) and (name in names or _SIZE.fullmatch(name) or _is_kind(name))
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


def brace_pairs(text: str) -> list[tuple[int, int]]:
    """Return start and end of every pair of braces, the last end first, so that an outer pair precedes those within it.

    One pass over the text. Braces within a JSON string within braces do not count.
    """
    pairs: list[tuple[int, int]] = []
    opened: list[int] = []
    end = 0
    while match := (_BRACE_OR_STRING if opened else _BRACE).search(text, end):
        end = match.end()
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            pairs.append((opened.pop(), end))
    return pairs[::-1]


def _window(text: str) -> str:
    """Return the part of a response in which its configuration is: the last ``READ`` characters up to the last brace.

    Thoughts do not count: what follows the last ``</think>`` does or, without one, what precedes a ``<think>``.
    """
    _, closed, answer = text.rpartition("</think>")
    answer = answer if closed else answer.partition("<think>")[0]
    return answer[: answer.rfind("}") + 1][-READ:]


def _is_kind(name: str) -> bool:
    try:
        return bool(Kind.of(name))
    except ValueError:
        return False


def _read_object(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return an object written in JSON or nearly so, empty where it is neither, and what was overlooked."""
    for mend, notes, longest in ((str, [], READ), (_mend, ["not strict JSON"], LONGEST)):
        if len(text) <= longest:
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
    try:
        ratio = float(value.removesuffix("%") if isinstance(value, str) else value)
    except (OverflowError, TypeError, ValueError):
        return math.nan
    if isinstance(value, str) and value.endswith("%"):
        notes.append("percent signs")
        return ratio / 100
    return math.nan if isinstance(value, bool) else ratio


def _scale_percent(ratios: dict[str, dict[str, float]], notes: list[str]) -> None:
    """Turn columns that can only be percent into ratios, in place."""
    for name in FIELDS:
        column = [entry[name] for entry in ratios.values() if math.isfinite(entry.get(name, math.nan))]
        if max(column, default=0) >= 2 and all(x == 0 or 1 <= x <= 100 for x in column):
            notes.append(f"{name} is in percent")
            for entry in ratios.values():
                if name in entry:
                    entry[name] /= 100

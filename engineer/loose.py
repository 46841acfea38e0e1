"""Finds a configuration in text that followed no grammar and says what it overlooked; makes nothing legal.

Nothing here raises, whatever the text, and a longer text takes no more time: only the end of an answer is read
(``READ``), and only so much of it (``_WORK``, ``_STRAYS``).
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from jaxlake.config import FIELDS

READ = 16_000
"""Characters of an answer that are read, its last; a configuration of eight sizes has 330, spread over lines 1,000."""
_WORK = 4_000
"""Words and marks that are read over all tries; a configuration of eight sizes has 136, and blanks."""
_STRAYS = 8
"""Brackets left open from which a configuration is tried, the outermost first; an answer that was cut off has one."""
_DEPTH = 8
"""Brackets within brackets; a configuration has 2, in lists and in other objects a few more."""

_BRACKET = re.compile(r"[{}\[\]]")
_BRACKET_OR_STRING = re.compile(r'[{}\[\]]|"(?:[^"\\\n]|\\.)*+"?')
_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<comment>//[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z)) | (?P<mark>[{}\[\]:,])
    | (?P<string>"(?:[^"\\\n]|\\.)*+"?) | (?P<single>'(?:[^'\\\n]|\\.)*+'?)
    | (?P<bare>(?:[^{}\[\]:,"'\#/\n]|/(?![/*]))+)""",
    re.VERBOSE | re.DOTALL,
)
_SIZE = re.compile(
    r"(?:(?:board|grid|map|size|side|n)[\W_]*)*(\d{1,2})(?:\s*(?:[x×*]|by)\s*\1)?\s*(?:board|grid|map)?s?",
    re.IGNORECASE,
)
_DECIMAL = re.compile(r"\d{1,3}\.\d+%?")
_NO_LETTER = re.compile(r"[\W\d_]+")
_SIZE_NAMES = {"size", "sizes", "n", "side", "board", "boardsize", "grid", "gridsize", "map", "mapsize"}
_RATIO_NAMES = {
    "data": ("data", "dataratio", "datashare", "ratio", "share", "r"),
    "hole": ("hole", "holes", "holeratio", "h"),
    "wait": ("wait", "waits", "waitratio", "w"),
}
_FIELD = {name: field for field, names in _RATIO_NAMES.items() for name in names}

Rows = dict[str, dict[str, Any]]
"""Entries by size as they were written: what stands for a ratio may be anything that was read."""
Notes = dict[str, str]
"""What was overlooked, in words, by its kind; one example of each kind is enough."""


def parse_loosely(text: str, sizes: Sequence[int]) -> tuple[dict[str, dict[str, float]] | None, tuple[str, ...]]:
    """Reads the last configuration after the last ``</think>``, in whatever form a model gave it. Never raises.

    JSON and what comes near it: comments, single quotes or none, commas missing or too many, an end cut off. Sizes as
    ``3``, ``3x3``, ``size_3`` or ``N=3``; entries by size, entries in a list, or for each ratio a column (by size, in
    the order of the sizes, or one value for all of them), all this within other objects. The ratios by their names or
    by the paper's letters r, h and w; ``20%``, ``1/4``, ``"0.2"`` and, outside lists, ``0,2``.

    A column without percent signs is percent where ratios make no sense of it: every value is 0 or in [1, 100] and one
    is at least 2. So hole 20, 0 and 1 are 0.2, 0 and 0.01, and a 1.5 beside ratios below 1 stays 1.5, to be clipped.

    No library: json-repair 0.64 takes 1.2 s for 16,000 times ``{`` and raises, and knows neither percent nor sizes.

    Args:
      text: the whole response.
      sizes: those of which one must have a number; others are read too.

    Returns:
      Ratios by size and name, NaN for what is no number, or None; and in words what was overlooked.
    """
    window, cut = _window(final_part(text))
    closed, open_ = brackets(window)
    reader = _Reader(window)
    found = None
    for start in [*open_[:_STRAYS], *closed]:
        if reader.work <= 0:
            break
        rows, notes = _rows(reader.read(start), sizes)
        if not rows:
            continue
        ratios, more = _ratios(rows)
        said = (*cut, *reader.slips(), *(notes | more).values())
        if any(math.isfinite(value) for size in map(str, sizes) for value in ratios.get(size, {}).values()):
            return ratios, said
        found = found or (ratios, said)
    return found or (None, ())


def final_part(text: str) -> str:
    """What follows the last ``</think>``; without one, what precedes a ``<think>`` that was never closed."""
    _, closed, answer = text.rpartition("</think>")
    return answer if closed else answer.partition("<think>")[0]


def brackets(text: str) -> tuple[list[int], list[int]]:
    """Where brackets open, by one pass over the text; those within a JSON string within brackets do not count.

    Returns:
      The starts of the pairs, by their ends from the last to the first (so an outer one before those within it), and
      the starts of those that nothing closes, from the first to the last.
    """
    closed: list[int] = []
    stack: list[int] = []
    waiting = {"{": 0, "[": 0}
    position = 0
    while match := (_BRACKET_OR_STRING if stack else _BRACKET).search(text, position):
        position, mark = match.end(), match[0]
        if mark in waiting:
            waiting[mark] += 1
            stack.append(match.start())
        elif mark in "}]" and waiting[opening := {"}": "{", "]": "["}[mark]]:
            while stack:  # What is still open within the pair is a stray.
                start = stack.pop()
                waiting[text[start]] -= 1
                if text[start] == opening:
                    closed.append(start)
                    break
    return closed[::-1], stack


def _window(answer: str) -> tuple[str, tuple[str, ...]]:
    """The last ``READ`` characters in which a configuration can be, and a note if there were more."""
    end = max(answer.rfind("}"), answer.rfind("]")) + 1
    if end > max(answer.rfind("{"), answer.rfind("[")) + 1:  # Else it may have been cut off within an object.
        answer = answer[:end]  # What is said after the configuration may be long.
    return answer[-READ:], (f"only the last {READ:,} characters were read",) if len(answer) > READ else ()


class _Unreadable(Exception):
    """Not even nearly JSON, too deep, or more than there is time for."""


class _Quoted(str):
    """A word that stood in quotes."""


class _Reader:
    """Reads nearly JSON: objects as dicts, lists as lists, all else as the words that stand there.

    Attributes:
      work: tokens that may still be read, over all calls of ``read``.
    """

    def __init__(self, text: str):
        self.work = _WORK
        self._text = text
        self._slips: dict[str, None] = {}

    def read(self, start: int) -> dict | list | None:
        """The object or list that opens at ``start``; None where there is none."""
        self._slips, self._position = {}, start
        try:
            self._advance()
            return self._value(0)
        except _Unreadable:
            return None

    def slips(self) -> tuple[str, ...]:
        """How far what was read last was from JSON, in one line, if it was."""
        return (f"not strict JSON: {', '.join(self._slips)}",) if self._slips else ()

    def _advance(self) -> None:
        """To the next token, ``_kind`` and ``_word``; at the end of the text both are empty."""
        self._kind = self._word = ""
        while match := _TOKEN.match(self._text, self._position):
            self.work -= 1
            if self.work < 0:
                raise _Unreadable
            self._position = match.end()
            if match.lastgroup == "comment":
                self._slip("comments")
            elif match.lastgroup != "space":
                self._kind, self._word = match.lastgroup or "", match[0]
                return

    def _slip(self, what: str) -> None:
        self._slips[what] = None

    def _at(self, marks: str) -> bool:
        return self._kind == "mark" and self._word in marks

    def _value(self, depth: int) -> Any:
        if self._at("{["):
            if depth == _DEPTH:
                raise _Unreadable
            return self._object(depth + 1) if self._word == "{" else self._list(depth + 1)
        return self._plain()

    def _object(self, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        self._advance()
        of, whole = "", ""
        while not self._ended("}"):
            bare, name = self._kind == "bare", self._plain()
            if self._at(":"):
                if bare:
                    self._slip("names without quotes")
                self._advance()
                entries[name] = "" if self._at(",}]") or not self._kind else self._value(depth)
                of, whole = name, entries[name]
            elif isinstance(whole, str) and _DECIMAL.fullmatch(f"{whole}.{name}"):
                self._slip("decimal commas")
                entries[of], whole = f"{whole}.{name}", ""
            else:
                self._slip("names without values")
            self._separate()
        return entries

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._advance()
        while not self._ended("]"):
            items.append(self._value(depth))
            self._separate()
        return items

    def _ended(self, closing: str) -> bool:
        if not self._kind:
            self._slip("the end is missing")
            return True
        if not self._at("}]"):
            return False
        if self._word != closing:
            self._slip("brackets of two kinds")
        self._advance()
        return True

    def _separate(self) -> None:
        """Past the comma after an entry, or several; none is as good, and so is one before the end."""
        if self._at(","):
            while self._at(","):
                self._advance()
            if self._at("}]"):
                self._slip("commas before an end")
        elif self._kind and not self._at("}]"):
            self._slip("commas missing")

    def _plain(self) -> str:
        kind, word = self._kind, self._word
        if kind not in ("string", "single", "bare"):
            raise _Unreadable  # Two colons, an object where a name should stand: this is prose.
        self._advance()
        if kind == "bare":
            # The last digits of a number may be missing where the text breaks off.
            return word.strip().strip("“”‘’`") if self._kind else ""
        if kind == "single":
            self._slip("single quotes")
        return _Quoted(word.strip(word[0]))


def _rows(value: Any, sizes: Sequence[int]) -> tuple[Rows, Notes]:
    """The entries by size in what was read, empty where it is no configuration."""
    if isinstance(value, list):
        rows: Rows = {}
        notes: Notes = {"list": "entries in a list"}
        for item in value:
            more, said = _rows(item, sizes)
            rows, notes = rows | more, said | notes
        return rows, notes
    if not isinstance(value, dict):
        return {}, {}
    by_size = {name: entry for name, entry in value.items() if isinstance(entry, dict) and _size(name)}
    if by_size:
        return {_size(name): entry for name, entry in by_size.items()}, _note_sizes(by_size)
    own = next((entry for name, entry in value.items() if _letters(name) in _SIZE_NAMES and _size(entry)), None)
    if own is not None:
        return {_size(own): value}, _note_sizes([own])
    return _transposed(value, sizes)


def _transposed(value: dict[str, Any], sizes: Sequence[int]) -> tuple[Rows, Notes]:
    """The entries by size where a column stands for each ratio; one of them at least has a value for each size."""
    order = [str(size) for size in sizes]
    columns: dict[str, Any] = {}
    for name, column in value.items():
        if _letters(name) in _FIELD:
            columns[name] = column
        elif _letters(name) in _SIZE_NAMES and isinstance(column, list):
            order = [_size(size) for size in column]
    if not any(isinstance(column, dict | list) for column in columns.values()):
        return {}, {}
    rows: Rows = {}
    notes = {"columns": "a column for each ratio"}
    for name, column in columns.items():
        if isinstance(column, dict):
            cells = [(_size(size), cell) for size, cell in column.items()]
            notes |= _note_sizes(column)
        elif isinstance(column, list):
            cells = list(zip(order, column, strict=True)) if len(order) == len(column) else []
        else:
            cells = [(size, column) for size in order]
            notes[name] = f"{_FIELD[_letters(name)]} is one value for all sizes"
        for size, cell in cells:
            if size:
                rows.setdefault(size, {})[name] = cell
    return rows, notes


def _ratios(rows: Rows) -> tuple[dict[str, dict[str, float]], Notes]:
    """The numbers in the rows, percent as ratios; and what was overlooked."""
    ratios: dict[str, dict[str, float]] = {size: {} for size in rows}
    plain: dict[str, dict[str, float]] = {field: {} for field in FIELDS}
    notes: Notes = {}
    unknown = 0
    for size, row in rows.items():
        for name, word in row.items():
            field = _FIELD.get(_letters(name))
            if field is None:
                unknown += _letters(name) not in _SIZE_NAMES
                continue
            if name != field:
                notes.setdefault(field, f"{field} is called {name[:20]!r}")
            number, form = _number(word)
            ratios[size][field] = number
            if isinstance(word, _Quoted) and math.isfinite(number):
                notes["quotes"] = "numbers in quotes"
            if form:
                notes[form] = form
            elif math.isfinite(number):
                plain[field][size] = number
    for field, column in plain.items():
        if max(column.values(), default=0) >= 2 and all(x == 0 or 1 <= x <= 100 for x in column.values()):
            notes[f"{field} percent"] = f"{field} is in percent"
            for size, number in column.items():
                ratios[size][field] = number / 100
    if unknown:
        notes["unknown"] = f"{unknown} unknown name{'s' * (unknown > 1)} dropped"
    return ratios, notes


def _number(word: Any) -> tuple[float, str]:
    """What a word is as a number, NaN where it is none, and the form that it had if it was no plain one."""
    if not isinstance(word, str):
        return math.nan, ""
    try:
        if word.endswith("%"):
            return float(word[:-1]) / 100, "percent signs"
        above, line, below = word.partition("/")
        return (float(above) / float(below), "fractions") if line else (float(word), "")
    except (ValueError, ZeroDivisionError):
        return math.nan, ""


def _size(word: Any) -> str:
    """The size that a word names, empty where it names none."""
    match = _SIZE.fullmatch(word) if isinstance(word, str) and len(word) <= 24 else None
    return str(int(match[1])) if match else ""


def _note_sizes(words: Iterable[str]) -> Notes:
    other = next((word for word in words if _size(word) not in (word, "")), None)
    return {} if other is None else {"size": f"sizes are written like {other!r}"}


def _letters(name: str) -> str:
    return _NO_LETTER.sub("", name).casefold()

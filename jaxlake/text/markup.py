"""Answers in plain signs: no markup, no LaTeX, a line for each row of a table. Knows no path."""

import re
import unicodedata

# Patterns are possessive (``++``) or bounded, so that no text makes one try twice: time is linear in the text's length.

_SIGNS = str.maketrans(
    {sign: plain for plain, signs in {"↑": "⬆🔼", "↓": "⬇🔽", "←": "⬅◀", "→": "➡▶⇒➔➜⟶"}.items() for sign in signs}
    | dict.fromkeys("\ufe0f\u200b\u200d\ufeff“”", "")
    | {"×": " x", "⏸": " wait ", "•": "-", "−": "-", "‐": "-", "’": "'"}
)
_CELL, _TO = r"[(\[]\s*+\d++\s*+,\s*+\d++\s*+[)\]]", r"\W{0,15}?"
_REWRITTEN = (
    (re.compile(r"\\(?:boxed\s*+\{|\\|n(?![a-z]))|</?(?:br|p|li|tr|div|answer)\b[^<>\n]{0,60}+>", re.I), "\n"),
    (re.compile(r"\\(up|down|left|right)arrow(?![a-zA-Z])"), lambda match: "↑↓←→"["udlr".index(match[1][0])]),
    (re.compile(r"\\(?:begin|end)\{[^{}\n]{0,30}+\}(?:\{[^{}\n]{0,9}+\})?|\\(?:[a-zA-Z]++|.)|\$"), " "),
    (re.compile(r"</?[a-zA-Z][^<>\n]{0,60}+>|\*\*|__|[\"`&]"), ""),
    (re.compile(r"(?<!\w)r(?:ow)?[\s:]*+(\d++)[\s,]*+c(?:ol(?:umn)?)?[\s:]*+(\d++)(?!\w)", re.I), r"(\1,\2)"),
    (re.compile(rf"\bstart{_TO}{_CELL}{_TO}goal{_TO}{_CELL}(?={_TO}(?:path|moves|positions)\b)", re.I), ""),
    (re.compile(rf"{_CELL}\W{{0,5}}{_CELL}\s?(?=:)"), ""),
    (re.compile(r"[\[{][^\[\]{}:]*+[\]}]"), lambda match: match[0].replace("\n", " ")),
)
_TABLE = re.compile(r"(?:^[ \t]*+\|[^\n]*+(?:\n|\Z))++", re.M)
_RULE = re.compile(r"[\s:=+-]*+")
_TIME = re.compile(r"\W*+(?:t|time|time ?step|step|tick|turn)?s?[\s_=]*+(\d{0,4})\W*+", re.I)
_AGENT = re.compile(r"\W*+(?:agent|robot)?[\s_#]*+(\d{1,6}|[a-e])\W*+", re.I)
_PATH = re.compile(r"\W*+(?:path|plan|route|moves?|actions?|sequence|positions?|cells)\b", re.I)


def plain(text: str) -> str:
    """Return the text in plain signs, what is in the innermost brackets on one line."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
        text = re.sub(r"(?![0-9])\d", lambda match: str(int(match[0])), text)
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    return _TABLE.sub(_lines, text)


def _lines(table: re.Match[str]) -> str:
    """Return a line for each row of a table: the path of an agent, or a time and where each agent is."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table[0].splitlines()]
    return "".join(f"{_line(rows[0], cells)}\n" for cells in rows[1:] if not all(map(_RULE.fullmatch, cells)))


def _line(headings: list[str], cells: list[str]) -> str:
    columns = [pair for pair in list(zip(headings, cells, strict=False))[1:] if not _RULE.fullmatch(pair[1])]
    if _TIME.fullmatch(headings[0]) and "gent" not in cells[0]:
        time = _TIME.fullmatch(cells[0])
        positions = [(_AGENT.fullmatch(heading), cell) for heading, cell in columns]
        return f"t={time[1] if time else 0}: " + " , ".join(f"agent {at[1]}: {cell}" for at, cell in positions if at)
    agent = _AGENT.fullmatch(cells[0])
    path = [cell for heading, cell in columns if _PATH.match(heading) or _TIME.fullmatch(heading)]
    return f"agent {agent[1]}: " + " , ".join(path) if agent else ""

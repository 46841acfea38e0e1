"""Answers without their markup: plain signs for typographic ones, tables as lines of agents. Knows no path."""

import html
import re

# Patterns are possessive (``++``) or bounded, as in ``grammar``.

_ARROWS = {"↑": "⬆🔼⇧⇑👆", "↓": "⬇🔽⇩⇓👇", "←": "⬅◀⇦⇐👈", "→": "➡▶⇨⇒👉➔➜➝➞⟶⟹↦", " wait ": "⏸⏹✋🛑"}
_SIGNS = {
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # fullwidth, as Qwen writes them
    **{sign: plain for plain, signs in _ARROWS.items() for sign in signs},
    **{chr(zero + digit): str(digit) for zero in (0x660, 0x6F0, 0x966) for digit in range(10)},
    **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000", " "),
    **dict.fromkeys("\ufe0f\u200b\u200d\ufeff", ""),
    **dict.fromkeys("\u2212\u2010\u2011", "-"),
    **{"、": ",", "。": ".", "「": '"', "」": '"', "“": '"', "”": '"', "’": "'", "×": "x", "⟨": "(", "⟩": ")"},
    **{"【": "[", "】": "]", "〈": "(", "〉": ")", "・": " ", "•": "-", "…": "..."},
}
_PLAIN = str.maketrans(_SIGNS)

_LATEX = (
    (re.compile(r"\\boxed\s*+\{"), "\nFinal answer: "),
    (re.compile(r"\\(?:x?rightarrow|Rightarrow|longrightarrow|to|mapsto|implies)(?![a-zA-Z])"), " → "),
    (re.compile(r"\\(left|up|down)arrow(?![a-zA-Z])"), lambda match: f" {'←↑↓'['lud'.index(match[1][0])]} "),
    (re.compile(r"\\times(?![a-zA-Z])"), "x"),
    (re.compile(r"\\\\"), "\n"),
    (re.compile(r"\\(?:begin|end)\{[^{}\n]{0,30}+\}|\\[a-zA-Z]++|\\[^a-zA-Z\n]|\$"), " "),
)
_TAG = re.compile(r"<(/?)(answer|br|p|li|tr|div|[a-zA-Z][a-zA-Z0-9]{0,15}+)(?![a-zA-Z0-9])[^<>\n]{0,60}+>")
_SPLIT = re.compile(r"[\[{][^\[\]{}]*+[\]}]")
_RULE = re.compile(r"[\s:=+-]*+")
_COLUMN_AGENT = re.compile(
    r"[^\w]*+(?:agent|robot|智能体|代理)?[\s_#]*+(\d{1,6}|[a-e])[^\w]*+(?:path|moves?|position|action)?s?[^\w]*+", re.I
)
_COLUMN_TIME = re.compile(r"[^\w]*+(?:t|time|step|time ?step|tick|turn)?[\s_=]*+\d{1,4}[^\w]*+", re.IGNORECASE)
_TIME_HEAD = re.compile(r"[^\w]*+(?:t|time|step|time ?step|tick|turn|时间|步骤?)s?[^\w]*+", re.IGNORECASE)
_PATH_HEAD = re.compile(r"[^\w]*+(?:path|plan|route|moves?|actions?|sequence|positions?|cells|路径)\b.*", re.IGNORECASE)


def plain(text: str) -> str:
    """Return the text with plain signs: no markup, no LaTeX, ASCII digits and punctuation, one sign per arrow."""
    if not text.isascii():
        text = text.translate(_PLAIN)
    if "&" in text:
        text = html.unescape(text)
    if "\\" in text or "$" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
        text = text.replace("&", "")
    if "<" in text:
        text = _TAG.sub(_without_tag, text)
    return text.replace("**", "").replace("`", "").replace("__", "")


def _without_tag(match: re.Match[str]) -> str:
    if match[2].lower() == "answer":
        return "\n" if match[1] else "\nFinal answer: "
    return "\n" if match[2].lower() in ("br", "p", "li", "tr", "div") else ""


def rows_as_lines(text: str) -> str:
    """Return the text with each table as lines of agents, and what lies in the innermost brackets on one line."""
    if "\n" in text and ("[" in text or "{" in text):
        text = _SPLIT.sub(lambda match: match[0].replace("\n", " "), text)
    if "|" not in text:
        return text
    lines: list[str] = []
    table: list[list[str]] = []
    for line in [*text.split("\n"), ""]:
        if line.lstrip().startswith("|"):
            table.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        lines += _lines_of(table)
        table = []
        lines.append(line)
    return "\n".join(lines)


def _lines_of(table: list[list[str]]) -> list[str]:
    rows = [row for row in table if not all(map(_RULE.fullmatch, row))]
    if len(rows) < 2:
        return [" | ".join(row) for row in rows]
    head, *rest = rows
    named = any("gent" in row[0] for row in rest)
    if _TIME_HEAD.fullmatch(head[0]) and not named:
        if re.sub(r"\D", "", rest[0][0]) not in ("0", "1", ""):
            return []  # Of some steps only.
        columns = [
            (_COLUMN_AGENT.fullmatch(cell), [row[at] for row in rest if at < len(row)]) for at, cell in enumerate(head)
        ]
        found = [(match[1], cells) for match, cells in columns[1:] if match]
    else:
        wanted = [
            at for at, cell in enumerate(head) if at and (_COLUMN_TIME.fullmatch(cell) or _PATH_HEAD.fullmatch(cell))
        ]
        each = [(_COLUMN_AGENT.fullmatch(row[0]), [row[at] for at in wanted if at < len(row)]) for row in rest]
        found = [(match[1], cells) for match, cells in each if match]
    return [
        f"Agent {agent}: " + " , ".join(cell for cell in cells if not _RULE.fullmatch(cell)) for agent, cells in found
    ]

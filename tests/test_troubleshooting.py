"""What docs/troubleshooting.md quotes is what the code says: each line is a message of it, with its gaps filled."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/troubleshooting.md"
FOREIGN = (
    "externally-managed",
    "requires a different Python",
    "No module named",
    "[Compiling module",
    "Unsupported element type",
)
"""Of pip, Python and XLA."""


def messages_of_the_code() -> list[tuple[str, ...]]:
    """Every string in the source as its literal parts, between which values stand."""
    found = []
    for room in ("jaxlake", "engineer", "rl"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    text = "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                    found.append(tuple(text.rstrip("\n").split("\0")))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append((node.value,))
    return found


def share_said(quoted: str, messages: list[tuple[str, ...]]) -> float:
    """How much of a quotation, its gaps left out, is words of messages that are in it whole, whatever their values."""
    said = [False] * len(quoted)
    for parts in messages:
        if any(" " in part for part in parts) and sum(map(len, parts)) >= 10 and all(part in quoted for part in parts):
            match = re.search("(.*)".join(map(re.escape, parts)), quoted)
            for at in range(*match.span()) if match else ():
                said[at] = said[at] or not any(match.start(gap) <= at < match.end(gap) for gap in range(1, len(parts)))
    gaps = quoted.count("...") * 3
    return sum(said) / (len(quoted) - gaps)


def test_every_message_on_the_page_is_one_of_the_code():
    rows = re.findall(r"^\| `([^`]+)`", PAGE.read_text(), re.MULTILINE)
    ours = [row for row in rows if not any(words in row for words in FOREIGN)]
    messages = messages_of_the_code()
    assert len(ours) > 40
    assert [line for line in ours if share_said(line, messages) < 0.4] == []
    assert share_said("error: grpo.prompts = 3: must be an even number", messages) < 0.4  # it can fail

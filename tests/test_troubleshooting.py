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
    "LLVM ERROR",
    "wandb: ERROR",
    "RuntimeWarning: ",
    "RuntimeError: ",
    "Pool(...)",
)
"""Messages of pip, Python, W&B and XLA, and those that the page cuts short."""


def messages_of_the_code() -> list[tuple[str, ...]]:
    """Return every string in the source as its literal parts, between which values stand."""
    found = []
    for room in ("jaxlake", "engineer", "rl"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    text = "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                    found.append(tuple(text.rstrip("\n").split("\0")))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append((node.value.rstrip("\n"),))
    return found


def says(parts: tuple[str, ...], line: str) -> bool:
    """Whether a line has a message in it, whole and in order, whatever its values."""
    at = 0
    for part in parts:
        at = line.find(part, at) + len(part)
        if at < len(part):
            return False
    return True


def words(parts: tuple[str, ...]) -> list[str]:
    """Return a message's words beyond the form that all have: ``X = v must be ...``."""
    plain = [word.strip(".,:;()'`") for word in " ".join(parts).split()]
    return [word for word in plain if word.isalpha() and word not in ("must", "be", "error")]


def test_every_message_on_the_page_is_one_of_the_code():
    rows = re.findall(r"^\| `([^`]+)`", PAGE.read_text(), re.MULTILINE)
    ours = [row for row in rows if not any(words in row for words in FOREIGN)]
    messages = [parts for parts in messages_of_the_code() if len(words(parts)) >= 2]
    assert len(ours) > 40
    unsaid = [line for line in ours if not any(says(parts, line) for parts in messages)]
    assert unsaid == []
    assert not any(
        says(parts, "error: student.learn.prompts = 3: must be an even number") for parts in messages
    )  # it can fail

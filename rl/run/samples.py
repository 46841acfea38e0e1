"""Sample answers of a validation for human eyes: prompt, answer and verdict, and the board with its paths."""

import re
from collections.abc import Sequence
from typing import Any

from engineer.context import FAILURES as NAMES
from jaxlake import text
from jaxlake.board_text import to_text
from jaxlake.files import from_record
from jaxlake.types import MAX_STEPS, Instance, Plan

MARKS = "»", "«"
"""Signs around what loses the last valid plan of an answer."""
SHOWN = 2000
"""Characters of an answer that are shown: all of most plans, the begin and the end of a long thought."""


def samples_markdown(samples: Sequence[dict[str, Any]]) -> str:
    """Write the samples of a validation's ``samples.json`` as a page of Markdown: a table, then one after the other.

    A sample has the keys ``instance`` (``size``; ``holes``, ``starts`` and ``goals`` as [row, column]), ``prompt``,
    ``answer``, ``lost_at`` (see `lost_parts`), ``checks`` (name: passed), ``optimal``, ``cost`` and ``optimum``.
    """
    rows = (
        f"| {i} | {_board_name(sample)} | {verdict(sample)} | {cost(sample)} | {sample['optimum']} |"
        for i, sample in enumerate(samples)
    )
    blocks = [
        "# Sample answers of a validation",
        f"Greedy answers; {MARKS[0]}this{MARKS[1]} loses the last valid plan. On the boards `#` is a hole, "
        "`a` and `A` are start and goal of agent 0, `b` and `B` of agent 1; on the right an arrow shows how an agent "
        "leaves a cell, `+` where several do, `?` a jump.",
        "\n".join(("| sample | board | verdict | cost | optimum |", "| ---: | ---: | --- | ---: | ---: |", *rows)),
    ]
    for i, sample in enumerate(samples):
        answer = marked(sample)
        if len(answer) > SHOWN:
            left_out = len(answer) - SHOWN
            answer = f"{answer[: SHOWN // 2]}\n[... {left_out} characters ...]\n{answer[-SHOWN // 2 :]}"
        blocks += [
            f"## Sample {i}: {_board_name(sample)}, {verdict(sample)}",
            fenced(_drawn(sample)),
            f"Asked:\n\n{fenced(sample['prompt'])}",
            f"Answered:\n\n{fenced(answer)}",
        ]
    return "\n\n".join(blocks) + "\n"


def marked(sample: dict[str, Any]) -> str:
    """Return the answer with `MARKS` around the cell or sign that loses the last valid plan, where one does."""
    parts = lost_parts(sample)
    return sample["answer"] if parts is None else MARKS[0].join(parts[:2]) + MARKS[1] + parts[2]


def lost_parts(sample: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return the answer before the cell or sign that loses the last valid plan, this, and the rest.

    None for a sample whose answer has not failed, or was written before there were marks. The key ``lost_at`` is the
    character; behind the last one it says that the answer ends too early.
    """
    answer, place = sample["answer"], sample.get("lost_at")
    if place is None or all(sample["checks"].values()):
        return None
    begin = answer.rfind("(", 0, place) if answer[place : place + 1] == ")" else place
    sign = answer[begin : place + 1]
    shown, rest = ("↵", answer[place:]) if sign == "\n" else (sign, answer[place + 1 :])
    return answer[:begin], shown, rest


def verdict(sample: dict[str, Any]) -> str:
    """Say in words: optimal, valid, or which check fails first and which others do."""
    failed = [NAMES[name] for name, passed in sample["checks"].items() if not passed]
    if failed:
        return f"fails: {failed[0]}" + (f" (then {', '.join(failed[1:])})" if failed[1:] else "")
    return "optimal" if sample["optimal"] else "valid"


def cost(sample: dict[str, Any]) -> str:
    """Return the cost of a valid plan, else a dash."""
    return str(sample["cost"]) if all(sample["checks"].values()) else "-"


def instance_of(sample: dict[str, Any]) -> Instance:
    """Return the board as numpy arrays without padding."""
    board = sample["instance"]
    return from_record(board | {"agents": len(board["starts"])})


def plan_of(sample: dict[str, Any]) -> Plan | None:
    """Return the paths that the answer names; None where it cannot be read."""
    instance = instance_of(sample)
    plan = text.parse(sample["answer"], max_size=instance.max_size, max_agents=instance.max_agents, max_steps=MAX_STEPS)
    return plan if sample["checks"]["parsable"] else None


def fenced(content: str) -> str:
    """Make a code block whose fence no run of backticks in the content can close."""
    longest = max((len(run) for run in re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{content}\n{fence}"


def _board_name(sample: dict[str, Any]) -> str:
    return f"{sample['instance']['size']}x{sample['instance']['size']}"


def _drawn(sample: dict[str, Any]) -> str:
    """Draw the board, and to its right the board with the answered paths."""
    instance, plan = instance_of(sample), plan_of(sample)
    asked = to_text(instance)
    if plan is None:
        return asked
    lines = zip(asked.split("\n"), to_text(instance, plan).split("\n"), strict=True)
    return "\n".join(f"{left}   {right}" for left, right in lines)

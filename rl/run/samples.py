"""Sample answers of a validation, the rows of its ``samples.json``: verdict, board and plan of an answer."""

from typing import Any

from engineer.context import FAILURES as NAMES
from jaxlake import text
from jaxlake.files import from_record
from jaxlake.types import MAX_STEPS, Instance, Plan


def lost_parts(sample: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return the answer before the cell or sign that loses the last valid plan, this, and the rest.

    None for a sample whose answer has not failed. The key ``lost_at`` is the character; behind the last one it says
    that the answer ends too early.
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

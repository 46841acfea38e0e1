"""The form of a proposed configuration: grammar, text, reading, and the record of what became of it."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlake.config import MAX_HOLE, LakeConfig

STEP = 0.005
"""Resolution of every ratio. A bare JSON number need not end (random logits ran to 2,000 digits); these do."""
LIMITS = {"data": 1.0, "hole": MAX_HOLE, "wait": 1.0}
"""The largest value of each ratio, in the order in which an answer names them."""


def grammar(sizes: Sequence[int]) -> str:
    """Lark grammar (llguidance dialect) of the answer's JSON object: sizes ascending, fixed key order, no white space.

    Thinking is not part of it: the sampler lets the model think first and masks from the first byte of the object on.
    """
    entry = ' "," '.join(rf'"\"{name}\":" {name.upper()}' for name in LIMITS)
    entries = ' "," '.join(rf'"\"{size}\":" entry' for size in sorted(sizes))
    numbers = "\n".join(f"{name.upper()}: /{_multiples(limit)}/" for name, limit in LIMITS.items())
    return f'start: "{{" {entries} "}}"\nentry: "{{" {entry} "}}"\n{numbers}\n'


def to_answer(config: LakeConfig) -> str:
    """The text an engineer would have written for this configuration; ratios rounded to multiples of 0.005."""
    entries = (
        f'"{size}":{{' + ",".join(f'"{name}":{number(getattr(config, name)[i])}' for name in LIMITS) + "}"
        for i, size in enumerate(config.sizes)
    )
    return "{" + ",".join(entries) + "}"


def number(ratio: float) -> str:
    """Nearest multiple of 0.005 in its shortest decimal form: ``0``, ``0.3``, ``0.25``, ``0.125``, ``1``."""
    return f"{round(ratio / STEP) * STEP:.3f}".rstrip("0").rstrip(".")


def parse(text: str) -> dict[str, dict[str, float]] | None:
    """Reads the last JSON object of objects after the last ``</think>``; None where there is none.

    Values that are no numbers become NaN, so that the projection repairs and reports them. Never raises.
    """
    before, closed, answer = text.rpartition("</think>")
    answer = answer if closed else answer.partition("<think>")[0]
    found, position = None, answer.find("{")
    while position >= 0:
        try:
            value, end = _DECODER.raw_decode(answer, position)
        except (ValueError, RecursionError):
            value, end = None, position + 1
        if isinstance(value, dict) and value and all(isinstance(entry, dict) for entry in value.values()):
            found = {size: {name: _float(x) for name, x in entry.items()} for size, entry in value.items()}
        position = answer.find("{", end)
    return found


def fault(answer: str, parsed: Mapping[str, Mapping[str, float]] | None, sizes: Sequence[int]) -> str | None:
    """Why an answer is no configuration for these sizes, in one line; None where it is one.

    One finite ratio of one of the sizes is enough: the projection fills in the rest and reports it. With none at all
    the projection would give the previous configuration and call it repaired.

    Args:
      answer: the text.
      parsed: what `parse` read in it.
    """
    if not answer.strip():
        return "the answer is empty"
    if parsed is None:
        return f"no JSON object of sizes in the answer, which ends in {answer[-40:]!r}"
    named = [parsed[size] for size in map(str, sizes) if size in parsed]
    if not named:
        return f"none of the sizes {', '.join(map(str, sizes))} in the answer, which ends in {answer[-40:]!r}"
    if not any(math.isfinite(entry.get(name, math.nan)) for entry in named for name in LIMITS):
        return f"no number for data, hole or wait in the answer, which ends in {answer[-40:]!r}"
    return None


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What an engineer proposed and what became of it.

    Attributes:
      engineer: its name.
      raw: its whole answer, verbatim, the last where it was asked more than once; empty where it wrote nothing.
      thinking: the part before the answer. For the record only: it never enters a later context (variant V6).
      parsed: the object read from the answer, None where none could be read.
      projected: the legal configuration that follows.
      repairs: what the projection changed, in words.
      fallback: no answer held a configuration, so the previous round's stands.
      attempts: how often it was asked.
      errors: why an answer could not be used, a line for each such attempt in turn.
    """

    engineer: str
    raw: str
    thinking: str
    parsed: dict[str, dict[str, float]] | None
    projected: LakeConfig
    repairs: tuple[str, ...]
    fallback: bool
    attempts: int
    errors: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; a number that JSON cannot hold becomes null."""
        return {
            "engineer": self.engineer,
            "raw": self.raw,
            "thinking": self.thinking,
            "parsed": None if self.parsed is None else _finite(self.parsed),
            "projected": self.projected.to_dict(),
            "repairs": list(self.repairs),
            "fallback": self.fallback,
            "attempts": self.attempts,
            "errors": list(self.errors),
        }


_DECODER = json.JSONDecoder()


def _multiples(limit: float) -> str:
    return "|".join(number(i * STEP).replace(".", r"\.") for i in range(round(limit / STEP) + 1))


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _finite(parsed: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    return {
        size: {name: x if math.isfinite(x) else None for name, x in entry.items()} for size, entry in parsed.items()
    }

"""The form of a proposed configuration: grammar, text, faults, and the record of what became of it."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Kind, row_name

STEP = 0.005
"""Resolution of every ratio. A bare JSON number need not end (random logits ran to 2,000 digits); these do."""
LIMITS = {"data": 1.0, "hole": MAX_HOLE, "wait": 1.0}
"""The largest value of each ratio, in the order in which an answer names them."""


def grammar(kinds: Sequence[Kind]) -> str:
    """Return the answer's Lark grammar (llguidance dialect): kinds ascending, fixed key order, no white space.

    Any kind may be left out, but not all. Thinking is not part of it: the sampler lets the model think first and masks
    from the first byte of the object on.
    """
    entry = ' "," '.join(rf'"\"{name}\":" {name.upper()}' for name in LIMITS)
    order = sorted(kinds)
    last = len(order) - 1
    # One rule a kind: from it on, the rest of the object is this kind's entry with or without others, or others alone.
    rest = (
        rf'from{i}: "\"{kind}\":" entry' + (f' ("," from{i + 1})? | from{i + 1}' if i < last else "")
        for i, kind in enumerate(order)
    )
    numbers = "\n".join(
        f"{name.upper()}: /{'|'.join(map(re.escape, _multiples(limit)))}/" for name, limit in LIMITS.items()
    )
    return 'start: "{" from0 "}"\n' + "\n".join(rest) + f'\nentry: "{{" {entry} "}}"\n{numbers}\n'


def schema(kinds: Sequence[Kind]) -> dict[str, Any]:
    """Return a JSON schema of the answer, for servers that hold a model to one and not to a grammar.

    It names every kind, where the grammar lets some be left out: servers that are strict take no optional properties.
    """
    names = {limit: f"at_most_{limit:.0%}".replace("%", "_percent") for limit in LIMITS.values()}
    ratios = {name: {"$ref": f"#/$defs/{names[limit]}"} for name, limit in LIMITS.items()}
    return {
        **_closed({str(kind): _closed(ratios) for kind in sorted(kinds)}),
        "$defs": {name: {"enum": [*map(json.loads, _multiples(limit))]} for limit, name in names.items()},
    }


def to_answer(config: LakeConfig) -> str:
    """Return the answer that asks for this configuration; ratios are rounded to multiples of 0.005.

    Kinds without data are left out: a configuration of 28 kinds of which four have some needs a seventh of the tokens.
    """
    entries = (
        f'"{kind}":{{' + ",".join(f'"{name}":{number(getattr(config, name)[i])}' for name in LIMITS) + "}"
        for i, kind in enumerate(config.kinds)
        if config.data[i]
    )
    return "{" + ",".join(entries) + "}"


def number(ratio: float) -> str:
    """Return the nearest multiple of 0.005 in its shortest decimal form: ``0``, ``0.3``, ``0.25``, ``0.125``, ``1``."""
    return f"{round(ratio / STEP) * STEP:.3f}".rstrip("0").rstrip(".")


def fault(answer: str, parsed: Mapping[str, Mapping[str, float]] | None, kinds: Sequence[Kind]) -> str | None:
    """Return why an answer is no configuration for these kinds, in one line; None where it is one.

    One finite ratio of one of the kinds is enough: the projection fills in the rest and reports it. With none at all
    the projection would give the previous configuration and call it repaired.
    """
    rows, names = f"{row_name(kinds)}s", [str(kind) for kind in kinds]
    entries = [parsed[name] for name in names if name in parsed] if parsed is not None else []
    if any(math.isfinite(entry.get(name, math.nan)) for entry in entries for name in LIMITS):
        return None
    if not answer.strip():
        return "the answer is empty"
    if parsed is None:
        lacking = f"no JSON object of {rows}"
    else:
        lacking = "no number for data, hole or wait" if entries else f"none of the {rows} {', '.join(names)}"
    return f"{lacking} in the answer, which ends in {answer[-40:]!r}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """Proposal of an engineer, and what became of it; one that computes and writes no words needs two fields.

    Attributes:
      raw: the engineer's whole answer, verbatim: its last one; empty where it wrote nothing.
      thinking: the part before the answer. It enters later contexts through module S alone.
      parsed: the object read from the answer, None where none could be read.
      projected: the legal configuration that follows.
      repairs: the slips in the answer and the changes by the projection, in words.
      fallback: whether no answer contained a configuration, so that the previous round's stays in force.
      attempts: number of times that the engineer was asked.
      errors: why an answer could not be used, a line for each such attempt in turn.
      candidates: the legal configurations that there were to choose from, in the order in which they were proposed.
      chosen: index of the candidate that was taken, which is ``projected``.
      scores: how good the student was after a branch of each candidate, higher for better; empty where none was tried.
    """

    engineer: str
    raw: str = ""
    thinking: str = ""
    parsed: dict[str, dict[str, float]] | None = None
    projected: LakeConfig
    repairs: tuple[str, ...] = ()
    fallback: bool = False
    attempts: int = 1
    errors: tuple[str, ...] = ()
    candidates: tuple[LakeConfig, ...] = ()
    chosen: int = 0
    scores: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a number that JSON cannot hold becomes null."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        values["projected"] = self.projected.to_dict()
        if self.parsed is not None:
            finite = ({k: x if math.isfinite(x) else None for k, x in row.items()} for row in self.parsed.values())
            values["parsed"] = dict(zip(self.parsed, finite, strict=True))
        return values | {"candidates": [candidate.to_dict() for candidate in self.candidates]}


def _multiples(limit: float) -> list[str]:
    return [number(i * STEP) for i in range(round(limit / STEP) + 1)]


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object that has these properties and no others."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}

"""Sentences of an engineer about a kind of boards."""

import re

from jaxlake.kinds import Kind

_EXCERPT = 160
"""Characters of an engineer's words that are shown beside a change."""


def excerpt(thinking: str, kind: Kind) -> str:
    """Return the first sentence of an engineer's thinking that names the kind, else its leading words, else "-"."""
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", thinking) if part.strip()]
    if not sentences:
        return "-"
    name, form = kind.label, rf"\b{kind}\b"
    if isinstance(name, int):  # the last as the examples of the warm start quote a row: "Weakest:6 19;5 23;"
        form = rf"\bsizes?\b[^.]*\b{name}\b|\b{name} ?x ?{name}\b|(?:^|[:;]) *{name} \d"
    named = [part for part in sentences if re.search(form, part, re.I)]
    text = named[0] if named else f"({kind.words.split()[0]} not named) {sentences[0]}"
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 3]}..."

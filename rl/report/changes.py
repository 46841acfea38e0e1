"""The changes of each round to the environment, beside the evidence that the engineer had and what it said."""

import itertools
import re

from engineer.context import FAILURES
from engineer.evidence import KindEvidence
from jaxlake.kinds import Kind
from rl.report.html import DOUBT
from rl.report.run import RATIOS, Round, Run, Stage
from rl.statistics import Share
from rl.table import Table

CHANGED = 0.02
"""A ratio has changed if it is more than this away from both what the round before asked for and what it realised."""
NOTABLE = 0.1
"""Share of answers that first fail a check, from which the check asks for a change."""
CHECK_OF = {"hole": "hole_free", "wait": "conflict_free"}
DEFINITION = (
    f"A ratio counts as changed where it is more than {CHANGED} away from both what the round before asked for and "
    f"what it realised. {DOUBT} marks a change that the validation before it does not support. Supported are: another "
    "share of data for a size whose valid share has a 95 % interval (Wilson) that excludes the valid share of all "
    "sizes; fewer holes where the interval of the answers that first fail at a hole lies above "
    f"{100 * NOTABLE:.0f} %, more where it lies below; more waits where the interval of those that first fail by a "
    f"conflict lies above {100 * NOTABLE:.0f} %, fewer where it lies below. The rule is ours: it asks whether the "
    "evidence tells the size apart at all, not whether the change was wise."
)
_EXCERPT = 160
"""Characters of an engineer's words that are shown beside a change."""


def changes(run: Run, current: Round) -> dict[tuple[Kind, str], bool]:
    """Return by kind and ratio what a round changed, and whether the validation before it supports that.

    Nothing for the first, and for one before which no validation is on disk; see ``DEFINITION``.
    """
    previous, stage = _before(run, current)
    changed = {}
    for row, ratio in itertools.product(stage.evidence.by_kind if previous and stage else (), RATIOS):
        before, after = previous.requested(row.kind, ratio), current.requested(row.kind, ratio)
        if before is None or after is None:
            continue
        realised = previous.realised(row.kind, ratio)
        if min(abs(after - value) for value in (before, realised) if value is not None) > CHANGED + 1e-9:
            changed[row.kind, ratio] = _supported(ratio, after - before, row, stage.valid_share)
    return changed


def change_table(run: Run, current: Round) -> Table | None:
    """Show by kind the ratios of the round before and of this one, the evidence between them, the engineer's words."""
    previous, stage = _before(run, current)
    if previous is None or stage is None:
        return None
    changed = changes(run, current)

    def step(kind: Kind, ratio: str) -> str:
        before, after = (past.requested(kind, ratio) for past in (previous, current))
        if before is None or after is None:
            return "-"
        if (kind, ratio) not in changed:
            return _short(after)
        return f"{_short(before)} → {_short(after)}" + ("" if changed[kind, ratio] else f" {DOUBT}")

    rows = []
    for row in stage.evidence.by_kind:
        counts = (row.valid, row.first_failures["hole_free"], row.first_failures["conflict_free"])
        learnable = f"{100 * row.learnable / row.groups:.0f}" if row.groups else "-"
        rates = (Share.of(count, row.n).text() for count in counts)
        said = excerpt(current.proposal.get("thinking", ""), row.kind)
        rows.append((str(row.kind), *(step(row.kind, name) for name in RATIOS), str(row.n), *rates, learnable, said))
    title = f"{previous.name.capitalize()} to {current.name}: changes, the evidence before them, the reason"
    percentages = ("valid %", "hole %", f"{FAILURES['conflict_free']} %", "learnable %")
    return Table(title, (run.row_name, *RATIOS, "n", *percentages, "what the engineer said"), rows)


def _before(run: Run, current: Round) -> tuple[Round | None, Stage | None]:
    """Return the round before this one and its validation, as far as there are any."""
    previous = next((past for past in run.rounds if past.index == current.index - 1), None)
    return previous, run.stage(previous.name) if previous else None


def excerpt(thinking: str, kind: Kind) -> str:
    """Return the first sentence of an engineer's thinking that names the kind, else its leading words, else "-"."""
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", thinking) if part.strip()]
    if not sentences:
        return "-"
    name, form = kind.label, rf"\b{kind}\b"
    if isinstance(name, int):
        form = rf"\bsizes?\b[^.]*\b{name}\b|\b{name} ?x ?{name}\b"
    named = [part for part in sentences if re.search(form, part, re.I)]
    text = named[0] if named else f"({kind.words.split()[0]} not named) {sentences[0]}"
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 3]}..."


def _supported(ratio: str, step: float, row: KindEvidence, of_all: float) -> bool:
    if ratio == "data":
        valid = Share.of(row.valid, row.n)
        return not valid.low <= of_all <= valid.high
    failing = Share.of(row.first_failures[CHECK_OF[ratio]], row.n)
    eases = ratio == "hole"  # More conflicts ask for more waits to learn from, more falls into holes for fewer holes.
    return failing.low > NOTABLE if (step < 0) == eases else failing.high < NOTABLE


def _short(ratio: float) -> str:
    return f"{ratio:.3f}".rstrip("0").rstrip(".")

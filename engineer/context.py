"""The user message from which the next configuration is designed; variant V6 of the paper, its wording ours.

One template for every model. A model of half a million parameters pays for each token and Qwen3-4B must understand it
too: plain, terse, tabular, and the same words in every round.
"""

import dataclasses
import enum
from collections.abc import Callable, Sequence

from engineer.evidence import CHECKS, Evidence, SizeEvidence, wilson
from engineer.proposal import number
from jaxlake.config import MAX_HOLE, LakeConfig

FAILURES = dict(zip(CHECKS, ("parse", "agents", "start", "bounds", "hole", "move", "conflict", "goal"), strict=True))
"""What failing each check is called in the tables and in an engineer's thinking."""


class Module(enum.Enum):
    """Parts of a context (paper, section on context design)."""

    F = "failure breakdown"
    G = "guideline"
    H = "history of configurations and what followed, without round 0's random one"
    T = "training bookkeeping"


V6 = (Module.F, Module.H, Module.T, Module.G)
"""The paper's best variant; the modules in the order in which they are written."""


@dataclasses.dataclass(frozen=True)
class Training:
    """Where the run stands: the round being designed (from 0), how many there are, and epochs in each."""

    round: int
    rounds: int
    epochs_per_round: int


@dataclasses.dataclass(frozen=True)
class PastRound:
    """A finished round: its configuration as realised, and the validation after it."""

    round: int
    config: LakeConfig
    evidence: Evidence


def build(evidence: Evidence, history: Sequence[PastRound], training: Training) -> str:
    """Writes the context of variant V6.

    Args:
      evidence: the latest validation.
      history: finished rounds in ascending order. Round 0's configuration is not written; its validation appears only
        as the state before round 1. Nothing an engineer said enters.
      training: bookkeeping only; details of the algorithm made the paper's engineer worse.
    """
    sections = (_SECTIONS[module](evidence, history, training) for module in V6)
    return "\n\n".join((_TASK, *(section for section in sections if section), _answer_format(evidence)))


def _failure_breakdown(evidence: Evidence, history: Sequence[PastRound], training: Training) -> str:
    rows = [_failure_row(str(row.size), row) for row in evidence.by_size]
    return "\n".join((_FAILURES, *rows, _failure_row("all", evidence)))


def _guideline(evidence: Evidence, history: Sequence[PastRound], training: Training) -> str:
    return _GUIDELINE


def _history(evidence: Evidence, history: Sequence[PastRound], training: Training) -> str:
    states = {past.round: {row.size: row for row in past.evidence.by_size} for past in history}
    rows = [
        f"{past.round} {size} {number(past.config.data[i])} {number(past.config.hole[i])} {number(past.config.wait[i])}"
        f" | {_valid(states.get(past.round - 1, {}).get(size))} {_valid(states[past.round].get(size))}"
        f" | {main_failure(states[past.round].get(size))}"
        for past in history
        if past.round > 0
        for i, size in enumerate(past.config.sizes)
    ]
    return "\n".join((_HISTORY, *rows)) if rows else ""


def _training(evidence: Evidence, history: Sequence[PastRound], training: Training) -> str:
    total = training.rounds * training.epochs_per_round
    return (
        f"Training: you design round {training.round} of 0 to {training.rounds - 1}, "
        f"{training.epochs_per_round} epochs per round, {total} epochs in total."
    )


_SECTIONS: dict[Module, Callable[[Evidence, Sequence[PastRound], Training], str]] = {
    Module.F: _failure_breakdown,
    Module.G: _guideline,
    Module.H: _history,
    Module.T: _training,
}

_TASK = (
    "Design the next training environment of a policy that plans paths for several agents on N x N boards with holes. "
    "For each size N choose data (share of the training boards), hole (share of the cells that are holes) "
    "and wait (share of boards where an agent must wait for another)."
)
_FAILURES = (
    "Validation: n boards; valid with its error, optimal, sampled valid in % | first failing check in %\n"
    f"size n valid +- optimal sampled | {' '.join(FAILURES.values())}"
)
_HISTORY = (
    "History: environment of a past round | valid % before and after it | main failure after it, %\n"
    "round size data hole wait | before after | failure"
)
_GUIDELINE = (
    "Guideline: give most data to sizes that are solved sometimes, little but some to the others. "
    "Fewer holes where hole failures lead and few plans are valid, more where nearly all are valid. "
    "More waits where conflicts lead. Change only what the evidence supports."
)


def _answer_format(evidence: Evidence) -> str:
    sizes = [row.size for row in evidence.by_size]
    return (
        "Answer: think briefly, then write one JSON object and nothing else, "
        f'{{"{sizes[0]}":{{"data":d,"hole":h,"wait":w}},...}} with sizes {" ".join(map(str, sizes))}. '
        f"data sums to 1, hole is at most {number(MAX_HOLE)}, wait at most 1, all multiples of 0.005."
    )


def main_failure(row: SizeEvidence | None) -> str:
    """The check that most answers fail first and the percentage that do (``conflict 12``); ``none`` if none does."""
    if row is None or row.valid == row.n:
        return "none"
    check = max(CHECKS, key=lambda name: row.first_failures[name])
    return f"{FAILURES[check]} {percent(row.first_failures[check], row.n)}"


def percent(part: float, whole: float) -> int:
    """Nearest whole percentage."""
    return round(100 * part / whole)


def _failure_row(name: str, row: SizeEvidence | Evidence) -> str:
    low, high = wilson(row.valid, row.n)
    sampled = "-" if row.sampled_valid is None else percent(row.sampled_valid, 1)
    rates = f"{percent(row.valid, row.n)} {percent(high - low, 2)} {percent(row.optimal, row.n)} {sampled}"
    return f"{name} {row.n} {rates} | {' '.join(str(percent(row.first_failures[check], row.n)) for check in CHECKS)}"


def _valid(row: SizeEvidence | None) -> str:
    return "-" if row is None else str(percent(row.valid, row.n))

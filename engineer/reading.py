"""A test of an engineer's reading: its words beside the table, and changed tables that must change its design.

Asks no model and trains nothing; `rl.judge.reading_test` does the asking.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from engineer.context import FAILURES, PastRound, percent
from engineer.engineers.rules import known_rows
from engineer.evidence import CHECKS, Evidence, KindEvidence
from jaxlake.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Marks:
    """Marks of a thought.

    Attributes:
      weakest: whether it names the kind with the smallest valid share.
      learnable: whether it names the kind whose valid share is nearest to a half; or none, where none is known.
      failure: whether it names the check that most answers fail first, or says that none fails.
      ranking: whether all kinds that it names as weakest are that in their order, and all most learnable ones too.
      quotes: numbers in it.
      right: number of quotes that stand in the table in the row, and where a failure is named before it the column, for
        which it gives them.
    """

    weakest: bool
    learnable: bool
    failure: bool
    ranking: bool
    quotes: int
    right: int


def mark(thought: str, evidence: Evidence, kinds: Sequence[Kind]) -> Marks:
    """Mark what a thought says of the latest validation's table; what it does not say is not right.

    A claim is a clause with the word weakest, learnable or failure, as in ``Weakest size 6 (23% valid), most learnable
    size 4 (46%). Leading failure: hole.`` Kinds in the clauses after it are the next ones of its ranking, as in
    ``Weakest: 6 23; 5 30; 4 46``. Of several claims of one sort the last counts. Kinds whose numbers are equal
    as the table prints them, in whole percents, are equally right. Weakest is one of the kinds that are validated,
    most learnable one of those that can be designed and are validated or trained on.

    Args:
      evidence: the table that the thought is about.
      kinds: the kinds that can be designed.
    """
    rows = {str(kind): row for kind, row in known_rows(evidence).items()}
    claims: dict[str, list[str]] = {}
    ranking: list[str] = []
    failed = ""
    quotes: list[bool] = []
    for clause in _CLAUSE.split(thought.lower()):
        row: KindEvidence | None = None
        failure = ""
        for word in _WORD.findall(clause):
            if row is None and word in rows and not failure:
                row = rows[word]
            elif word in _CHECK_OF or word == "none":
                failure = word
            elif word[0].isdigit() and _NUMBER.fullmatch(word):
                quotes.append(_stands(float(word), row or evidence, failure))
        for claim in ("weakest", "learnable"):
            if claim in clause:
                ranking = claims[claim] = []
        if "failure" in clause:
            failed, ranking = failure, []
        elif row is not None:
            ranking.append(str(row.kind))
    shares = {name: percent(row.valid_share, 1) for name, row in rows.items()}
    validated = {name: shares[name] for name in (str(row.kind) for row in evidence.by_kind)}
    spread = {name: abs(shares[name] - 50) for name in map(str, kinds) if name in shares}

    def ranked(claim: str, values: Mapping[str, float]) -> list[bool]:
        """Whether each kind of a claim is as far down as it stands; of a claim without kinds, whether none is known."""
        named = [values.get(name) for name in claims.get(claim, [])]
        return [one == other for one, other in zip(named, sorted(values.values()), strict=False)] or [not values]

    weakest, learnable = ranked("weakest", validated), ranked("learnable", spread)
    return Marks(
        weakest=weakest[0],
        learnable=learnable[0],
        failure=failed in leading_failures(evidence),
        ranking=all(weakest) and all(learnable),
        quotes=len(quotes),
        right=sum(quotes),
    )


def leading_failures(evidence: Evidence) -> set[str]:
    """Return the names of the checks that most answers fail first: several where they tie, ``none`` where all pass."""
    counts = evidence.first_failures
    most = max(counts.values())
    return {FAILURES[check] for check in CHECKS if counts[check] == most} if most else {"none"}


def _stands(number: float, row: KindEvidence | Evidence, failure: str) -> bool:
    """Whether a row contains a percentage: its valid share, sampled or greedy, or that of a failure."""
    if failure:
        shown = {percent(row.first_failures[_CHECK_OF[failure]], row.n)} if failure in _CHECK_OF else {0}
    else:
        shown = {percent(row.valid, row.n)}
        if row.sampled_valid is not None:
            shown.add(percent(row.sampled_valid, 1))
    return number in shown


_CHECK_OF = {name: check for check, name in FAILURES.items()}
_CLAUSE = re.compile(r"[;\n]|[.,](?!\d)")
_WORD = re.compile(r"[a-z]*\d+(?:x\d+|\.\d+)?|[a-z]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def resampled(history: Sequence[PastRound], rng: np.random.Generator) -> list[PastRound]:
    """Return a history whose last evidence is that of another validation and other training of the same student.

    Each kind's valid share is drawn anew from a binomial distribution around what it was.
    """

    def again(rows: Sequence[KindEvidence], samples: int) -> tuple[KindEvidence, ...]:
        shares = [rng.binomial(samples * row.n, row.valid_share) / (samples * row.n) for row in rows]
        return tuple(_row_with_share(row, share) for row, share in zip(rows, shares, strict=True))

    last = history[-1]
    evidence, training = last.evidence, last.evidence.training
    if training is not None:
        training = dataclasses.replace(training, by_kind=again(training.by_kind, 1))
    rows = again(evidence.by_kind, max(evidence.samples_per_prompt, 1))
    evidence = dataclasses.replace(evidence, by_kind=rows, training=training)
    return [*history[:-1], dataclasses.replace(last, evidence=evidence)]


def _row_with_share(row: KindEvidence, share: float) -> KindEvidence:
    valid = round(share * row.n)
    failures, missing = dict.fromkeys(CHECKS, 0), row.n - valid
    known = row.n - row.valid
    for check in sorted(CHECKS, key=lambda check: -row.first_failures[check]):
        part = round(missing * row.first_failures[check] / known) if known else missing
        failures[check] = min(part, missing - sum(failures.values()))
    failures[max(CHECKS, key=lambda check: failures[check])] += missing - sum(failures.values())
    return dataclasses.replace(
        row,
        valid=valid,
        optimal=min(row.optimal, valid),
        first_failures=failures,
        any_failures=failures,
        sampled_valid=None if row.sampled_valid is None else share,
        learnable=0,
        all_valid=0,
        all_invalid=0,
    )

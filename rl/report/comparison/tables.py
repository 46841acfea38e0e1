"""The tables of a comparison; most have a row for each engineer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from engineer.context import FAILURES
from jaxlake.kinds import Kind, row_name
from rl.report.comparison.arms import OUTCOMES, Comparison
from rl.report.comparison.findings import (
    ALPHAS,
    GIVEN_VALID,
    START,
    Apart,
    Design,
    Findings,
    Rate,
    findings,
    metrics,
)
from rl.report.comparison.measures import AREA, CEILING, END, FLOOR, THRESHOLDS, Headroom, Validated, by_area
from rl.report.comparison.published import PublishedRow, beside_published
from rl.statistics import Interval, Share
from rl.table import Table

FEW_SEEDS = 8
"""Seeds up to which each has its value in a table."""
NAMES = FAILURES | {"valid": "valid"}
"""Names of the outcomes of an answer."""


def tables(comparison: Comparison) -> list[Table]:
    """Make all tables, the most asked for first."""
    numbers = findings(comparison)
    return [
        *main_tables(comparison),
        *_slice_tables(comparison, numbers),
        *_transition_tables(numbers),
        *_apart_tables(comparison, numbers),
        _forgetting_table(numbers),
    ]


def main_tables(comparison: Comparison) -> list[Table]:
    """Make the tables that have a row for each engineer, and so fit a screen or two."""
    numbers = findings(comparison)
    return [
        *_best_tables(numbers),
        *_validated_tables(comparison, numbers),
        *_difference_tables(comparison, numbers),
        *_rate_tables(comparison, numbers),
        _move_table(numbers),
        _drop_table(numbers),
        _tail_table(numbers),
        *_design_tables(numbers),
        *_published_tables(comparison),
    ]


def _best_tables(numbers: Findings) -> Iterable[Table]:
    """Make the table of who designs best; none where the validations were not sampled."""
    if not numbers.validated:
        return
    headroom = any(one.headroom for one in numbers.validated)
    header = (END, AREA, *(["headroom"] if headroom else []), *(f"to {_percent(share)} %" for share in THRESHOLDS))
    rows = [
        (
            one.engineer,
            _percent(one.mean(END), 1),
            _percent(one.mean(AREA), 1),
            *([_captured(one.headroom.get(AREA))] if headroom else []),
            *(_rounds_to(one, share) for share in THRESHOLDS),
            _percent(one.escaped),
            str(len(one.curves)),
        )
        for one in by_area(numbers.validated)
    ]
    title = "Who designs best: valid % of samples on the run's own validation, by area"
    yield Table(title, ("engineer", *header, "escape", "n"), rows)


def _validated_tables(comparison: Comparison, numbers: Findings) -> Iterable[Table]:
    others = [one for one in by_area(numbers.validated) if one.less_baseline and one.engineer != comparison.baseline]
    for measure in (END, AREA) if others else ():
        less = {one.engineer: one.less_baseline[measure] for one in others}
        yield Table(
            f"Own validation, {measure}: points above {comparison.baseline} [bootstrap over seeds] [Student's t]",
            ("engineer", "bootstrap", "t interval", "by seed"),
            [(name, _difference(one), _t(one), _by_seed(one.by_seed)) for name, one in less.items()],
        )
    if captured := {one.engineer: one.headroom for one in by_area(numbers.validated) if one.headroom}:
        yield Table.grid(
            f"Headroom captured, % of {CEILING} less {FLOOR} [bootstrap over seeds]",
            "engineer",
            list(captured),
            (END, AREA),
            lambda name, measure: _captured(captured[name][measure]),
        )


def _difference_tables(comparison: Comparison, numbers: Findings) -> Iterable[Table]:
    groups = {difference.agents: _agents(difference.agents) for difference in numbers.differences}
    for metric in metrics(comparison):
        cells = {(d.engineer, d.agents): d.interval for d in numbers.differences if d.metric == metric}
        engineers = list(dict.fromkeys(name for name, _ in cells))
        if not engineers:
            continue
        title, last = f"{metric.capitalize()} %, difference from {comparison.baseline}", list(groups)[-1]
        yield Table.grid(
            f"{title} [bootstrap over seeds and boards]",
            "engineer",
            engineers,
            groups,
            lambda name, group, cells=cells: _difference(cells[name, group]),
        )
        yield Table(
            f"{title}, {groups[last]}: [Student's t over the seeds], each seed's",
            ("engineer", "t interval", "by seed"),
            [(name, _t(cells[name, last]), _by_seed(cells[name, last].by_seed)) for name in engineers],
        )


def _rate_tables(comparison: Comparison, numbers: Findings) -> Iterable[Table]:
    groups = {(rate.agents, None, None): _agents(rate.agents) for rate in numbers.rates}
    for metric in (*metrics(comparison), GIVEN_VALID):
        yield _rate_table(comparison, numbers, f"{metric.capitalize()} %, mean over sizes [Wilson]", metric, groups)


def _slice_tables(comparison: Comparison, numbers: Findings) -> Iterable[Table]:
    """Make tables by board size, and by wait subset."""
    for metric in metrics(comparison):
        for agents in sorted({rate.agents for rate in numbers.rates if rate.agents is not None}):
            sizes = {rate.size for rate in numbers.rates if rate.agents == agents and rate.size is not None}
            names = board_names(sorted(sizes, key=Kind.of))
            columns = {(agents, None, size): name for size, name in names.items()}
            columns |= {(agents, None, None): "Sum"}
            title = f"{agents} agents, {metric} % by board size [Wilson]"
            yield _rate_table(comparison, numbers, title, metric, columns)
    waits = sorted({(rate.agents, rate.wait) for rate in numbers.rates if rate.wait is not None})
    for metric in metrics(comparison) if waits else ():
        columns = {(agents, wait, None): f"{agents} ag. {wait:g}" for agents, wait in waits}
        title = f"{metric.capitalize()} % by agents and share of boards that need a wait, mean over sizes [Wilson]"
        yield _rate_table(comparison, numbers, title, metric, columns)


def _rate_table(
    comparison: Comparison, numbers: Findings, title: str, metric: str, columns: Mapping[Any, str]
) -> Table:
    """Make a row for the policy that all begin with too; keys of columns are (agents, wait, size)."""
    rates = {(r.engineer, (r.agents, r.wait, r.size)): r for r in numbers.rates if r.metric == metric}
    rows = (START, *comparison.engineers)
    return Table.grid(title, "engineer", rows, columns, lambda name, key: _rate(rates.get((name, key))))


def _move_table(numbers: Findings) -> Table:
    moves = {one.engineer: one.changes for one in numbers.moves}
    return Table.grid(
        "Answers by first failing check, % in the end less % after round 0 [bootstrap]",
        "engineer",
        list(moves),
        _outcomes(numbers),
        lambda name, outcome: _difference(moves[name][outcome]),
    )


def _transition_tables(numbers: Findings) -> Iterable[Table]:
    outcomes = _outcomes(numbers)
    places = [OUTCOMES.index(outcome) for outcome in outcomes]
    for moves in numbers.moves:
        counts = np.array(moves.matrix)[np.ix_(places, places)]
        counts = np.vstack([counts, counts.sum(axis=0)])
        counts = np.column_stack([counts, counts.sum(axis=1)])
        names = dict(enumerate((*outcomes.values(), "all")))
        title = f"{moves.engineer}: answers of all seeds, after round 0 (down) and in the end (across)"
        yield Table.grid(title, "after round 0", names, names, lambda *place, counts=counts: str(counts[place]))


def _outcomes(numbers: Findings) -> dict[str, str]:
    """Return the outcomes that some answer has, by what they are called."""
    seen = (o for o in OUTCOMES if any(moves.before[o] or moves.after[o] for moves in numbers.moves))
    return {outcome: NAMES[outcome] for outcome in seen}


def _forgetting_table(numbers: Findings) -> Table:
    rows = {
        f"{one.engineer}: {checkpoint}": valid
        for one in numbers.forgetting
        for checkpoint, valid in zip(one.checkpoints, one.valid, strict=True)
    }
    title = "Valid % on validation by checkpoint, mean over seeds"
    return Table.grid(title, "engineer", list(rows), _sizes(numbers), lambda row, place: _percent(rows[row][place]))


def _drop_table(numbers: Findings) -> Table:
    drops = {one.engineer: one.drops for one in numbers.forgetting}
    title = "Forgetting: largest drop of valid % on validation below an earlier checkpoint"
    return Table.grid(
        title, "engineer", list(drops), _sizes(numbers), lambda name, place: _percent(drops[name][place], 1)
    )


def _sizes(numbers: Findings) -> dict[int, str]:
    return dict(enumerate(board_names(numbers.forgetting[0].sizes).values()))


def board_names(labels: Sequence[int | str]) -> dict[int | str, str]:
    """Return headings of kinds by their labels: ``6x6`` of a size where all are sizes, else the names of kinds."""
    sized = row_name(map(Kind.of, labels)) == "size"
    return {label: f"{label}x{label}" if sized else str(label) for label in labels}


def _tail_table(numbers: Findings) -> Table:
    tails = {tail.engineer: tail for tail in numbers.tails if tail.agents is None}
    tails = tails or {tail.engineer: tail for tail in numbers.tails}
    values = {name: (*tail.values, tail.never) for name, tail in tails.items()}
    shown = {i: f"worst {100 * alpha:.0f} %" for i, alpha in enumerate(ALPHAS) if alpha in (0.1, 0.25, 0.5, 0.75, 0.9)}
    title = "Valid % on the worst share of boards (CVaR); never: % of boards without any valid answer"
    return Table.grid(
        title, "engineer", list(tails), shown | {-1: "never"}, lambda name, i: _percent(values[name][i], 1)
    )


def _design_tables(numbers: Findings) -> Iterable[Table]:
    engineers = dict.fromkeys(design.engineer for design in numbers.designs)
    cells = {(design.engineer, design.round): design for design in numbers.designs}
    rounds = {index: f"round {index}" for index in sorted({index for _, index in cells})}
    later = {index: name for index, name in rounds.items() if index > min(rounds)}
    for title, columns, text in (
        ("Steps of what was asked for, from round to round: L1 of data / mean change of hole / of wait", later, _step),
        ("Entropy of the data ratios in nats, mean over seeds", rounds, lambda design: f"{design.entropy:.2f}"),
        ("Repairs a proposal / seeds whose proposal was unusable / % of groups without signal", rounds, _trouble),
    ):
        yield Table.grid(
            title,
            "engineer",
            list(engineers),
            columns,
            lambda *key, text=text: text(cells[key]) if key in cells else "-",
        )


def _apart_tables(comparison: Comparison, numbers: Findings) -> Iterable[Table]:
    for index in dict.fromkeys(apart.round for apart in numbers.apart):
        cells = {frozenset((apart.one, apart.other)): apart for apart in numbers.apart if apart.round == index}
        yield Table(
            f"Round {index}: how far designs are apart, of one engineer with different seeds and of two with the same "
            "seed; in brackets how many are the same",
            ("engineer", "other seeds", comparison.baseline, "nearest engineer", "its distance"),
            [_apart_row(name, comparison, cells) for name in comparison.engineers],
        )


def _apart_row(name: str, comparison: Comparison, cells: Mapping[frozenset[str], Apart]) -> tuple[str, ...]:
    others = {other: cells[frozenset((name, other))] for other in comparison.engineers if other != name}
    known = {other: apart.distance for other, apart in others.items() if apart.distance is not None}
    nearest = min(known, key=lambda other: known[other], default="-")
    distances = (_far(others.get(other)) for other in (comparison.baseline, nearest))
    return name, _far(cells[frozenset({name})]), next(distances), nearest, next(distances)


def _published_tables(comparison: Comparison) -> Iterable[Table]:
    rows = list(map(_published_row, beside_published(comparison)))
    if rows:
        yield Table(
            "Published (Qwen3-4B, sizes 3 to 10) beside ours: valid %, mean over 3 to 5 agents and sizes",
            ("paper", "published", "less random", "ours", "ours: valid", "ours: less baseline"),
            rows,
        )


def _published_row(row: PublishedRow) -> tuple[str, ...]:
    return (
        row.name,
        _percent(row.theirs, 1),
        f"{100 * row.theirs_less_random:+.1f}",
        row.engineer or "-",
        "-" if row.ours is None else _percent(row.ours, 1),
        "-" if row.ours_less_baseline is None else _difference(row.ours_less_baseline),
    )


def _step(design: Design) -> str:
    return f"{design.data_step:.2f} / {design.hole_step:.2f} / {design.wait_step:.2f}"


def _trouble(design: Design) -> str:
    lost = "-" if design.without_signal is None else f"{100 * design.without_signal:.0f}"
    return f"{design.repairs:.1f} / {design.fallbacks} / {lost}"


def _far(apart: Apart | None) -> str:
    return "-" if apart is None or apart.distance is None else f"{apart.distance:.2f} ({apart.equal} of {apart.cases})"


def _agents(agents: int | None) -> str:
    return "all" if agents is None else f"{agents} agents"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f}"


def _rate(rate: Rate | None) -> str:
    return "-" if rate is None else Share(rate.share, rate.low, rate.high).text()


def _difference(interval: Interval) -> str:
    mark = "*" if interval.is_clear else " "
    return f"{100 * interval.mean:+.1f} [{100 * interval.low:+.1f} {100 * interval.high:+.1f}]{mark}"


def _captured(headroom: Headroom | None) -> str:
    if headroom is None or headroom.captured is None:
        return "-" if headroom is None else "none"
    share, low, high = (str(round(100 * x)) for x in (headroom.captured, headroom.low, headroom.high))
    return share if low == high else f"{share} [{low} {high}]"


def _rounds_to(one: Validated, share: float) -> str:
    """Write the median over the seeds, and where not all got there, in brackets the percentage of those that did."""
    rounds, designed = one.rounds_to[share], len(one.curves[0]) - 1
    median = np.median([math.inf if count is None else count for count in rounds])
    text = f">{designed}" if math.isinf(median) else f"{median:g}"
    return f"{text} ({_percent(1 - rounds.count(None) / len(rounds))})" if None in rounds else text


def _t(interval: Interval) -> str:
    return "-" if interval.t_low is None else f"[{100 * interval.t_low:+.1f} {100 * interval.t_high:+.1f}]"


def _by_seed(values: Sequence[float]) -> str:
    """Write each seed's value, of more than a line holds from where to where they go."""
    texts = [f"{100 * value:+.1f}" for value in sorted(values)]
    if len(values) > FEW_SEEDS:
        return f"{texts[0]} to {texts[-1]}, {sum(value > 0 for value in values)} of {len(values)} above 0"
    return " ".join(f"{100 * value:+.1f}" for value in values)

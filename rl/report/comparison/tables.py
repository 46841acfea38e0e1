"""The numbers of a comparison as tables of text."""

from collections.abc import Iterable

import numpy as np

from engineer.context import FAILURES
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
from rl.report.comparison.published import PublishedRow, beside_published
from rl.report.comparison.statistics import Interval
from rl.report.tables import Table

NAMES = FAILURES | {"valid": "valid"}
"""What the outcomes of an answer are called."""


def tables(comparison: Comparison) -> list[Table]:
    """All tables, the most asked for first."""
    found = findings(comparison)
    return [
        *main_tables(comparison),
        *_slice_tables(comparison, found),
        *_transition_tables(found),
        *_apart_tables(comparison, found),
        _forgetting_table(found),
    ]


def main_tables(comparison: Comparison) -> list[Table]:
    """Those that have a line for each engineer, and so fit a screen or two."""
    found = findings(comparison)
    return [
        *_difference_tables(comparison, found),
        *_rate_tables(comparison, found),
        *_validated_tables(comparison, found),
        _move_table(found),
        _drop_table(found),
        _tail_table(found),
        *_design_tables(found),
        *_published_tables(comparison),
    ]


def _difference_tables(comparison: Comparison, found: Findings) -> Iterable[Table]:
    groups = list(dict.fromkeys(difference.agents for difference in found.differences))
    for metric in metrics(comparison):
        cells = {(d.engineer, d.agents): d.interval for d in found.differences if d.metric == metric}
        engineers = [name for name in comparison.others if (name, groups[0]) in cells] if groups else []
        if not engineers:
            continue
        yield Table(
            f"{metric.capitalize()} %, difference from {comparison.baseline} [bootstrap over seeds and boards]",
            ("engineer", *map(_agents, groups)),
            tuple((name, *(_difference(cells[name, group]) for group in groups)) for name in engineers),
        )
        yield Table(
            f"{metric.capitalize()} %, difference from {comparison.baseline}, {_agents(groups[-1])}: "
            "[Student's t over the seeds], each seed's",
            ("engineer", "t interval", "by seed"),
            tuple((name, _t(cells[name, groups[-1]]), _by_seed(cells[name, groups[-1]])) for name in engineers),
        )


def _rate_tables(comparison: Comparison, found: Findings) -> Iterable[Table]:
    rows = (START, *comparison.engineers)
    groups = list(dict.fromkeys(rate.agents for rate in found.rates))
    cells = {(rate.engineer, rate.metric, rate.agents, rate.size, rate.wait): rate for rate in found.rates}
    for metric in (*metrics(comparison), GIVEN_VALID):
        yield Table(
            f"{metric.capitalize()} %, mean over sizes [Wilson]",
            ("engineer", *map(_agents, groups)),
            tuple((row, *(_rate(cells.get((row, metric, group, None, None))) for group in groups)) for row in rows),
        )


def _slice_tables(comparison: Comparison, found: Findings) -> Iterable[Table]:
    """By board size, and by wait subset."""
    rows = (START, *comparison.engineers)
    cells = {(rate.engineer, rate.metric, rate.agents, rate.size, rate.wait): rate for rate in found.rates}
    for metric in metrics(comparison):
        for agents in sorted({rate.agents for rate in found.rates if rate.agents is not None}):
            sizes = sorted({rate.size for rate in found.rates if rate.agents == agents and rate.size is not None})
            yield Table(
                f"{agents} agents, {metric} % by board size [Wilson]",
                ("engineer", *(f"{size}x{size}" for size in sizes), "Sum"),
                tuple(
                    (row, *(_rate(cells.get((row, metric, agents, size, None))) for size in (*sizes, None)))
                    for row in rows
                ),
            )
    for metric in metrics(comparison):
        by_wait = [(rate.agents, rate.wait) for rate in found.rates if rate.wait is not None]
        columns = sorted(set(by_wait))
        if columns:
            yield Table(
                f"{metric.capitalize()} % by agents and share of boards that need a wait, mean over sizes [Wilson]",
                ("engineer", *(f"{agents} ag. {wait:g}" for agents, wait in columns)),
                tuple(
                    (row, *(_rate(cells.get((row, metric, agents, None, wait))) for agents, wait in columns))
                    for row in rows
                ),
            )


def _validated_tables(comparison: Comparison, found: Findings) -> Iterable[Table]:
    if not found.validated:
        return
    rows = []
    for one in found.validated:
        interval = "-" if one.t_low is None else f"[{100 * one.t_low:+.1f} {100 * one.t_high:+.1f}]"
        mean, seeds = sum(one.less_baseline) / len(one.less_baseline), (f"{100 * x:+.1f}" for x in one.less_baseline)
        rows.append((one.engineer, _percent(one.valid, 1), f"{100 * mean:+.1f} {interval}", " ".join(seeds)))
    yield Table(
        "Valid % of samples on the run's own validation in the end, which the engineers design for",
        ("engineer", "valid", f"less {comparison.baseline} [Student's t]", "by seed"),
        tuple(rows),
    )


def _move_table(found: Findings) -> Table:
    seen = _seen(found)
    return Table(
        "Answers by first failing check, % in the end less % after round 0 [bootstrap]",
        ("engineer", *(NAMES[outcome] for outcome in seen)),
        tuple((moves.engineer, *(_difference(moves.changes[outcome]) for outcome in seen)) for moves in found.moves),
    )


def _transition_tables(found: Findings) -> Iterable[Table]:
    seen = _seen(found)
    places = [OUTCOMES.index(outcome) for outcome in seen]
    for moves in found.moves:
        counts = np.array(moves.matrix)[np.ix_(places, places)]
        lines = [*zip(seen, counts.tolist(), strict=True), ("all", counts.sum(axis=0).tolist())]
        yield Table(
            f"{moves.engineer}: answers of all seeds, after round 0 (down) and in the end (across)",
            ("after round 0", *(NAMES[outcome] for outcome in seen), "all"),
            tuple((NAMES.get(name, name), *map(str, line), str(sum(line))) for name, line in lines),
        )


def _seen(found: Findings) -> list[str]:
    return [o for o in OUTCOMES if any(moves.before[o] or moves.after[o] for moves in found.moves)]


def _forgetting_table(found: Findings) -> Table:
    lines = [
        (f"{one.engineer}: {checkpoint}", *map(_percent, valid))
        for one in found.forgetting
        for checkpoint, valid in zip(one.checkpoints, one.valid, strict=True)
    ]
    return Table("Valid % on validation by checkpoint, mean over seeds", _sizes(found), tuple(lines))


def _drop_table(found: Findings) -> Table:
    lines = tuple((one.engineer, *(_percent(drop, 1) for drop in one.drops)) for one in found.forgetting)
    return Table("Forgetting: largest drop of valid % on validation below an earlier checkpoint", _sizes(found), lines)


def _sizes(found: Findings) -> tuple[str, ...]:
    return ("engineer", *(f"{size}x{size}" for size in found.forgetting[0].sizes))


def _tail_table(found: Findings) -> Table:
    shown = [i for i, alpha in enumerate(ALPHAS) if alpha in (0.1, 0.25, 0.5, 0.75, 0.9)]
    wide = [tail for tail in found.tails if tail.agents is None] or found.tails
    return Table(
        "Valid % on the worst share of boards (CVaR); never: % of boards without any valid answer",
        ("engineer", *(f"worst {100 * ALPHAS[i]:.0f} %" for i in shown), "never"),
        tuple(
            (tail.engineer, *(_percent(x, 1) for x in (*(tail.values[i] for i in shown), tail.never))) for tail in wide
        ),
    )


def _design_tables(found: Findings) -> Iterable[Table]:
    engineers = list(dict.fromkeys(design.engineer for design in found.designs))
    cells = {(design.engineer, design.round): design for design in found.designs}
    rounds = sorted({index for _, index in cells})
    moved = [index for index in rounds if index > rounds[0]]

    yield Table(
        "Steps of what was asked for, from round to round: L1 of data / mean change of hole / of wait",
        ("engineer", *(f"round {index}" for index in moved)),
        tuple((name, *(_step(cells.get((name, index))) for index in moved)) for name in engineers),
    )
    yield Table(
        "Entropy of the data ratios in nats, mean over seeds",
        ("engineer", *(f"round {index}" for index in rounds)),
        tuple((name, *(_entropy(cells.get((name, index))) for index in rounds)) for name in engineers),
    )
    yield Table(
        "Repairs a proposal / seeds whose proposal was unusable / % of groups without signal",
        ("engineer", *(f"round {index}" for index in rounds)),
        tuple((name, *(_trouble(cells.get((name, index))) for index in rounds)) for name in engineers),
    )


def _apart_tables(comparison: Comparison, found: Findings) -> Iterable[Table]:
    names = comparison.engineers
    for index in dict.fromkeys(apart.round for apart in found.apart):
        cells = {(apart.one, apart.other): apart for apart in found.apart if apart.round == index}
        yield Table(
            f"Round {index}: how far designs with the same seed are apart (of one engineer: with different seeds); "
            "in brackets how many are the same",
            ("engineer", *names),
            tuple((one, *(_far(cells.get((one, other), cells.get((other, one)))) for other in names)) for one in names),
        )


def _far(apart: Apart) -> str:
    return "-" if apart.distance is None else f"{apart.distance:.2f} ({apart.equal} of {apart.cases})"


def _published_tables(comparison: Comparison) -> Iterable[Table]:
    rows = tuple(map(_published_row, beside_published(comparison)))
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


def _entropy(design: Design | None) -> str:
    return "-" if design is None else f"{design.entropy:.2f}"


def _step(design: Design | None) -> str:
    if design is None:
        return "-"
    return f"{design.data_step:.2f} / {design.hole_step:.2f} / {design.wait_step:.2f}"


def _trouble(design: Design | None) -> str:
    if design is None:
        return "-"
    lost = "-" if design.without_signal is None else f"{100 * design.without_signal:.0f}"
    return f"{design.repairs:.1f} / {design.fallbacks} / {lost}"


def _agents(agents: int | None) -> str:
    return "all" if agents is None else f"{agents} agents"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f}"


def _rate(rate: Rate | None) -> str:
    return "-" if rate is None else f"{_percent(rate.share)} [{_percent(rate.low)}-{_percent(rate.high)}]"


def _difference(interval: Interval) -> str:
    mark = "*" if interval.is_clear else " "
    return f"{100 * interval.mean:+.1f} [{100 * interval.low:+.1f} {100 * interval.high:+.1f}]{mark}"


def _t(interval: Interval) -> str:
    return "-" if interval.t_low is None else f"[{100 * interval.t_low:+.1f} {100 * interval.t_high:+.1f}]"


def _by_seed(interval: Interval) -> str:
    return " ".join(f"{100 * value:+.1f}" for value in interval.by_seed)

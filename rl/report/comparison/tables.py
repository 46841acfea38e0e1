"""The tables of a comparison, and notes on them in sentences."""

from collections.abc import Iterator, Mapping, Sequence

from jaxlake.kinds import Kind
from jaxlake.table import Table
from rl.lab.statistics import Interval
from rl.report.comparison.findings import MEASURES, Headroom, Key, findings, metrics
from rl.report.comparison.runs import ComparisonResult

FEW_SEEDS = 5
"""Seeds up to which each has its value in a table."""


def tables(comparison: ComparisonResult) -> list[Table]:
    """Make all tables, the most asked for first."""
    return [*_validated_tables(comparison), *_held_out_tables(comparison)]


def notes(comparison: ComparisonResult) -> Iterator[str]:
    """Say in sentences what this comparison has; what its measures and marks mean is in the page's template."""
    boards, baseline = comparison.boards, comparison.baseline
    validated = findings(comparison).validated
    sizes = ", ".join(map(str, sorted(set(boards.size), key=Kind.of)))
    seeds = sorted({len(runs) for runs in comparison.runs.values()})
    yield (
        f"{len(comparison.runs)} engineers, {' to '.join(map(str, seeds[:: max(1, len(seeds) - 1)]))} seeds each, "
        f"{len(boards.id):,} held-out boards of sizes {sizes}; measured against {baseline}."
    )
    if comparison.shared_rounds > 1:
        yield f"Rounds 0 to {comparison.shared_rounds - 1} of a seed are the same for all engineers."
    if not validated:
        yield "Nothing says who designs best: for that the runs' own validations must be sampled (validation.samples)."
    ceiling = next((one for one in validated if one.engineer == comparison.ceiling), None)
    if ceiling and ceiling.headroom:
        whole = ", ".join(f"{name} {_range(one.whole)}" for name, one in ceiling.headroom.items())
        yield f"Headroom is {ceiling.engineer} less {baseline}, in points: {whole}."
    if len(seeds) > 1:
        yield "Not all engineers have the same seeds yet: compare their differences, which are paired, and no shares."
    if comparison.left_out:
        first, more = comparison.left_out[:8], len(comparison.left_out) - 8
        yield f"Not finished and left out: {', '.join(first)}{f' and {more} more runs' if more > 0 else ''}."


def _validated_tables(comparison: ComparisonResult) -> Iterator[Table]:
    """Make the tables of who designs best; none where the validations were not sampled."""
    rows = findings(comparison).validated
    if not rows:
        return
    shown = MEASURES if any(one.headroom for one in rows) else ()
    yield Table(
        "Who designs best: valid % of samples on the run's own validation, by area",
        ("engineer", *MEASURES, *(f"headroom, {measure}" for measure in shown), "n"),
        [
            (
                one.engineer,
                *(f"{100 * one.mean(measure):.1f}" for measure in MEASURES),
                *(_captured(one.headroom.get(measure)) for measure in shown),
                str(len(one.curves)),
            )
            for one in rows
        ],
    )
    for measure in MEASURES:
        title = f"Own validation, {measure}: points above {comparison.baseline} [bootstrap over seeds] [Student's t]"
        others = [one for one in rows if one.less_baseline and one.engineer != comparison.baseline]
        yield from _seed_table(title, {one.engineer: one.less_baseline[measure] for one in others})


def _held_out_tables(comparison: ComparisonResult) -> Iterator[Table]:
    """Make two tables for each metric and, with another engineer than the baseline, one of its differences by seed."""
    rates, less = findings(comparison).rates, findings(comparison).differences
    groups = {key.agents: "all" if key.agents is None else f"{key.agents} agents" for key in rates}
    rows, names = (list(dict.fromkeys(key.engineer for key in keys)) for keys in (rates, less))
    last = [*groups][-1]
    for metric in metrics(comparison):
        title = f"Held-out {metric} %"
        yield Table.grid(
            f"{title}, mean over sizes [Wilson]",
            "engineer",
            rows,
            groups,
            lambda name, agents, metric=metric: rates[Key(name, metric, agents)].text(),
        )
        title += f", points above {comparison.baseline}"
        if names:
            yield Table.grid(
                f"{title} [bootstrap over seeds and boards] detectable",
                "engineer",
                names,
                groups,
                lambda name, agents, metric=metric: _detectable(less[Key(name, metric, agents)]),
            )
        title += f", {groups[last]} [bootstrap] [Student's t]"
        yield from _seed_table(title, {name: less[Key(name, metric, last)] for name in names})


def _seed_table(title: str, less: Mapping[str, Interval]) -> Iterator[Table]:
    rows = [
        (name, _difference(one), _ends(one.t_low, one.t_high), _points(one.detectable), _by_seed(one.by_seed))
        for name, one in less.items()
    ]
    if rows:
        yield Table(title, ("engineer", "bootstrap", "t interval", "detectable", "by seed"), rows)


def _difference(interval: Interval) -> str:
    is_small = interval.detectable is not None and abs(interval.mean) < interval.detectable
    return f"{_range(interval)}{'*' * interval.is_clear + '~' * is_small:<2}"


def _detectable(interval: Interval) -> str:
    return f"{_difference(interval)} {_points(interval.detectable)}"


def _range(interval: Interval) -> str:
    """Write a difference in points with the ends of its interval."""
    return f"{100 * interval.mean:+.1f} {_ends(interval.low, interval.high)}"


def _ends(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"[{100 * low:+.1f} {100 * high:+.1f}]"


def _points(difference: float | None) -> str:
    return "-" if difference is None else f"{100 * difference:.1f}"


def _captured(headroom: Headroom | None) -> str:
    if headroom is None or headroom.captured is None:
        return "-" if headroom is None else "none"
    share, low, high = (f"{100 * x:.0f}" for x in headroom.captured)
    return share if low == high else f"{share} [{low} {high}]"


def _by_seed(values: Sequence[float]) -> str:
    """Write each seed's value; of more than a line holds the least, the largest and how many are above 0."""
    if len(values) > FEW_SEEDS:
        above = sum(value > 0 for value in values)
        return f"{100 * min(values):+.1f} to {100 * max(values):+.1f}, {above} of {len(values)} > 0"
    return " ".join(f"{100 * value:+.1f}" for value in values)

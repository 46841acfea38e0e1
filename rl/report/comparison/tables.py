"""The tables of a comparison, and notes on them in sentences."""

from collections.abc import Iterator, Mapping, Sequence

from jaxlake.kinds import Kind
from jaxlake.table import Table
from rl.lab.statistics import Interval
from rl.report.comparison.findings import MEASURES, Key, findings
from rl.report.comparison.runs import ComparisonResult

FEW_SEEDS = 5
"""Seeds up to which each has its value in a table."""


def notes(comparison: ComparisonResult) -> Iterator[str]:
    """Say in sentences what this comparison has; what its measures and marks mean is in the page's template."""
    boards, baseline, less = comparison.boards, comparison.baseline, findings(comparison).differences
    sizes = ", ".join(map(str, sorted(set(boards.size), key=Kind.of)))
    seeds = sorted({len(runs) for runs in comparison.runs.values()})
    yield (
        f"{len(comparison.runs)} engineers, {' to '.join(map(str, seeds[:: max(1, len(seeds) - 1)]))} seeds each, "
        f"{len(boards.id):,} held-out boards of sizes {sizes}; measured against {baseline}."
    )
    if comparison.shared_rounds > 1:
        yield f"Rounds 0 to {comparison.shared_rounds - 1} of a seed are the same for all engineers."
    if not findings(comparison).curves:
        yield "Nothing says who designs best: for that the runs' own validations must be sampled (validation.samples)."
    if headroom := {name: less[key] for name in MEASURES if (key := Key(str(comparison.ceiling), name)) in less}:
        ranges = ", ".join(f"{name} {_range(one)}" for name, one in headroom.items())
        yield f"Headroom is {comparison.ceiling} less {baseline}, in points: {ranges}."
    if len(seeds) > 1:
        yield "Not all engineers have the same seeds yet: compare their differences, which are paired, and no shares."
    if comparison.left_out:
        yield f"Not finished and left out: {', '.join(comparison.left_out)}."


def tables(comparison: ComparisonResult) -> Iterator[Table]:
    """Make all tables, the most asked for first."""
    rates, less = findings(comparison).rates, findings(comparison).differences
    if findings(comparison).curves:
        yield _best_table(comparison)
    agents: dict[int | None, str] = {key.agents: f"{key.agents} agents" for key in rates if key.agents}
    agents |= {None: "all"} if len(agents) > 1 else {}
    *_, last = agents
    for metric in dict.fromkeys(key.metric for key in less):
        is_own = metric in MEASURES
        boards = f"Own validation, {metric}" if is_own else f"Held-out {metric} %, {agents[last]}"
        bootstrap = "seeds" if is_own else "seeds and boards"
        title = f"{boards}: points above {comparison.baseline} [bootstrap over {bootstrap}] [Student's t]"
        rows = [(key.engineer, *_cells(less[key])) for key in less if key[1:] == (metric, None if is_own else last)]
        yield Table(title, ("engineer", "bootstrap", "t interval", "detectable", "by seed"), rows)
    for metric in dict.fromkeys(key.metric for key in rates if key.agents):
        policies = list(dict.fromkeys(key.engineer for key in rates if key.metric == metric))
        yield Table.grid(
            f"Held-out {metric} %, mean over sizes",
            "engineer",
            policies,
            agents,
            lambda name, agents, metric=metric: _points(rates[Key(name, metric, agents)]),
        )


def _best_table(comparison: ComparisonResult) -> Table:
    """Show who designs best."""
    rates, captured = findings(comparison).rates, findings(comparison).captured
    shown = MEASURES if captured else ()
    rows = []
    for name in findings(comparison).curves:
        measures = (_points(rates[Key(name, measure)]) for measure in MEASURES)
        headroom = (_captured(captured, Key(name, measure)) for measure in shown)
        rows.append((name, *measures, *headroom, str(len(comparison.runs[name]))))
    header = ("engineer", *MEASURES, *(f"headroom, {measure}" for measure in shown), "n")
    return Table("Who designs best: valid % of samples on the run's own validation, by area", header, rows)


def _captured(captured: Mapping[Key, tuple[float, float, float] | None], key: Key) -> str:
    """Write the captured headroom in percent, "none" where there is none, "-" where no seed has it."""
    if (parts := captured.get(key)) is None:
        return "none" if key in captured else "-"
    share, low, high = (f"{100 * x:.0f}" for x in parts)
    return share if low == high else f"{share} [{low} {high}]"


def _cells(less: Interval) -> tuple[str, str, str, str]:
    """Write a difference, with * if it is clear and ~ if it is smaller than was detectable."""
    is_small = less.detectable is not None and abs(less.mean) < less.detectable
    marks = f"{'*' * less.is_clear + '~' * is_small:<2}"
    return f"{_range(less)}{marks}", _ends(less.t_low, less.t_high), _points(less.detectable), _by_seed(less.by_seed)


def _by_seed(values: Sequence[float]) -> str:
    """Write each seed's value; of more than a line holds the least, the largest and how many are above 0."""
    if len(values) > FEW_SEEDS:
        above = sum(value > 0 for value in values)
        return f"{100 * min(values):+.1f} to {100 * max(values):+.1f}, {above} of {len(values)} > 0"
    return " ".join(f"{100 * value:+.1f}" for value in values)


def _range(interval: Interval) -> str:
    """Write a difference in points with the ends of its interval."""
    return f"{100 * interval.mean:+.1f} {_ends(interval.low, interval.high)}"


def _ends(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"[{100 * low:+.1f} {100 * high:+.1f}]"


def _points(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"

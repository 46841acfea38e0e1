"""The tables of a report on branches, and what is to be said of them in sentences."""

from collections.abc import Iterable

from rl.report.branch.findings import (
    ALL,
    BASELINE,
    BEST,
    ENOUGH,
    QUANTILES,
    Distribution,
    Findings,
    Retest,
    Transfer,
    findings,
)
from rl.report.branch.gains import Branches, State
from rl.report.branch.statistics import Interval
from rl.table import Table

NOT_MEASURED = "not measured"


def notes(branches: Branches) -> list[str]:
    """Say in sentences what was tried, and what came of it."""
    numbers = findings(branches)
    states, designs = len(branches.states), sum(len(state.designs) for state in branches.states)
    updates = _span(state.updates for state in branches.states)
    repeats = _span(state.repeats for state in branches.states)
    lines = [
        f"{_count(designs, 'design')} from {_count(states, 'state')}, {_count(repeats, 'repeat')} of "
        f"{_count(updates, 'update')} each. Gains are in percentage points of valid plays on the validation boards. "
        "Intervals are of 95 %; where nothing else is said, for other designs from these states, on these boards.",
        _retest_verdict(branches, numbers.retests[0]),
    ]
    if numbers.transfer is not None:
        lines.append(_transfer_verdict(numbers.transfer))
    best = [one for one in numbers.predictions if one.group == ALL and one.correlation is not None]
    if best:
        one = max(best, key=lambda one: one.correlation.value)
        lines.append(f"The gain goes most with {one.predictor}: rank correlation {correlation(one.correlation)}.")
    if branches.left_out:
        lines.append(f"Left out: {'; '.join(branches.left_out)}.")
    return lines


def tables(branches: Branches) -> list[Table]:
    """Make the tables that fit a terminal; those of single designs are `design_table`."""
    numbers = findings(branches)
    return [
        state_table(branches),
        *engineer_tables(numbers),
        *retest_tables(numbers),
        *distribution_tables(numbers),
        *transfer_tables(numbers.transfer),
        *prediction_tables(numbers),
    ]


def _retest_verdict(branches: Branches, retest: Retest) -> str:
    """Say whether gains repeat, or why that is not known."""
    if retest.single is None:
        one = all(state.repeats == 1 for state in branches.states)
        why = "one repeat" if one else "no state in which three designs differ in gain"
        return f"Test-retest: {NOT_MEASURED} ({why})."
    text = f"Gains of two repeats have a rank correlation of {correlation(retest.single)}"
    text += f", means over all repeats of {correlation(retest.of_mean)}."
    return text if retest.is_enough else f"{text} It is below {ENOUGH:g}: the branches are too short or too few."


def state_table(branches: Branches) -> Table:
    """Make the table of what was tried."""
    header = ("state", "round", "valid %", "designs", "random", "on one kind", "repeats", "updates")
    return Table("States that designs were tried from", header, [_state_row(state) for state in branches.states])


def _state_row(state: State) -> tuple[str, ...]:
    alone = sum(design.kind is not None for design in state.designs)
    counts = (len(state.designs), int(state.random.sum()), alone, state.repeats, state.updates)
    return (state.name, str(state.round), f"{100 * state.before:.1f}", *map(str, counts))


def engineer_tables(numbers: Findings) -> Iterable[Table]:
    """Make the table of what the designs of engineers gained; none without such."""
    if numbers.engineers:
        yield Table(
            "Points gained by the designs of engineers",
            ("engineer", "states", "target", f"above {BASELINE}", "all kinds", f"above {BASELINE}"),
            [
                (
                    one.name,
                    str(one.states),
                    points(one.gain),
                    _difference(one.above),
                    points(one.elsewhere),
                    _difference(one.above_elsewhere),
                )
                for one in numbers.engineers
            ],
            note=_ENGINEERS,
        )


def _difference(above: tuple[float, float, float] | None) -> str:
    return "" if above is None else f"{points(above[0])} [{points(above[1])} {points(above[2])}]"


def retest_tables(numbers: Findings) -> Iterable[Table]:
    """Make the table of test-retest."""
    rows = [
        (
            one.group,
            str(one.designs),
            *map(correlation, (one.single, one.of_mean, one.intraclass)),
            _by_state(one.single),
        )
        for one in numbers.retests
    ]
    yield Table(
        "Test-retest: rank correlation of the gains of the same designs with fresh keys",
        ("", "designs", "two repeats", "means of all repeats", "variance between", "two repeats, by state"),
        rows,
        note=_RETEST,
    )


def distribution_tables(numbers: Findings) -> Iterable[Table]:
    """Make the table of the gains of random designs."""
    if numbers.distributions:
        names = {0.0: "least", 0.5: "median", 1.0: "most"}
        header = [names.get(share, f"{100 * share:.0f} %") for share in QUANTILES]
        yield Table(
            "Gains of random designs, points: quantiles of the mean over repeats",
            ("state", "designs", *header, "SD designs", "SD repeats", "SE boards"),
            [_distribution_row(one) for one in numbers.distributions],
            note=_DISTRIBUTION,
        )


def _distribution_row(one: Distribution) -> tuple[str, ...]:
    spread = ("-" if value is None else f"{100 * value:.1f}" for value in (one.between, one.within, one.error))
    return (one.state, str(one.designs), *map(points, one.quantiles), *spread)


def transfer_tables(transfer: Transfer | None) -> Iterable[Table]:
    """Make the transfer matrix and the table of how structured it is; none without designs on one kind."""
    if transfer is None:
        return
    rows = [(kind, *map(points, gains)) for kind, gains in zip(transfer.trained_on, transfer.gains, strict=True)]
    note = "Mean over repeats and states."
    if transfer.half_widths is not None:
        note += f" {_HALF_WIDTH}"
        rows.append(("±", *(f"{100 * width:.1f}" for width in transfer.half_widths)))
    header = ("trained on", *transfer.gained_on)
    title = "Transfer: trained on one kind alone (down), points gained on (across)"
    yield Table(title, header, rows, note)
    shares = [(f"share of {name}", correlation(share)) for name, share in transfer.shares.items()]
    best = ("best row above mean row, points", _points_interval(transfer.specialisation))
    yield Table("How structured the transfer is", ("", "value [95 %]"), [best, *shares], note=_STRUCTURE)


def prediction_tables(numbers: Findings) -> Iterable[Table]:
    """Make the table of predictors; none where none was computed."""
    if numbers.predictions:
        yield Table(
            "Predictors: rank correlation with the gain, mean over repeats",
            ("predictor", "of", "designs", "correlation", "by state"),
            [
                (one.predictor, one.group, str(one.designs), correlation(one.correlation), _by_state(one.correlation))
                for one in numbers.predictions
            ],
            note=_PREDICTION,
        )


def design_table(state: State) -> Table:
    """Make a table of the designs of a state, the one that gained most first."""
    rows = [
        (
            str(state.designs[i].number),
            state.designs[i].origin,
            points(state.gains[i].mean()),
            " ".join(map(points, state.gains[i])),
            _data(state, i),
        )
        for i in (-state.gains.mean(-1)).argsort(kind="stable")
    ]
    return Table(f"{state.name}: designs by gain", ("design", "origin", "gain", "by repeat", "data"), rows)


def _data(state: State, i: int) -> str:
    """Name the kinds with most of the data of a design."""
    config = state.designs[i].config
    most = sorted(zip(config.data, config.kinds, strict=True), key=lambda pair: -pair[0])[:_SHOWN]
    text = ", ".join(f"{kind} {100 * share:.0f} %" for share, kind in most if share > 0)
    return text + (", ..." if sum(share > 0 for share in config.data) > _SHOWN else "")


_SHOWN = 4


def _transfer_verdict(transfer: Transfer) -> str:
    interaction, best = transfer.shares["interaction"], transfer.specialisation
    if interaction is None or best is None:
        return f"Structure of the transfer matrix: {NOT_MEASURED} (one repeat, or repeats have nothing in common)."
    return (
        f"Share of the interaction in what repeats of the transfer matrix have in common: {correlation(interaction)}; "
        "at 0 one kind would be the best to train on whatever is to be gained on. The best kind to train on gains "
        f"{_points_interval(best)} points above the mean one."
    )


def points(gain: float) -> str:
    """Write a gain in percentage points with its sign."""
    return f"{100 * gain:+.1f}"


def _points_interval(interval: Interval | None) -> str:
    if interval is None:
        return NOT_MEASURED
    return f"{points(interval.value)} [{points(interval.low)} {points(interval.high)}]"


def correlation(interval: Interval | None) -> str:
    """Write a correlation or share with its interval."""
    if interval is None:
        return NOT_MEASURED
    return f"{interval.value:.2f} [{interval.low:.2f} {interval.high:.2f}]"


def _by_state(interval: Interval | None) -> str:
    values = () if interval is None else interval.by_state.values()
    return " ".join("-" if value is None else f"{value:.2f}" for value in values) or "-"


def _count(number: int | str, noun: str) -> str:
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


def _span(values: Iterable[int]) -> str:
    in_order = sorted(set(values))
    return str(in_order[0]) if len(in_order) == 1 else f"{in_order[0]} to {in_order[-1]}"


_ENGINEERS = (
    "Mean over repeats, then over states. Differences are within states, their intervals Student's over states. "
    f"{BEST.capitalize()}: of all designs tried in a state the one that is best by the other repeats than the one it "
    "is measured in."
)
_RETEST = (
    "Mean over pairs of repeats, then over states. Means of all repeats: by Spearman and Brown from two single ones. "
    "Variance between: share of the variance of single gains that is between designs (one-way analysis of variance)."
)
_DISTRIBUTION = (
    "SD designs: between designs, of the mean over repeats. SD repeats: of a design's single gains. SE boards: of a "
    "single gain, for other boards."
)
_HALF_WIDTH = "±: Student's 95 % for other repeats on the same boards, with one variance for each column."
_STRUCTURE = (
    "Best row: for each kind gained on chosen by the other repeats than the one it is measured in. Shares: of the "
    "variance that different repeats have in common, so that noise has no part in it. Trained on: some rows are better "
    "for all; gained on: some columns gain more from all; interaction: which row is better depends on the column. "
    "Intervals are for other kinds gained on."
)
_PREDICTION = (
    "Within a state, then the mean over states. A perfect predictor would reach the square root of the test-retest "
    "correlation of means of all repeats, as gains are noisy."
)

"""Curves over the steps of the rounds: what the answers and the updates were like, and where the time went."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from engineer.context import FAILURES as NAMES
from engineer.evidence import CHECKS
from rl.metrics import metric_name
from rl.report import style
from rl.report.run import PARTS, Run
from rl.report.style import BLUE, CHECK_COLOURS, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

PART_COLOURS = dict(zip(PARTS, (SKY, PURPLE, GREEN, ORANGE, BLUE, GREY), strict=True))

LEGEND_BAND = 0.3
"""Height of a legend, as a share of that of the curves below it."""

Curve = tuple[str, str, str | None]
"""Key of the metric, colour, label; no label where the panel's title says it."""
Panel = tuple[str, Callable[[Axes, Run], None]]
"""Title, and what draws on the axes: nothing if the run has nothing to draw."""


def training(run: Run) -> Figure | None:
    """Draw a panel per group of metrics; one for which a run has none is left out."""
    kinds = {kind: f"valid/{metric_name(kind)}" for kind in run.kinds}
    kinds = {kind: name for kind, name in kinds.items() if any(name in row for row in run.steps)}
    colours = style.in_order(len(kinds))
    by_kind = [(name, colour, kind.words) for (kind, name), colour in zip(kinds.items(), colours, strict=True)]
    failures = ("answers by first failing check, % (white: valid)", _failures)
    return _figure(run, [failures, _lines(f"valid answers by {run.axis_name}, %", *by_kind, scale=100), *_TRAINING])


def time(run: Run) -> Figure | None:
    """Draw seconds and tokens by part, memory, compilations."""
    return _figure(run, _TIME)


def _figure(run: Run, panels: Sequence[Panel]) -> Figure | None:
    """Draw two columns of those panels that have something to show."""
    shown = [(title, draw) for title, draw in panels if _draws(draw, run)]
    if not shown:
        return None
    rows = -(-len(shown) // 2)
    height = 2.5 * rows
    figure = Figure(figsize=(9.0, height))
    figure.subplots_adjust(0.07, 0.5 / height, 0.98, 1 - 0.3 / height, wspace=0.16, hspace=0.27)
    grid = list(figure.subplots(rows, 2, squeeze=False, sharex=True).flat)
    for axes, (title, draw) in zip(grid, shown, strict=False):
        draw(axes, run)
        style.mark_rounds(axes, run.steps, named=False)
        axes.set_title(title, loc="left")
        axes.set_xlim(0.5, len(run.steps) + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if axes.get_legend_handles_labels()[1]:
            _legend(axes)
    for axes in grid[len(shown) :]:
        axes.remove()
    for axes in grid[max(0, len(shown) - 2) : len(shown)]:
        axes.set_xlabel("reinforcement learning step")
        axes.tick_params(labelbottom=True)
    return figure


def _draws(draw: Callable[[Axes, Run], None], run: Run) -> bool:
    draw(axes := Figure().subplots(), run)
    return axes.has_data()


def _legend(axes: Axes) -> None:
    """Write the legend in a band of its own above the curves."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low, high * (high / low) ** LEGEND_BAND)
    else:
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
        axes.set_ylim(low, high + LEGEND_BAND * (high - low))
    text = {"fontsize": 7.5, "handlelength": 1.2, "columnspacing": 0.9, "labelspacing": 0.3}
    axes.legend(loc="upper left", ncols=4, frameon=True, framealpha=1.0, edgecolor="none", **text)


def _lines(title: str, *curves: Curve, scale: float = 1.0, log: bool = False) -> Panel:
    def draw(axes: Axes, run: Run) -> None:
        steps, parts = np.arange(1, len(run.steps) + 1), style.spans(run.steps)
        for key, colour, label in curves:
            series = scale * _series(run, key)
            if log:
                series = np.where(series > 0, series, np.nan)
            if np.isnan(series).all():
                continue
            axes.plot(steps, series, color=colour, alpha=0.25, linewidth=0.7)
            curve = style.smooth(series, parts, len(steps) // 20)
            axes.plot(steps, curve, color=colour, linewidth=1.5, label=label, clip_on=False, **style.marks(len(steps)))
        if log and axes.has_data():
            _whole_decades(axes)
        elif axes.has_data():
            axes.set_ylim(0, 1.05 * axes.dataLim.ymax or 1.0)

    return title, draw


def _whole_decades(axes: Axes) -> None:
    """Make the axis logarithmic from one power of ten to another, so that there are at least two labels."""
    low, high = np.log10(axes.dataLim.intervaly)
    low, high = np.floor(low), max(np.ceil(high), np.floor(low) + 1)
    axes.set_yscale("log")
    axes.set_ylim(10**low, 10**high)
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    if high - low > 4:
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _failures(axes: Axes, run: Run) -> None:
    steps, parts = np.arange(1, len(run.steps) + 1), style.spans(run.steps)
    series = {check: 100 * _series(run, f"failure/{check}") for check in CHECKS}
    seen = {check: style.smooth(y, parts, len(steps) // 20) for check, y in series.items() if np.nansum(y) > 0}
    if seen:
        colours, labels = [CHECK_COLOURS[check] for check in seen], [NAMES[check] for check in seen]
        axes.stackplot(steps, *map(np.nan_to_num, seen.values()), colors=colours, labels=labels, linewidth=0)
        axes.set(ylim=(0, 100), yticks=range(0, 101, 20))


def _engineer_loss(axes: Axes, run: Run) -> None:
    series = _series(run, "engineer_loss")
    [known] = np.nonzero(~np.isnan(series))
    if len(known):
        axes.plot(known + 1, series[known], color=BLUE, linewidth=1.5, clip_on=False, **style.marks(len(known)))
        axes.set_ylim(0, 1.05 * axes.dataLim.ymax)


def _seconds(axes: Axes, run: Run) -> None:
    """Draw medians, as the first step of a shape waits for its compilation; a rehearsal by how often there is one."""
    series = {part: _series(run, part) for part in PARTS}
    timed = {part: y for part, y in series.items() if not np.isnan(y).all()}
    if timed:
        width = max(3, len(run.steps) // 20)
        begins = np.clip(np.arange(len(run.steps)) - width // 2, 0, max(0, len(run.steps) - width))
        medians = [[_a_step(y[begin : begin + width]) for begin in begins] for y in timed.values()]
        colours = [PART_COLOURS[part] for part in timed]
        axes.stackplot(np.arange(1, len(run.steps) + 1), *medians, colors=colours, labels=list(timed), linewidth=0)
        axes.set_ylim(0, None)


def _a_step(seconds: np.ndarray) -> float:
    known = seconds[~np.isnan(seconds)]
    return float(np.median(known)) * len(known) / len(seconds) if len(known) else 0.0


def _compilations(axes: Axes, run: Run) -> None:
    series = _series(run, "compilations")
    if not np.isnan(series).all():
        [steps] = np.nonzero(series > 0)
        axes.vlines(steps + 1, 0, series[steps], color=VERMILION, linewidth=1.5)
        axes.plot(steps + 1, series[steps], "o", color=VERMILION, markersize=4)
        axes.set_ylim(0, max(1.0, 1.05 * np.nanmax(series)))


def _series(run: Run, key: str) -> np.ndarray:
    """Return a metric or timing, one value per step of the rounds; NaN where there is none."""
    timed = {(row["round"], row["step"]): row for row in run.timings}
    return style.values([timed.get((row["round"], row["step"]), {}) | row for row in run.steps], key)


_TRAINING = (
    _lines(
        "groups, %",
        ("all_invalid_groups", VERMILION, "all invalid"),
        ("learnable", BLUE, "learnable (20 to 80 % valid)"),
        ("all_valid_groups", GREEN, "all valid"),
        scale=100,
    ),
    _lines(
        "length of answers, tokens",
        ("answer_tokens_max", GREY, "longest"),
        ("answer_tokens_ended", SKY, "mean of those that ended"),
        ("answer_tokens", BLUE, "mean"),
    ),
    _lines(
        "truncated answers, clipped tokens, %",
        ("truncated", VERMILION, "truncated"),
        ("clipped_high", BLUE, "clipped high"),
        ("clipped_low", SKY, "clipped low"),
        ("clipped_dual", PURPLE, "dual clip"),
        scale=100,
    ),
    _lines("entropy, nats a token", ("entropy", BLUE, None)),
    _lines(
        "gradient norm, largest ratio",
        ("gradient_norm", BLUE, "gradient norm"),
        ("ratio_max", ORANGE, "largest ratio"),
        log=True,
    ),
    _lines(
        "trainer against sampler and reference, nats",
        ("mismatch_max", GREY, "largest"),
        ("mismatch_mean", BLUE, "mean"),
        ("mismatch_k3", SKY, "k3 to sampler"),
        ("kl_reference", VERMILION, "KL to reference"),
        log=True,
    ),
    ("the engineer's examples, rehearsed: nats a token", _engineer_loss),
)
_TIME = (
    ("seconds a step, running median", _seconds),
    _lines(
        "tokens a second",
        ("tokens_per_second", "black", "whole step"),
        *((f"{part}_tokens_per_second", PART_COLOURS[part], part) for part in PARTS),
        log=True,
    ),
    _lines("peak memory, GB", ("memory_gb", BLUE, None)),
    ("programs compiled", _compilations),
)

"""Curves over the steps of the rounds: the answers, the updates made on them, and their time and memory."""

import dataclasses
from collections.abc import Sequence
from typing import Any

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

Curve = tuple[np.ndarray, Any, str | None]
"""Values float ``[steps]`` with NaN where there is none, colour, label."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves on axes of their own.

    Attributes:
      curves: key of a metric or timing, colour, and label; no label where the title says it.
      scale: factor of the values.
      stacked: areas on top of each other, of those that are not always 0.
    """

    title: str
    curves: Sequence[tuple[str, Any, str | None]]
    scale: float = 1.0
    log: bool = False
    stacked: bool = False


def training(run: Run) -> Figure | None:
    """Draw a panel per group of metrics; one for which a run has none is left out."""
    kinds = [kind for kind in run.kinds if any(f"valid/{metric_name(kind)}" in row for row in run.steps)]
    colours = zip(kinds, style.in_order(len(kinds)), strict=True)
    by_kind = [(f"valid/{metric_name(kind)}", colour, kind.words) for kind, colour in colours]
    return _figure(run, [_FAILURES, Panel(f"valid answers by {run.axis_name}, %", by_kind, scale=100), *_TRAINING])


def time(run: Run) -> Figure | None:
    """Draw seconds and tokens by part, memory, compilations."""
    return _figure(run, _TIME, smooth=False)


def _figure(run: Run, panels: Sequence[Panel], smooth: bool = True) -> Figure | None:
    """Draw two columns of those panels that have something to show."""
    timed = {(row["round"], row["step"]): row for row in run.timings}
    rows = [timed.get((row["round"], row["step"]), {}) | row for row in run.steps]
    shown = [(panel, curves) for panel in panels if (curves := _known(panel, rows))]
    if not shown:
        return None
    lines = -(-len(shown) // 2)
    height = 2.5 * lines
    figure = Figure(figsize=(9.0, height))
    figure.subplots_adjust(0.07, 0.5 / height, 0.98, 1 - 0.3 / height, wspace=0.16, hspace=0.27)
    grid = list(figure.subplots(lines, 2, squeeze=False, sharex=True).flat)
    for axes, (panel, curves) in zip(grid, shown, strict=False):
        _draw(axes, run, panel, curves, len(rows) // 20 if smooth else 0)
        style.mark_rounds(axes, run.steps, named=False)
        axes.set_title(panel.title, loc="left")
        axes.set_xlim(0.5, len(rows) + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if axes.get_legend_handles_labels()[1]:
            _legend(axes)
    for axes in grid[len(shown) :]:
        axes.remove()
    for axes in grid[max(0, len(shown) - 2) : len(shown)]:
        axes.set_xlabel("reinforcement learning step")
        axes.tick_params(labelbottom=True)
    return figure


def _known(panel: Panel, rows: Sequence[dict[str, Any]]) -> list[Curve]:
    """Return the curves of a panel that have values."""
    curves = [(panel.scale * style.values(rows, key), colour, label) for key, colour, label in panel.curves]
    if panel.log:
        curves = [(np.where(series > 0, series, np.nan), *drawn) for series, *drawn in curves]
    return [curve for curve in curves if (np.nansum(curve[0]) > 0 if panel.stacked else not np.isnan(curve[0]).all())]


def _draw(axes: Axes, run: Run, panel: Panel, curves: Sequence[Curve], window: int) -> None:
    steps = np.arange(1, len(run.steps) + 1)
    lines = [style.smooth(series, style.spans(run.steps), window) for series, _, _ in curves]
    if panel.stacked:
        _, colours, labels = zip(*curves, strict=True)
        axes.stackplot(steps, *map(np.nan_to_num, lines), colors=colours, labels=labels, linewidth=0)
        axes.set(ylim=(0, 100), yticks=range(0, 101, 20))
        return
    for (series, colour, label), line in zip(curves, lines, strict=True):
        known = ~np.isnan(line)  # a rehearsal is made at some steps alone
        marks = style.marks(int(known.sum()))
        axes.plot(steps, series, color=colour, alpha=0.25, linewidth=0.7)
        axes.plot(steps[known], line[known], color=colour, linewidth=1.5, label=label, clip_on=False, **marks)
    if panel.log:
        _whole_decades(axes)
    else:
        axes.set_ylim(0, 1.05 * axes.dataLim.ymax or 1.0)


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


_FAILURES = Panel(
    "answers by first failing check, % (white: valid)",
    [(f"failure/{check}", CHECK_COLOURS[check], NAMES[check]) for check in CHECKS],
    scale=100,
    stacked=True,
)
_TRAINING = (
    Panel(
        "groups, %",
        [
            ("all_invalid_groups", VERMILION, "all invalid"),
            ("learnable", BLUE, "learnable (20 to 80 % valid)"),
            ("all_valid_groups", GREEN, "all valid"),
        ],
        scale=100,
    ),
    Panel(
        "length of answers, tokens",
        [
            ("answer_tokens_max", GREY, "longest"),
            ("answer_tokens_ended", SKY, "mean of those that ended"),
            ("answer_tokens", BLUE, "mean"),
        ],
    ),
    Panel(
        "truncated answers, clipped tokens, %",
        [
            ("truncated", VERMILION, "truncated"),
            ("clipped_high", BLUE, "clipped high"),
            ("clipped_low", SKY, "clipped low"),
        ],
        scale=100,
    ),
    Panel("entropy, nats a token", [("entropy", BLUE, None)]),
    Panel(
        "gradient norm, largest ratio",
        [("gradient_norm", BLUE, "gradient norm"), ("ratio_max", ORANGE, "largest ratio")],
        log=True,
    ),
    Panel(
        "trainer against sampler and reference, nats",
        [
            ("mismatch_max", GREY, "largest"),
            ("mismatch_mean", BLUE, "mean"),
            ("mismatch_k3", SKY, "k3 to sampler"),
            ("kl_reference", VERMILION, "KL to reference"),
        ],
        log=True,
    ),
    Panel("the engineer's examples, rehearsed: nats a token", [("engineer_loss", BLUE, None)]),
)
_TIME = (
    Panel("seconds a step", [(part, colour, part) for part, colour in PART_COLOURS.items()], log=True),
    Panel(
        "tokens a second",
        [
            ("tokens_per_second", "black", "whole step"),
            *((f"{part}_tokens_per_second", colour, part) for part, colour in PART_COLOURS.items()),
        ],
        log=True,
    ),
    Panel("peak memory, GB", [("memory_gb", BLUE, None)]),
    Panel("programs compiled", [("compilations", VERMILION, None)]),
)

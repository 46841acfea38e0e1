"""Curves over the steps of the rounds: the answers and the updates made on them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from engineer.context import FAILURES
from engineer.evidence import CHECKS
from rl.learn.metrics import metric_name
from rl.report import style
from rl.report.run import Run
from rl.report.style import BLUE, CHECK_COLOURS, GREEN, GREY, ORANGE, SKY, VERMILION


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves on axes of their own.

    Attributes:
      title: what the axes show; ``{}`` stands for the labels of the curves that a run has.
      curves: key of a metric, colour, and label.
      stacked: areas on top of each other, of those that are not always 0.
    """

    title: str
    curves: Sequence[tuple[str, Any, str]]
    scale: float = 1.0
    log: bool = False
    stacked: bool = False

    def values(self, rows: Sequence[dict[str, Any]]) -> dict[tuple[Any, str], np.ndarray]:
        """Return float ``[steps]`` by colour and label of the curves that a run has, NaN where there is no value."""
        series = {(colour, label): self.scale * style.values(rows, key) for key, colour, label in self.curves}
        if self.log:
            series = {drawn: np.where(y > 0, y, np.nan) for drawn, y in series.items()}
        return {x: y for x, y in series.items() if (np.nansum(y) > 0 if self.stacked else not np.isnan(y).all())}


def training(run: Run) -> Figure | None:
    """Draw a panel per group of metrics; one for which a run has none is left out."""
    kinds = [
        kind
        for kind in sorted({*run.targets, *run.designed})
        if any(f"valid/{metric_name(kind)}" in row for row in run.steps)
    ]
    colours = zip(kinds, style.in_order(len(kinds)), strict=True)
    by_kind = [(f"valid/{metric_name(kind)}", colour, kind.words) for kind, colour in colours]
    panels = [_FAILURES, Panel(f"valid answers by {run.axis_name}, %", by_kind, scale=100), *_TRAINING]
    shown = [(panel, curves) for panel in panels if (curves := panel.values(run.steps))]
    if not shown:
        return None
    figure, grid = style.panels(len(shown), 2.5, "reinforcement learning step", abreast=2, sharey=False)
    for axes, (panel, curves) in zip(grid, shown, strict=True):
        _draw(axes, run, panel, curves)
        style.mark_rounds(axes, run.steps, named=False)
        axes.set_title(panel.title.format(", ".join(label for _, label in curves)), loc="left")
        axes.set_xlim(0.5, len(run.steps) + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(curves) > 1:
            axes.legend(fontsize=7.5, ncols=2, frameon=True, framealpha=0.8, edgecolor="none")
    return figure


def _draw(axes: Axes, run: Run, panel: Panel, curves: dict[tuple[Any, str], np.ndarray]) -> None:
    steps = np.arange(1, len(run.steps) + 1)
    lines = [style.smooth(series, run.steps) for series in curves.values()]
    if panel.stacked:
        colours, labels = zip(*curves, strict=True)
        axes.stackplot(steps, *map(np.nan_to_num, lines), colors=colours, labels=labels, linewidth=0)
        axes.set(ylim=(0, 100), yticks=range(0, 101, 20))
        return
    for ((colour, label), series), line in zip(curves.items(), lines, strict=True):
        known = ~np.isnan(line)  # a rehearsal is made at some steps alone
        axes.plot(steps, series, color=colour, alpha=0.25, linewidth=0.7)
        axes.plot(steps[known], line[known], ".-", color=colour, linewidth=1.5, markersize=2, label=label)
    if panel.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.05 * axes.dataLim.ymax or 1.0)


_FAILURES = Panel(
    "answers by first failing check, % (white: valid)",
    [(f"failure/{check}", CHECK_COLOURS[check], FAILURES[check]) for check in CHECKS],
    scale=100,
    stacked=True,
)
_GROUPS = [
    ("all_invalid_groups", VERMILION, "all invalid"),
    ("learnable", BLUE, "learnable (20 to 80 % valid)"),
    ("all_valid_groups", GREEN, "all valid"),
]
_LENGTHS = [
    ("answer_tokens_max", GREY, "longest"),
    ("answer_tokens_ended", SKY, "mean of those that ended"),
    ("answer_tokens", BLUE, "mean"),
]
_LIMITS = [
    ("truncated", VERMILION, "truncated"),
    ("clipped_high", BLUE, "clipped high"),
    ("clipped_low", SKY, "clipped low"),
]
_MISMATCH = [
    ("mismatch_max", GREY, "largest"),
    ("mismatch_mean", BLUE, "mean"),
    ("mismatch_k3", SKY, "k3 to sampler"),
    ("kl_reference", VERMILION, "KL to reference"),
]
_TRAINING = (
    Panel("groups, %", _GROUPS, scale=100),
    Panel("length of answers, tokens", _LENGTHS),
    Panel("{}, %", _LIMITS, scale=100),
    Panel("entropy, nats", [("entropy", BLUE, "entropy")]),
    Panel("{}", [("gradient_norm", BLUE, "gradient norm"), ("ratio_max", ORANGE, "largest ratio")], log=True),
    Panel("trainer against sampler and reference, nats", _MISMATCH, log=True),
    Panel("the engineer's examples, rehearsed: nats a token", [("engineer_loss", BLUE, "loss")]),
)

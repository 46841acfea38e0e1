"""The pictures of a run over its steps: learning with its validations, and the metrics of training."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from engineer.context import FAILURES
from engineer.evidence import CHECKS
from rl.learn.metrics import metric_name
from rl.report import style
from rl.report.run import Run, Stage, axis_name
from rl.report.style import BLUE, GREY, PURPLE, SKY, VERMILION

Rows = Sequence[dict[str, Any]]
"""Rows of metrics."""


def learning(run: Run) -> Figure | None:
    """Draw the warm start left, the rounds right, as far as there are any; one axis of shares for both."""
    draws = [draw for draw, rows in ((_warm_start, run.warm_start), (_rounds, run.steps)) if rows]
    if not draws:
        return None
    figure = Figure(figsize=(9.0 if run.steps else 6.2, 3.9), layout="constrained")
    panels = figure.subplots(1, len(draws), sharey=True, squeeze=False, width_ratios=(1, 3)[-len(draws) :])[0]
    for axes, draw in zip(panels, draws, strict=True):
        draw(axes, run)
    panels[0].set_ylabel("share, reward" if run.steps else "share")
    panels[0].set_ylim(min(-0.02, panels[-1].get_ylim()[0]), 1.02)
    style.legend(figure, panels, columns=5)
    return figure


def _warm_start(axes: Axes, run: Run) -> None:
    taught = [row for row in run.warm_start if row.get("plan_loss") is not None]
    steps = [row["step"] for row in taught]
    likelihood = running_mean(np.exp(-_values(taught, "plan_loss")), len(taught) // 20)
    axes.plot(steps, likelihood, color=GREY, linewidth=1.6, label="mean token likelihood")
    last = max(steps, default=1)
    _validation_points(axes, [(0, run.stage("before")), (last, run.stage("warm start"))], shift=0.035 * last)
    axes.set(xlabel="supervised step", xlim=(-0.12 * last, 1.06 * last))
    axes.text(0.5, 1.02, "warm start", ha="center", transform=axes.transAxes)


def _rounds(axes: Axes, run: Run) -> None:
    for key, colour, label in (("valid", SKY, "training: valid share"), ("reward", PURPLE, "training: reward")):
        series = _values(run.steps, key)
        if not np.isnan(series).all():  # a network has no reward beside its valid share
            _curve(axes, run.steps, series, colour, label)
    _mark_rounds(axes, run.steps)
    points = [(0, run.stage("warm start") or run.stage("before"))]
    for begin, end in _spans(run.steps):
        name = f"round {run.steps[begin]['round']}"
        points.append((end, run.stage(name)))
        axes.text((begin + end + 1) / 2, 1.02, name, ha="center", transform=axes.get_xaxis_transform())
    total = len(run.steps)
    _validation_points(axes, points, shift=0.011 * total)
    axes.set(xlabel="reinforcement learning step", xlim=(-0.03 * total, 1.02 * total))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _validation_points(axes: Axes, points: Sequence[tuple[float, Stage | None]], shift: float) -> None:
    """Draw greedy and sampled validity with intervals; greedy a little before its step, so that both can be read."""
    for name, before, marker, colour, label in (
        ("valid", 1.4 * shift, "o", BLUE, "validation: greedy"),
        ("sampled", 0.4 * shift, "D", VERMILION, "validation: sampled"),
    ):
        reached = [(x, share) for x, stage in points if stage and (share := stage.share(name))]
        if reached:
            ends = [(one.value, one.value) if one.low is None else (one.low, one.high) for _, one in reached]
            (x, y), (low, high) = np.array([(x, one.value) for x, one in reached]).T, np.array(ends, float).T
            drawn: dict[str, Any] = {"fmt": marker, "color": colour, "label": label, "markersize": 5, "zorder": 3}
            axes.errorbar(x - before, y, np.maximum(0, (y - low, high - y)), capsize=2.5, **drawn)


class Panel(NamedTuple):
    """Curves on axes of their own, each named like its metric.

    Attributes:
      title: what the axes show; ``{}`` stands for the names of the curves that a run has.
      metrics: the curves' keys in a row of metrics.
      stacked: areas on top of each other, of those that are not always 0.
    """

    title: str
    metrics: Sequence[str]
    colours: Sequence[Any] = (BLUE, SKY, VERMILION, GREY)
    scale: float = 1.0
    log: bool = False
    stacked: bool = False

    def curves(self, rows: Rows) -> list[tuple[np.ndarray, Any, str]]:
        """Return float ``[steps]``, NaN where there is no value, with colour and label of the curves that a run has."""
        drawn = []
        for metric, colour in zip(self.metrics, self.colours, strict=False):
            series, name = self.scale * _values(rows, metric), metric.split("/")[-1]
            if self.log:
                series[~(series > 0)] = np.nan
            if np.nansum(series) > 0 if self.stacked else not np.isnan(series).all():
                drawn.append((series, colour, FAILURES.get(name, name.replace("_", " "))))
        return drawn


FAILING = Panel(
    "answers by first failing check, % (white: valid)",
    [f"failure/{check}" for check in CHECKS],
    tuple(style.CHECK_COLOURS.values()),
    scale=100,
    stacked=True,
)
PANELS = (
    Panel("groups, % (learnable: 20-80 % valid)", ("learnable", "all_valid_groups", "all_invalid_groups"), scale=100),
    Panel("length of answers, tokens", ("answer_tokens", "answer_tokens_ended", "answer_tokens_max")),
    Panel("{}, %", ("clipped_high", "clipped_low", "truncated"), scale=100),
    Panel("entropy, nats", ("entropy",)),
    Panel("{}", ("gradient_norm", "ratio_max"), log=True),
    Panel(
        "trainer against sampler and reference, nats",
        ("mismatch_mean", "mismatch_k3", "kl_reference", "mismatch_max"),
        log=True,
    ),
    Panel("the engineer's examples, rehearsed: nats a token", ("engineer_loss",)),
)


def training(run: Run) -> Figure | None:
    """Draw a panel per group of metrics; one for which a run has none is left out."""
    kinds = [f"valid/{metric_name(kind)}" for kind in run.kinds]
    kinds = [metric for metric in kinds if any(metric in row for row in run.steps)]
    # From light to dark; cividis keeps that order under colour-vision deficiencies.
    colours = [*matplotlib.colormaps["cividis"](np.linspace(0.85, 0.15, len(kinds)))]
    by_kind = Panel(f"valid answers by {axis_name(run.kinds)}, %", kinds, colours, scale=100)
    shown = [(panel, curves) for panel in (FAILING, by_kind, *PANELS) if (curves := panel.curves(run.steps))]
    if not shown:
        return None
    figure, grid = style.panels(len(shown), 2.5, "reinforcement learning step", abreast=2, sharey=False)
    for axes, (panel, curves) in zip(grid, shown, strict=True):
        if panel.stacked:
            series, colours, labels = zip(*curves, strict=True)
            heights = [np.nan_to_num(_smooth(run.steps, one)) for one in series]
            axes.stackplot(range(1, len(run.steps) + 1), *heights, colors=colours, labels=labels, linewidth=0)
            axes.set(ylim=(0, 100), yticks=range(0, 101, 20))
        for one in () if panel.stacked else curves:
            _curve(axes, run.steps, *one)
        if panel.log:
            axes.set_yscale("log")
        elif not panel.stacked:
            axes.set_ylim(0, 1.05 * axes.dataLim.ymax or 1.0)
        _mark_rounds(axes, run.steps)
        axes.set_title(panel.title.format(", ".join(label for *_, label in curves)), loc="left")
        axes.set_xlim(0.5, len(run.steps) + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(curves) > 1:
            axes.legend(fontsize=7.5, ncols=2, frameon=True, framealpha=0.8, edgecolor="none")
    return figure


def running_mean(series: np.ndarray, window: int) -> np.ndarray:
    """Return the centred mean of what is known of about ``window`` values; NaN where nothing is."""
    half = window // 2
    near = (series[max(0, i - half) : i + half + 1] for i in range(len(series)))
    return np.array([part[~np.isnan(part)].mean() if not np.isnan(part).all() else np.nan for part in near])


def _values(rows: Rows, key: str) -> np.ndarray:
    """Return a metric over the rows, float64 ``[rows]``; NaN where a row has none or null."""
    return np.array([row.get(key) for row in rows], float)


def _spans(steps: Rows) -> list[tuple[int, int]]:
    """Return begin and end of each round's rows among those of all rounds."""
    starts = [i for i in range(len(steps)) if i == 0 or steps[i]["round"] != steps[i - 1]["round"]]
    return list(itertools.pairwise((*starts, len(steps))))


def _smooth(steps: Rows, series: np.ndarray) -> np.ndarray:
    """Return the running mean within each round: a redesign changes what a metric is measured on."""
    return np.concatenate([running_mean(series[begin:end], len(steps) // 20) for begin, end in _spans(steps)])


def _curve(axes: Axes, steps: Rows, series: np.ndarray, colour: Any, label: str) -> None:
    """Draw float ``[steps]`` thin, and its running mean thick."""
    numbers, smooth = np.arange(1, len(steps) + 1), _smooth(steps, series)
    known = ~np.isnan(smooth)  # a rehearsal is made at some steps alone
    axes.plot(numbers, series, color=colour, alpha=0.25, linewidth=0.7)
    axes.plot(numbers[known], smooth[known], ".-", color=colour, linewidth=1.6, markersize=2, label=label)


def _mark_rounds(axes: Axes, steps: Rows) -> None:
    """Draw a dashed line where the environment was redesigned."""
    for begin, _ in _spans(steps)[1:]:
        axes.axvline(begin + 0.5, color="#444444", linestyle=(0, (4, 3)), linewidth=0.9)

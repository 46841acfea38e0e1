"""The pictures of a run, drawn off-screen and returned as PNG bytes; writes no file."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from engineer.context import FAILURES as NAMES
from engineer.evidence import CHECKS, wilson
from engineer.report import boards, curves, look
from engineer.report.look import BLUE, CHECK_COLOURS, GREY, PURPLE, SKY, VERMILION
from engineer.report.run import RATIOS, Run, Stage

LEARNING, ALLOCATION, FAILURES = "learning.png", "allocation.png", "failures.png"
TRAINING, TIME, BOARDS, SAMPLES = "training.png", "time.png", "boards.png", "samples.png"


def draw_all(run: Run) -> dict[str, bytes]:
    """PNG bytes by file name; a picture for which the run holds nothing yet is left out."""
    with matplotlib.rc_context(look.STYLE):
        figures = {
            LEARNING: _learning(run) if run.steps or run.warm_start else None,
            TRAINING: curves.training(run) if run.steps else None,
            ALLOCATION: _allocation(run) if run.rounds else None,
            FAILURES: _failures(run),
            BOARDS: boards.best_and_worst(run),
            SAMPLES: boards.samples(run),
            TIME: curves.time(run) if run.steps else None,
        }
        return {name: look.png(figure) for name, figure in figures.items() if figure is not None}


def _learning(run: Run) -> Figure:
    """Left the warm start, right the rounds, as far as there are any; one axis of shares for both."""
    draws = [draw for draw, rows in ((_warm_start, run.warm_start), (_rounds, run.steps)) if rows]
    figure = Figure(figsize=(9.0 if run.steps else 6.2, 3.9), layout="constrained")
    panels = figure.subplots(1, len(draws), sharey=True, squeeze=False, width_ratios=(1, 3)[-len(draws) :])[0]
    for axes, draw in zip(panels, draws, strict=True):
        draw(axes, run)
    panels[0].set_ylabel("share, reward" if run.steps else "share")
    panels[0].set_ylim(min(-0.02, panels[-1].get_ylim()[0]), 1.02)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    return figure


def _warm_start(warm: Axes, run: Run) -> None:
    stages = {stage.name: stage for stage in run.stages}
    taught = [row for row in run.warm_start if row.get("plan_loss") is not None]
    steps = [row["step"] for row in taught]
    likelihood = look.running_mean(np.exp(-look.values(taught, "plan_loss")), len(taught) // 20)
    warm.plot(steps, likelihood, color=GREY, linewidth=1.6, label="mean token likelihood")
    last = max(steps, default=1)
    _validation_points(warm, [(0, stages.get("before")), (last, stages.get("warm start"))], shift=0.035 * last)
    warm.set(xlabel="supervised step", xlim=(-0.12 * last, 1.06 * last))
    warm.text(0.5, 1.02, "warm start", ha="center", transform=warm.transAxes)


def _rounds(rounds: Axes, run: Run) -> None:
    stages = {stage.name: stage for stage in run.stages}
    total = len(run.steps)
    parts = look.spans(run.steps)
    for key, colour, label in (("valid", SKY, "training: valid share"), ("reward", PURPLE, "training: reward")):
        series = look.values(run.steps, key)
        rounds.plot(np.arange(1, total + 1), series, color=colour, alpha=0.3, linewidth=0.7)
        smooth = look.smooth(series, parts, total // 20)
        rounds.plot(np.arange(1, total + 1), smooth, color=colour, linewidth=1.6, label=label, **look.marks(total))
    look.mark_rounds(rounds, run.steps)
    ends = {run.steps[begin]["round"]: end for begin, end in parts}
    points = [
        (0, stages.get("warm start", stages.get("before"))),
        *((end, stages.get(f"round {index}")) for index, end in ends.items()),
    ]
    _validation_points(rounds, points, shift=0.011 * total)
    rounds.set(xlabel="reinforcement learning step", xlim=(-0.03 * total, 1.02 * total))
    rounds.xaxis.set_major_locator(MaxNLocator(integer=True))


def _validation_points(axes: Axes, points: Sequence[tuple[float, Stage | None]], shift: float) -> None:
    """Greedy and sampled validity with intervals; greedy a little before its step, so that both can be read."""
    reached = [(x, stage.evidence) for x, stage in points if stage is not None]
    greedy = [(x, e.valid / e.n, *wilson(e.valid, e.n)) for x, e in reached]
    sampled = [
        (x, e.sampled_valid, e.sampled_valid - 1.96 * e.sampled_se, e.sampled_valid + 1.96 * e.sampled_se)
        for x, e in reached
        if e.sampled_valid is not None
    ]
    for rows, before, marker, colour, label in (
        (greedy, 1.4 * shift, "o", BLUE, "validation: greedy"),
        (sampled, 0.4 * shift, "D", VERMILION, "validation: sampled"),
    ):
        if rows:
            x, y, low, high = np.array(rows, float).T
            error = np.maximum(0, (y - low, high - y))
            axes.errorbar(
                x - before, y, error, fmt=marker, color=colour, markersize=5, capsize=2.5, label=label, zorder=3
            )


def _allocation(run: Run) -> Figure:
    """A panel per ratio; bars as requested, marks as realised."""
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    titles = {"data": "data: share of boards", "hole": "hole: share of cells", "wait": "wait: share of boards"}
    width = 0.8 / len(run.rounds)
    mark = {
        "linestyle": "",
        "marker": "D",
        "markersize": min(4.5, 90 / (len(run.rounds) * len(run.sizes))),
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 0.9,
    }
    for axes, ratio in zip(figure.subplots(1, 3), RATIOS, strict=True):
        for i, (past, colour) in enumerate(zip(run.rounds, look.in_order(len(run.rounds)), strict=True)):
            x = np.arange(len(run.sizes)) + (i - (len(run.rounds) - 1) / 2) * width
            axes.bar(x, _values(past.requested, run.sizes, ratio), 0.92 * width, color=colour, label=past.name)
            label = "as realised" if i == 0 else None
            axes.plot(x, _values(past.realised, run.sizes, ratio), **mark, label=label, clip_on=False)
        axes.set(title=titles[ratio], xlabel="board size", xticks=range(len(run.sizes)), xticklabels=run.sizes)
        axes.set_ylim(0, None)
        axes.tick_params(axis="x", length=0)
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] == "as realised")
    figure.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=min(8, len(labels))
    )
    return figure


def _failures(run: Run) -> Figure:
    """A panel per stage: failing answers in percent, stacked by first failing check."""
    columns = len(run.stages) if len(run.stages) <= 5 else 4
    rows = -(-len(run.stages) // columns)
    figure = Figure(figsize=(max(4.5, 1.9 * columns), 2.5 * rows + 0.6), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    seen = [check for check in CHECKS if any(stage.evidence.first_failures[check] for stage in run.stages)]
    for axes, stage in zip(panels, run.stages, strict=False):
        by_size = {row.size: row for row in stage.evidence.by_size}
        bottom = np.zeros(len(run.sizes))
        for check in seen:
            share = [
                100 * by_size[size].first_failures[check] / by_size[size].n if size in by_size else 0.0
                for size in run.sizes
            ]
            look = {"color": CHECK_COLOURS[check], "edgecolor": "white", "linewidth": 0.5}
            axes.bar(run.sizes, share, 0.78, bottom, label=NAMES[check], **look)
            bottom += share
        axes.set(title=stage.name if stage.name == "before" else f"after {stage.name}", xlabel="board size")
        axes.set_xticks(run.sizes)
        axes.tick_params(axis="x", length=0)
    for axes in panels[len(run.stages) :]:
        axes.remove()
    for axes in panels[::columns]:
        axes.set_ylabel("failing answers, %")
    panels[0].set_ylim(0, 100)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    return figure


def _values(ratio_of: Any, sizes: Sequence[int], ratio: str) -> np.ndarray:
    values = (ratio_of(size, ratio) for size in sizes)
    return np.array([np.nan if value is None else value for value in values], float)

"""The four pictures of a run, drawn off-screen and returned as PNG bytes; writes no file."""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from engineer.context import FAILURES as NAMES
from engineer.evidence import CHECKS, wilson
from engineer.report.run import RATIOS, Run, Stage
from jaxlake import render, text
from jaxlake.types import MAX_STEPS, Instance

LEARNING, ALLOCATION, FAILURES, BOARDS = "learning.png", "allocation.png", "failures.png", "boards.png"

# Okabe and Ito (2008): told apart under every common colour-vision deficiency.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
CHECK_COLOURS = dict(zip(CHECKS, (GREY, YELLOW, GREEN, PURPLE, BLUE, SKY, VERMILION, ORANGE), strict=True))
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
}
DPI = 160


def draw_all(run: Run) -> dict[str, bytes]:
    """PNG bytes by file name; a picture for which the run holds nothing yet is left out."""
    with matplotlib.rc_context(STYLE):
        figures = {
            LEARNING: _learning(run) if run.steps else None,
            ALLOCATION: _allocation(run) if run.rounds else None,
            FAILURES: _failures(run),
            BOARDS: _boards(run),
        }
        return {name: _png(figure) for name, figure in figures.items() if figure is not None}


def _learning(run: Run) -> Figure:
    """Left the warm start, right the rounds; one axis of shares for both."""
    figure = Figure(figsize=(9.0, 3.9), layout="constrained")
    warm, rounds = figure.subplots(1, 2, sharey=True, width_ratios=(1, 3))
    stages = {stage.name: stage for stage in run.stages}

    taught = [row for row in run.warm_start if "plan_loss" in row]
    steps = [row["step"] for row in taught]
    likelihood = _running_mean(np.exp([-row["plan_loss"] for row in taught]), len(taught) // 20)
    warm.plot(steps, likelihood, color=GREY, linewidth=1.6, label="mean token likelihood")
    last = max(steps, default=1)
    _validation_points(warm, [(0, stages.get("before")), (last, stages.get("warm start"))], shift=0.035 * last)
    warm.set(xlabel="supervised step", ylabel="share, reward", xlim=(-0.12 * last, 1.06 * last))
    warm.text(0.5, 1.02, "warm start", ha="center", transform=warm.transAxes)

    total = len(run.steps)
    starts = [i for i in range(total) if i == 0 or run.steps[i]["round"] != run.steps[i - 1]["round"]]
    spans = list(zip(starts, (*starts[1:], total), strict=True))
    for key, colour, label in (("valid", SKY, "training: valid share"), ("reward", PURPLE, "training: reward")):
        values = np.array([row.get(key, np.nan) for row in run.steps], float)
        # Within each round: a redesign changes what the share is measured on.
        smooth = np.concatenate([_running_mean(values[start:end], total // 20) for start, end in spans])
        rounds.plot(np.arange(1, total + 1), values, color=colour, alpha=0.3, linewidth=0.7)
        rounds.plot(np.arange(1, total + 1), smooth, color=colour, linewidth=1.6, label=label)
    for start, end in spans:
        if start:
            rounds.axvline(start + 0.5, color="#444444", linestyle=(0, (4, 3)), linewidth=0.9)
        name = f"round {run.steps[start]['round']}"
        rounds.text((start + end + 1) / 2, 1.02, name, ha="center", transform=rounds.get_xaxis_transform())
    ends = {run.steps[start]["round"]: end for start, end in spans}
    points = [(0, stages.get("warm start")), *((end, stages.get(f"round {index}")) for index, end in ends.items())]
    _validation_points(rounds, points, shift=0.011 * total)
    rounds.set(xlabel="reinforcement learning step", xlim=(-0.03 * total, 1.02 * total))
    warm.set_ylim(min(0.0, rounds.get_ylim()[0]), 1.02)
    handles = {
        label: handle
        for axes in (warm, rounds)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    return figure


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
        for i, (past, colour) in enumerate(zip(run.rounds, _round_colours(len(run.rounds)), strict=True)):
            x = np.arange(len(run.sizes)) + (i - (len(run.rounds) - 1) / 2) * width
            axes.bar(x, _values(past.requested, run.sizes, ratio), 0.92 * width, color=colour, label=past.name)
            label = "as realised" if i == 0 else None
            axes.plot(x, _values(past.realised, run.sizes, ratio), **mark, label=label)
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


def _boards(run: Run) -> Figure | None:
    """Of the last validation: the costliest optimal plan, and a plan that can be drawn although it fails."""
    samples = next((past.samples for past in reversed(run.rounds) if past.samples), ())
    optimal = [sample for sample in samples if sample["optimal"]]
    failing = [sample for sample in samples if not all(sample["checks"].values()) and sample["checks"]["parsable"]]
    chosen = [max(optimal, key=lambda sample: sample["cost"])] if optimal else []
    chosen += [max(failing, key=lambda sample: sample["instance"]["size"])] if failing else []
    if not chosen:
        return None
    figure = Figure(figsize=(3.7 * len(chosen), 4.0), layout="constrained")
    for axes, sample in zip(figure.subplots(1, len(chosen), squeeze=False).flat, chosen, strict=True):
        instance = _instance(sample["instance"])
        plan = text.parse(
            sample["answer"], max_size=instance.max_size, max_agents=instance.max_agents, max_steps=MAX_STEPS
        )
        render.draw(instance, plan, axes)
        axes.set_title(_verdict(sample))
    return figure


def _verdict(sample: dict[str, Any]) -> str:
    if sample["optimal"]:
        return f"optimal, cost {sample['cost']}"
    failed = next(name for name, passed in sample["checks"].items() if not passed)
    return f"fails: {NAMES[failed]}"


def _instance(board: dict[str, Any]) -> Instance:
    size = board["size"]
    holes = np.zeros((size, size), bool)
    for row, column in board["holes"]:
        holes[row, column] = True
    starts, goals = (
        np.array([row * size + column for row, column in board[key]], np.int32) for key in ("starts", "goals")
    )
    return Instance(
        size=np.int32(size), num_agents=np.int32(len(starts)), holes=holes.ravel(), starts=starts, goals=goals
    )


def _values(ratio_of: Any, sizes: Sequence[int], ratio: str) -> np.ndarray:
    values = (ratio_of(size, ratio) for size in sizes)
    return np.array([np.nan if value is None else value for value in values], float)


def _round_colours(count: int) -> list[Any]:
    """Light to dark in the order of the rounds; cividis keeps that order under colour-vision deficiencies."""
    return [matplotlib.colormaps["cividis"](share) for share in np.linspace(0.85, 0.15, count)]


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Centred, over about ``window`` values; over what is there at the ends."""
    half = window // 2
    return np.array([values[max(0, i - half) : i + half + 1].mean() for i in range(len(values))])


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()

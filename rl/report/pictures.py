"""The pictures of a run, drawn off-screen and returned as PNG bytes; writes no file."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from engineer.context import FAILURES
from engineer.evidence import CHECKS, wilson
from jaxlake.config import MAX_HOLE
from jaxlake.kinds import Kind
from rl.report import curves, samples, style
from rl.report.run import RATIOS, Round, Run, Stage
from rl.report.style import BLUE, CHECK_COLOURS, GREY, PURPLE, SKY, VERMILION

NOTABLE = 0.01
"""Distance of a realised ratio from the requested one from which it is written."""
WIDE = 6
"""Rounds up to which a cell of the allocation has room for the realised ratio."""


def _learning(run: Run) -> Figure | None:
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


def _warm_start(warm: Axes, run: Run) -> None:
    taught = [row for row in run.warm_start if row.get("plan_loss") is not None]
    steps = [row["step"] for row in taught]
    likelihood = style.running_mean(np.exp(-style.values(taught, "plan_loss")), len(taught) // 20)
    warm.plot(steps, likelihood, color=GREY, linewidth=1.6, label="mean token likelihood")
    last = max(steps, default=1)
    _validation_points(warm, [(0, run.stage("before")), (last, run.stage("warm start"))], shift=0.035 * last)
    warm.set(xlabel="supervised step", xlim=(-0.12 * last, 1.06 * last))
    warm.text(0.5, 1.02, "warm start", ha="center", transform=warm.transAxes)


def _rounds(rounds: Axes, run: Run) -> None:
    total, numbers = len(run.steps), np.arange(1, len(run.steps) + 1)
    for key, colour, label in (("valid", SKY, "training: valid share"), ("reward", PURPLE, "training: reward")):
        series = style.values(run.steps, key)
        if np.isnan(series).all():  # a network has no reward beside its valid share
            continue
        rounds.plot(numbers, series, color=colour, alpha=0.3, linewidth=0.7)
        smooth = style.smooth(series, run.steps)
        rounds.plot(numbers, smooth, ".-", color=colour, linewidth=1.6, markersize=2, label=label)
    style.mark_rounds(rounds, run.steps)
    points = [(0, run.stage("warm start") or run.stage("before"))]
    points += [(end, run.stage(f"round {run.steps[begin]['round']}")) for begin, end in style.spans(run.steps)]
    _validation_points(rounds, points, shift=0.011 * total)
    rounds.set(xlabel="reinforcement learning step", xlim=(-0.03 * total, 1.02 * total))
    rounds.xaxis.set_major_locator(MaxNLocator(integer=True))


def _validation_points(axes: Axes, points: Sequence[tuple[float, Stage | None]], shift: float) -> None:
    """Draw greedy and sampled validity with intervals; greedy a little before its step, so that both can be read."""
    reached = [(x, stage.evidence) for x, stage in points if stage is not None]
    greedy = [(x, e.valid / e.n, *wilson(e.valid, e.n)) for x, e in reached]
    sampled = [
        (x, e.sampled_valid, e.sampled_valid - 1.96 * e.sampled_se, e.sampled_valid + 1.96 * e.sampled_se)
        for x, e in reached
        if e.sampled_valid is not None and e.sampled_se is not None
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


def _failures(run: Run) -> Figure:
    """Draw failing answers in percent by kind, stacked by first failing check, a panel for each of up to ten stages."""
    stages = [run.stages[i] for i in style.evenly(len(run.stages), 10)]
    figure, panels = style.panels(len(stages), 2.1, run.axis_name, "first failing, %", abreast=5)
    seen = [check for check in CHECKS if any(stage.evidence.first_failures[check] for stage in run.stages)]
    by_size = run.row_name == "size"
    places = {kind: kind.size if by_size else place for place, kind in enumerate(run.targets)}
    for axes, stage in zip(panels, stages, strict=True):
        rows = stage.evidence.by_kind
        at, bottom = [places[row.kind] for row in rows], np.zeros(len(rows))
        for check in seen:
            share = np.array([100 * row.first_failures[check] / row.n for row in rows])
            drawn = {"color": CHECK_COLOURS[check], "edgecolor": "white", "linewidth": 0.5}
            axes.bar(at, share, 0.78, bottom, label=FAILURES[check], **drawn)
            bottom += share
        axes.set_title(stage.title)
        axes.set_xticks(list(places.values()), list(map(str, places)))
        if not by_size:
            axes.tick_params(axis="x", rotation=60, labelsize=7)
        axes.tick_params(axis="x", length=0)
    panels[0].set(ylim=(0, 104), yticks=range(0, 101, 20))
    style.legend(figure, panels[:1], columns=1 + len(stages), side="upper")
    return figure


def _allocation(run: Run) -> Figure | None:
    """Draw a panel per ratio, kinds down and rounds across: requested, and realised below where that differs."""
    if not run.rounds:
        return None
    hole = {"size": "hole: share of cells", "kind": "hole: density"}[run.row_name]
    titles = {"data": "data: share of boards", "hole": hole, "wait": "wait: share of boards"}
    most = {"data": max(max(past.config.data) for past in run.rounds), "hole": MAX_HOLE, "wait": 1.0}
    few = len(run.rounds) <= WIDE
    figure, panels = style.panels(3, (0.45 if few else 0.3) * len(run.chosen) + 0.5, "round", run.axis_name, 3)
    for axes, ratio in zip(panels, RATIOS, strict=True):
        requested, realised = (
            np.array([[value(past, kind, ratio) for past in run.rounds] for kind in run.chosen], float)
            for value in (Round.requested, Round.realised)
        )
        if ratio == "data":
            requested[requested == 0] = np.nan  # a kind without boards has no cell, as it has no other ratio
        texts = [[f"{share:.2f}".removeprefix("0") for share in row] for row in requested]
        for i, j in np.argwhere(np.abs(realised - requested) > NOTABLE) if few else ():
            texts[i][j] += f"\n({realised[i, j]:.2f})".replace("(0", "(")
        style.heat(axes, requested / most[ratio], texts, 8 if few else 7)
        axes.set_title(titles[ratio])
        axes.set_yticks(range(len(run.chosen)), list(map(str, run.chosen)))
        axes.set_xticks(range(len(run.rounds)), [str(past.index) for past in run.rounds])
    return figure


def _kinds(run: Run) -> Figure | None:
    """Draw the valid share of sampled answers, kinds down and validations across."""
    rows = {kind: [_sampled(stage, kind) for stage in run.stages] for kind in run.targets}
    shares = np.array(list(rows.values()), float)
    if len(run.stages) < 2 or np.isnan(shares).all():
        return None
    figure = Figure(figsize=(max(4.5, 0.72 * len(run.stages) + 1.2), 0.3 * len(rows) + 1.1), layout="constrained")
    axes = figure.subplots()
    style.heat(axes, shares, [[f"{100 * share:.0f}" for share in row] for row in shares], 8)
    axes.set_yticks(range(len(rows)), list(map(str, rows)))
    axes.set_xticks(range(len(run.stages)), [stage.name for stage in run.stages], rotation=30, ha="right")
    axes.set_ylabel(run.axis_name)
    axes.set_title("valid % of sampled answers")
    return figure


def _sampled(stage: Stage, kind: Kind) -> float | None:
    return next((row.sampled_valid for row in stage.evidence.by_kind if row.kind == kind), None)


PICTURES: dict[str, style.Drawing] = {
    "learning.png": (
        _learning,
        "Training and validation over the run. Points are validations with 95 % intervals; dashed lines "
        "mark where the environment was redesigned.",
    ),
    "kinds.png": (
        _kinds,
        "The valid share of each kind of boards after each round; 5x4 has 5 x 5 cells and four agents, and 5 has two.",
    ),
    "training.png": (
        curves.training,
        "The answers of each step and the update made on them; thick lines are running "
        "means, dashed ones mark where the environment was redesigned.",
    ),
    "allocation.png": (
        _allocation,
        "The environment of each round as requested, of kinds that engineers gave boards to; in brackets as realised "
        "where that differs, if there are at most six rounds.",
    ),
    "failures.png": (_failures, "Greedy answers that fail, by their first failing check, at up to ten validations."),
    "samples.png": (
        samples.picture,
        "The same boards through the validations, with the plans that the policy answered; no paths where the "
        "answer could not be read.",
    ),
}

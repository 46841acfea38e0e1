"""The pictures of a run, drawn off-screen; writes no file."""

import numpy as np
from matplotlib.figure import Figure

from engineer.context import FAILURES
from engineer.evidence import CHECKS
from jaxlake.config import FIELDS, MAX_HOLE
from rl.report import curves, samples, style
from rl.report.run import Run, axis_name

NOTABLE = 0.01
"""Distance of a realised ratio from the requested one from which it is written."""
FEW = 6
"""Rounds up to which a cell of the allocation has room for the realised ratio."""


def _failures(run: Run) -> Figure:
    """Draw failing answers in percent by kind, stacked by first failing check, a panel for each of up to ten stages."""
    stages = [run.stages[i] for i in style.evenly(len(run.stages), 10)]
    figure, panels = style.panels(len(stages), 2.1, axis_name(run.targets), "first failing, %", abreast=5)
    seen = [check for check in CHECKS if any(stage.evidence.first_failures[check] for stage in run.stages)]
    places = {kind: place for place, kind in enumerate(run.targets)}
    for axes, stage in zip(panels, stages, strict=True):
        rows = stage.evidence.by_kind
        at, bottom = [places[row.kind] for row in rows], np.zeros(len(rows))
        for check in seen:
            share = np.array([100 * row.first_failures[check] / row.n for row in rows])
            drawn = {"color": style.CHECK_COLOURS[check], "edgecolor": "white", "linewidth": 0.5}
            axes.bar(at, share, 0.78, bottom, label=FAILURES[check], **drawn)
            bottom += share
        axes.set_title(stage.title)
        axes.set_xticks(range(len(places)), list(map(str, places)))
        axes.tick_params(axis="x", length=0)
        if run.row_name == "kind":
            axes.tick_params(axis="x", rotation=60, labelsize=7)
    panels[0].set(ylim=(0, 104), yticks=range(0, 101, 20))
    style.legend(figure, panels[:1], columns=1 + len(stages), side="upper")
    return figure


def _allocation(run: Run) -> Figure | None:
    """Draw a panel per ratio, kinds down and rounds across: requested, and realised below where that differs."""
    if not run.rounds:
        return None
    hole = "hole: share of cells" if run.row_name == "size" else "hole: density"
    titles = {"data": "data: share of boards", "hole": hole, "wait": "wait: share of boards"}
    most = {"data": max(max(past.config.data) for past in run.rounds), "hole": MAX_HOLE, "wait": 1.0}
    few = len(run.rounds) <= FEW
    height = (0.45 if few else 0.3) * len(run.designed) + 0.5
    figure, panels = style.panels(3, height, "round", axis_name(run.kinds), abreast=3)
    for axes, ratio in zip(panels, FIELDS, strict=True):
        requested, realised = (
            np.array([[row.get(kind, {}).get(ratio) for row in rows] for kind in run.designed], float)
            for rows in ([past.requested for past in run.rounds], [past.realised for past in run.rounds])
        )
        texts = style.decimals(requested)
        for i, j in np.argwhere(np.abs(realised - requested) > NOTABLE) if few else ():
            texts[i][j] += f"\n({realised[i, j]:.2f})".replace("(0", "(")
        indices = [past.index for past in run.rounds]
        style.heat(axes, requested / most[ratio], run.designed, indices, texts, 8 if few else 7)
        axes.set_title(titles[ratio])
    return figure


def _kinds(run: Run) -> Figure | None:
    """Draw the valid share of sampled answers, kinds down and validations across."""
    rows = [[stage.share("sampled", kind) for stage in run.stages] for kind in run.targets]
    shares = np.array([[share and share.value for share in row] for row in rows], float)
    if len(run.stages) < 2 or np.isnan(shares).all():
        return None
    figure = Figure(figsize=(max(4.5, 0.72 * len(run.stages) + 1.2), 0.3 * len(rows) + 1.1), layout="constrained")
    axes = figure.subplots()
    texts = [[f"{100 * share:.0f}" for share in row] for row in shares]
    style.heat(axes, shares, run.targets, [stage.name for stage in run.stages], texts)
    axes.set_xticklabels(axes.get_xticklabels(), rotation=30, ha="right")
    axes.set(ylabel=axis_name(run.targets), title="valid % of sampled answers")
    return figure


PICTURES: dict[str, style.Drawing] = {
    "learning.png": curves.learning,
    "kinds.png": _kinds,
    "training.png": curves.training,
    "allocation.png": _allocation,
    "failures.png": _failures,
    "samples.png": samples.picture,
}

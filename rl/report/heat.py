"""Heat maps over kinds of boards: the environment of each round, and what the policy has forgotten."""

import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxlake.config import MAX_HOLE
from rl.report import style
from rl.report.run import RATIOS, Round, Run

SHOWN = 0.01
"""Distance of a realised ratio from the requested one from which its value is written."""
MOST_ABREAST = 4
"""Rounds up to which the three panels of an allocation stand side by side."""


def allocation(run: Run) -> Figure | None:
    """Draw a panel per ratio, kinds down and rounds across: requested above, realised in the corner below."""
    if not run.rounds:
        return None
    hole = {"size": "hole: share of cells", "kind": "hole: density"}[run.row_name]
    titles = {"data": "data: share of boards", "hole": hole, "wait": "wait: share of boards"}
    most = {"data": max(max(past.config.data) for past in run.rounds), "hole": MAX_HOLE, "wait": 1.0}
    count, tall = len(run.rounds), 0.52 * len(run.designed) + 0.95
    abreast = count <= MOST_ABREAST
    shape, size = ((1, 3), (9.0, tall)) if abreast else ((3, 1), (max(6.0, 0.75 * count + 1), 3 * tall))
    figure = Figure(figsize=size, layout="constrained")
    for axes, ratio in zip(figure.subplots(*shape).flat, RATIOS, strict=True):
        requested, realised = (
            np.array([[value(past, kind, ratio) for past in run.rounds] for kind in run.designed], float)
            for value in (Round.requested, Round.realised)
        )
        _cells(axes, requested / most[ratio])
        _corners(axes, requested, realised, most[ratio])
        axes.set_title(titles[ratio])
        axes.set_yticks(range(len(run.designed)), list(map(str, run.designed)))
        axes.set_xticks(range(count), [_under(run.rounds, i, ratio) for i in range(count)], fontsize=7.5)
        axes.set_ylabel(run.axis_name if not abreast or ratio == "data" else "")
    return figure


def forgetting(run: Run) -> Figure | None:
    """Draw valid % of greedy answers, kinds down and validations across; below it what a kind lost since its best."""
    stages = run.stages
    if len(stages) < 2:
        return None
    rows = [
        [next((row.valid / row.n for row in stage.evidence.by_kind if row.kind == kind), np.nan) for stage in stages]
        for kind in run.targets
    ]
    shares = np.array([*rows, [stage.valid_share for stage in stages]], float)
    figure = Figure(figsize=(max(4.5, 1.1 * len(stages) + 1.2), 0.5 * len(shares) + 0.8), layout="constrained")
    axes = figure.subplots()
    percent = np.rint(100 * shares)
    lost = percent - np.fmax.accumulate(percent, axis=1)
    _cells(
        axes,
        shares,
        [
            [f"{value:.0f}" + (f"\n({fall:.0f})" if fall < 0 else "") for value, fall in zip(*row, strict=True)]
            for row in zip(percent, lost, strict=True)
        ],
    )
    axes.axhline(len(shares) - 1.5, color="black", linewidth=0.8)
    names = [stage.title.replace("after ", "after\n") for stage in stages]
    axes.set_xticks(range(len(stages)), names)
    axes.set_yticks(range(len(shares)), [*map(str, run.targets), "all"])
    axes.set_ylabel(run.axis_name)
    return figure


def entropy(shares: Sequence[float]) -> float:
    """Return the entropy of a distribution in nats: 0 where one kind has all data, log n where n have the same."""
    return -sum(share * math.log(share) for share in shares if share > 0)


def _under(rounds: Sequence[Round], i: int, ratio: str) -> str:
    """Name a round, and say how far its ratios are from those of the round before."""
    current, lines = rounds[i].config, [f"round {rounds[i].index}"]
    if ratio == "data":
        lines.append(f"entropy {entropy(current.data):.2f}")
    if i and rounds[i - 1].config.kinds == current.kinds:
        pairs = zip(getattr(rounds[i - 1].config, ratio), getattr(current, ratio), strict=True)
        steps = [abs(after - before) for before, after in pairs]
        lines.append(f"L1 step {sum(steps):.2f}" if ratio == "data" else f"step {sum(steps) / len(steps):.2f}")
    return "\n".join(lines)


def _cells(axes: Axes, shares: np.ndarray, texts: Sequence[Sequence[str]] = ()) -> None:
    style.heat(axes, shares, texts)
    rows, columns = shares.shape
    axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color="white", linewidth=1.5)
    axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, color="white", linewidth=1.5)


def _corners(axes: Axes, requested: np.ndarray, realised: np.ndarray, most: float) -> None:
    """Write the requested values, and in the lower right half of each cell the realised one with its own shade."""
    for (i, j), asked in np.ndenumerate(requested):
        got = realised[i, j]
        if np.isnan(asked):
            continue
        differs = not np.isnan(got) and abs(got - asked) > SHOWN
        if differs:
            corner = [(j + 0.5, i - 0.5), (j + 0.5, i + 0.5), (j - 0.5, i + 0.5)]
            shade = matplotlib.colormaps[style.SHADES](got / most)
            axes.add_patch(matplotlib.patches.Polygon(corner, facecolor=shade, edgecolor="white", linewidth=0.7))
            ink = style.ink(float(got / most))
            axes.text(j + 0.46, i + 0.42, f"{got:.2f}", ha="right", va="bottom", fontsize=7.5, color=ink)
        x, y, ha, va = (j - 0.46, i - 0.42, "left", "top") if differs else (j, i, "center", "center")
        axes.text(x, y, f"{asked:.2f}", ha=ha, va=va, fontsize=8, color=style.ink(asked / most))

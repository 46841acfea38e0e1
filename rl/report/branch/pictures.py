"""The pictures of a report on branches, drawn off-screen and returned as PNG bytes; writes no file."""

import itertools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from rl.report import style
from rl.report.branch.findings import ALL, findings
from rl.report.branch.gains import Branches, Design, State
from rl.report.branch.tables import correlation
from rl.report.style import BLUE, GREEN, GREY, ORANGE, VERMILION

_ORIGINS = {"random": (BLUE, "o"), "all data on one kind": (ORANGE, "s"), "an engineer's": (GREEN, "D")}
_ABREAST = 3
_NORMAL = 1.96
"""Standard errors to each side of a 95 % interval."""


def draw_all(branches: Branches) -> dict[str, style.Picture]:
    """Return pictures by file name; one for which there is nothing to show is left out."""
    return style.draw(PICTURES, branches)


def _origin(design: Design) -> str:
    random, one_kind, engineer = _ORIGINS
    return one_kind if design.kind is not None else random if design.is_random else engineer


def _retest(branches: Branches) -> Figure | None:
    states = [state for state in branches.states if state.repeats > 1]
    if not states:
        return None
    single = findings(branches).retests[0].single
    labels = "gain in a repeat, points", "gain in another, points"
    figure, grid = style.panels(len(states), 2.7, *labels, abreast=_ABREAST, sharex=False, sharey=False)
    for axes, state in zip(grid, states, strict=True):
        known = single is not None and single.by_state.get(state.name) is not None
        low, high = 100 * state.gains.min(), 100 * state.gains.max()
        margin = 0.05 * (high - low) or 1.0
        axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
        axes.plot(axes.get_xlim(), axes.get_ylim(), color=GREY, linewidth=0.8, zorder=1)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        for one, other in itertools.combinations(range(state.repeats), 2):
            _by_origin(axes, state, 100 * state.gains[:, one], 100 * state.gains[:, other])
        axes.set_title(state.name + (f": {single.by_state[state.name]:.2f}" if known else ""))
    style.legend(figure, grid, len(_ORIGINS), "upper")
    return figure


def _gains(branches: Branches) -> Figure:
    count = len(branches.states)
    figure = Figure(figsize=(style.WIDTH, 2.3 * count + 0.7), layout="constrained")
    grid = list(figure.subplots(count, 1, squeeze=False).flat)
    for axes, state in zip(grid, branches.states, strict=True):
        order = state.gains.mean(-1).argsort(kind="stable")
        place = np.empty(len(order))
        place[order] = np.arange(1, len(order) + 1)
        look: Any = {"fmt": ".", "color": GREY, "markersize": 3, "elinewidth": 0.7, "zorder": 2}
        for repeat in range(state.repeats):
            shift = 0.6 * ((repeat + 0.5) / state.repeats - 0.5)
            gains, errors = (100 * values[:, repeat] for values in (state.gains, state.errors))
            axes.errorbar(
                place + shift, gains, _NORMAL * errors, label="single repeats" if not repeat else None, **look
            )
        _by_origin(axes, state, place, 100 * state.gains.mean(-1))
        axes.axhline(0, color="#444444", linewidth=0.9, zorder=1)
        axes.set_title(state.name)
        axes.set_xlim(0, len(order) + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.supxlabel("designs in ascending order of gain", fontsize=9)
    figure.supylabel("gain, points", fontsize=9)
    style.legend(figure, grid, len(_ORIGINS) + 1, "upper")
    return figure


def _transfer(branches: Branches) -> Figure | None:
    transfer = findings(branches).transfer
    if transfer is None:
        return None
    gains = 100 * np.array(transfer.gains)
    rows, columns = gains.shape
    figure = Figure(figsize=(max(4.5, 0.42 * columns + 1.4), 0.3 * rows + 1.1), layout="constrained")
    axes = figure.subplots()
    most = max(gains.max(), 1e-9)
    style.heat(axes, np.clip(gains / most, 0, 1), [[f"{round(v)}" for v in row] for row in gains.tolist()], 7)
    for row, kind in enumerate(transfer.trained_on):
        if kind in transfer.gained_on:
            corner = (transfer.gained_on.index(kind) - 0.47, row - 0.47)
            axes.add_patch(Rectangle(corner, 0.94, 0.94, fill=False, edgecolor=VERMILION, linewidth=1.2))
    axes.set_xticks(range(columns), transfer.gained_on, rotation=60, ha="right")
    axes.set_yticks(range(rows), transfer.trained_on)
    axes.set_xlabel("gained on")
    axes.set_ylabel("trained on")
    return figure


def _predictors(branches: Branches) -> Figure | None:
    shown = [one for one in findings(branches).predictions if one.group == ALL and one.correlation is not None]
    if not shown:
        return None
    label = "gain, mean over repeats, points"
    figure, grid = style.panels(len(shown), 2.6, None, label, abreast=_ABREAST, sharex=False, sharey=False)
    colours = style.in_order(len(branches.states)) if len(branches.states) > 1 else [BLUE]
    for axes, one in zip(grid, shown, strict=True):
        for state, colour in zip(branches.states, colours, strict=True):
            values = state.predictors.get(one.predictor, np.full(len(state.designs), np.nan))
            gains = 100 * state.gains.mean(-1)
            axes.plot(values, gains, "o", color=colour, markersize=3.5, alpha=0.8, label=state.name)
        axes.set_title(correlation(one.correlation))
        axes.set_xlabel(one.predictor)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    if len(branches.states) > 1:
        style.legend(figure, grid[:1], 4, "upper")
    return figure


def _by_origin(axes: Axes, state: State, x: np.ndarray, y: np.ndarray) -> None:
    """Draw a mark for each design, by who proposed it."""
    origins = np.array([_origin(design) for design in state.designs])
    for name, (colour, mark) in _ORIGINS.items():
        if (own := origins == name).any():
            axes.plot(x[own], y[own], mark, color=colour, markersize=4, alpha=0.8, label=name, zorder=3)


PICTURES: dict[str, style.Drawing] = {
    "retest.png": (
        _retest,
        "Gains of the same designs in two repeats with different keys, a point for each design and pair of repeats; in "
        "the title the rank correlation. On the line both are equal.",
    ),
    "gains.png": (
        _gains,
        "Gains of all designs in ascending order of their mean over repeats. Grey: single repeats, with 95 % for other "
        "boards.",
    ),
    "transfer.png": (
        _transfer,
        "Points gained on each kind of boards (across) by training on one kind alone (down), mean over repeats and "
        "states; shaded by gain, white where nothing was gained or some was lost. Framed: the kind trained on. Kinds "
        "are in ascending order of difficulty.",
    ),
    "predictors.png": (
        _predictors,
        "What was known of each design before it was trained on, and its gain; above the rank correlation within a "
        "state [95 % for other designs].",
    ),
}

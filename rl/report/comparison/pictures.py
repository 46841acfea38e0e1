"""The pictures of a comparison, drawn off-screen; writes no file."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rl.lab.statistics import Interval, t_interval
from rl.report import style
from rl.report.comparison.findings import Key, findings
from rl.report.comparison.runs import ComparisonResult
from rl.report.run import axis_name
from rl.report.style import BLUE, GREY, SKY, VERMILION

MANY_KINDS = 10
"""Kinds of boards up to which the cells of a heat map have their values written in."""


def _validation(comparison: ComparisonResult) -> Figure | None:
    curves = {name: 100 * np.array([*by_seed.values()]) for name, by_seed in findings(comparison).curves.items()}
    if not curves:
        return None
    figure, grid = style.panels(len(curves), 1.75, "after round", "valid samples, %")
    for axes, (name, by_seed) in zip(grid, curves.items(), strict=True):
        rounds = range(by_seed.shape[1])
        for reference, line in ((comparison.baseline, "-"), (comparison.ceiling, "--")):
            if reference is not None:
                mean = curves[reference].mean(axis=0)
                axes.plot(rounds, mean, color=GREY, linestyle=line, linewidth=1.3, label=reference, zorder=3)
        axes.plot(rounds, by_seed.T, color=SKY, linewidth=0.5, alpha=0.7, zorder=1)
        axes.plot(rounds, by_seed.mean(axis=0), "o-", color=BLUE, linewidth=1.6, markersize=3, zorder=4)
        if len(by_seed) > 1:
            ends = np.clip([t_interval(shares) for shares in by_seed.T], 0, 100).T
            axes.fill_between(rounds, *ends, color=BLUE, alpha=0.25, linewidth=0, zorder=2)
        axes.set_title(name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    grid[0].set_ylim(0, None)
    style.legend(figure, grid[:1], 2, "upper")
    return figure


def _differences(comparison: ComparisonResult) -> Figure | None:
    """Draw a panel for each number of agents, a row for each engineer, a mark for each metric."""
    less = findings(comparison).differences
    keys = [key for key in less if key.metric == "valid"]
    if not keys:
        return None
    names, _, groups = (list(dict.fromkeys(part)) for part in zip(*keys, strict=True))
    label = f"difference from {comparison.baseline}, percentage points"
    figure, grid = style.panels(len(groups), 0.38 * len(names) + 0.75, label, abreast=5)
    for axes, agents in zip(grid, groups, strict=True):
        axes.axvline(0, color="#444444", linewidth=0.9, zorder=1)
        for metric, colour, mark, shift in (("valid", BLUE, "o", -0.17), ("optimal", VERMILION, "D", 0.17)):
            for row, name in enumerate(names):
                _whisker(axes, less[Key(name, metric, agents)], row + shift, colour, mark)
            axes.plot([], [], marker=mark, color=colour, linewidth=3, label=metric)
        axes.set_title("all agents" if agents is None else f"{agents} agents")
        axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
        axes.grid(False, axis="y")
        axes.grid(axis="x")
    style.legend(figure, grid[:1], 2, "upper")
    return figure


def _whisker(axes: Axes, interval: Interval, y: float, colour: str, mark: str) -> None:
    """Draw an interval in percent, thin by Student's t and thick by bootstrap; white inside where it holds zero."""
    seeds = 100 * np.array(interval.by_seed)
    axes.plot(seeds, [y + 0.14] * len(seeds), ".", color=colour, markersize=3.5, markeredgewidth=0)
    if interval.t_low is not None and interval.t_high is not None:
        axes.plot([100 * interval.t_low, 100 * interval.t_high], [y, y], "|-", color=colour, linewidth=0.8)
    axes.plot([100 * interval.low, 100 * interval.high], [y, y], color=colour, linewidth=2.6)
    face = colour if interval.is_clear else "white"
    axes.plot(100 * interval.mean, y, mark, color=colour, markerfacecolor=face, markersize=5)


def _allocation(comparison: ComparisonResult) -> Figure:
    """Draw a heat map for each engineer: data by kind (down) and round (across), mean over the seeds."""
    data = {
        name: np.mean([[past.config.data for past in run.rounds] for run in runs.values()], axis=0).T
        for name, runs in comparison.runs.items()
    }
    kinds = next(iter(comparison.runs[comparison.baseline].values())).rounds[0].config.kinds
    most, few = max(shares.max() for shares in data.values()), len(kinds) <= MANY_KINDS
    figure, grid = style.panels(len(data), (0.27 if few else 0.14) * len(kinds) + 0.4, "round", axis_name(kinds))
    for axes, (name, shares) in zip(grid, data.items(), strict=True):
        texts = style.decimals(shares) if few else None
        style.heat(axes, np.sqrt(shares / most), kinds, range(shares.shape[1]), texts, 7)
        axes.set_title(name)
    return figure


PICTURES: dict[str, style.Drawing] = {
    "validation.png": _validation,
    "differences.png": _differences,
    "allocation.png": _allocation,
}

"""The pictures of a comparison, drawn off-screen and returned as PNG bytes; writes no file."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rl.report import style
from rl.report.comparison.arms import OUTCOMES, Arm, Comparison
from rl.report.comparison.findings import ALPHAS, OPTIMAL, START, VALID, findings
from rl.report.comparison.measures import AREA, CEILING, END, FLOOR, by_area, engineer_of_kind
from rl.report.comparison.tables import NAMES
from rl.report.run import RATIOS
from rl.report.style import BLUE, GREY, SKY, VERMILION
from rl.statistics import Interval, t_interval

_INTERVALS = (
    "Bar: 95 % by bootstrap over seeds and boards; black ticks: Student's t over the seeds; dots: the seeds. Filled "
    "where both exclude 0."
)

MANY_KINDS = 10
"""Kinds of boards up to which the cells of a heat map have their values written in."""
_SHOWN = (-120, 220)
"""Percent of headroom between which intervals are drawn: those of engineers far below the floor are very wide."""

Series = tuple[str, str, str, Mapping[str, Interval]]
"""Label, colour, mark, and the intervals by engineer."""


def draw_all(comparison: Comparison) -> dict[str, style.Picture]:
    """Return pictures by file name; one for which the comparison holds nothing is left out."""
    return style.draw(PICTURES, comparison)


def _validation(comparison: Comparison) -> Figure | None:
    measured = by_area(findings(comparison).validated)
    if not measured:
        return None
    curves = {one.engineer: 100 * np.array(one.curves) for one in measured}
    references = {comparison.baseline: "-", engineer_of_kind(comparison, CEILING): "--"}
    figure, grid = style.panels(len(measured), 1.75, "after round", "valid samples, %")
    for axes, (name, by_seed) in zip(grid, curves.items(), strict=True):
        rounds = range(by_seed.shape[1])
        for reference, line in references.items():
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


def _headroom(comparison: Comparison) -> Figure | None:
    bounds = [engineer_of_kind(comparison, kind) for kind in (FLOOR, CEILING)]
    measured = [one for one in findings(comparison).validated if one.engineer not in bounds]
    rows = [one for one in measured if any(part.captured is not None for part in one.headroom.values())]
    if not rows:
        return None
    rows.sort(key=lambda one: one.headroom[AREA].captured or 0.0, reverse=True)
    figure = Figure(figsize=(6.2, 0.27 * len(rows) + 1.1), layout="constrained")
    axes = figure.subplots()
    for measure, colour, mark, shift in ((AREA, BLUE, "o", -0.15), (END, VERMILION, "D", 0.15)):
        for row, one in enumerate(rows):
            part = one.headroom[measure]
            if part.captured is not None:
                ends = 100 * np.array([part.low, part.high])
                axes.plot(np.clip(ends, *_SHOWN), [row + shift] * 2, color=colour, linewidth=2.6)
                for end, limit, arrow in zip(ends, _SHOWN, "<>", strict=True):
                    if end != limit == np.clip(end, *_SHOWN):
                        axes.plot(limit, row + shift, arrow, color=colour, markersize=5, clip_on=False)
                axes.plot(100 * part.captured, row + shift, mark, color=colour, markersize=5)
        axes.plot([], [], marker=mark, color=colour, linewidth=2.6, label=measure)
    for bound in (0, 100):
        axes.axvline(bound, color="#444444", linewidth=0.9, zorder=1)
    left, right = axes.get_xlim()
    axes.set_xlim(max(left, _SHOWN[0]), min(right, _SHOWN[1]))
    axes.set_yticks(range(len(rows)), [one.engineer for one in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"headroom captured, %; 0: {bounds[0]}, 100: {bounds[1]}")
    style.legend(figure, [axes], 2, "upper")
    return figure


def _differences(comparison: Comparison) -> Figure | None:
    differences = findings(comparison).differences
    names = [name for name in comparison.others if any(one.engineer == name for one in differences)]
    if not names:
        return None
    panels = []
    for agents in dict.fromkeys(one.agents for one in differences):
        series = [
            (
                metric,
                colour,
                mark,
                {one.engineer: one.interval for one in differences if (one.agents, one.metric) == (agents, metric)},
            )
            for metric, colour, mark in ((VALID, BLUE, "o"), (OPTIMAL, VERMILION, "D"))
        ]
        panels.append(("all agents" if agents is None else f"{agents} agents", series))
    return _forest(names, panels, f"difference from {comparison.baseline}, percentage points", legend=True)


def _moves(comparison: Comparison) -> Figure | None:
    moves = findings(comparison).moves
    seen = [o for o in OUTCOMES if any(abs(value) > 0 for one in moves for value in one.changes[o].by_seed)]
    panels = [(NAMES[o], [(o, BLUE, "o", {one.engineer: one.changes[o] for one in moves})]) for o in seen]
    label = "change, percentage points of all answers"
    return _forest(comparison.engineers, panels, label, legend=False) if panels else None


def _forest(names: Sequence[str], panels: Sequence[tuple[str, Sequence[Series]]], label: str, legend: bool) -> Figure:
    """Draw a row per engineer, a panel per group, a mark per series with its two intervals and its seeds."""
    tall = 0.2 * len(names) * (1 + len(panels[0][1])) / 1.6 + 0.75
    figure, grid = style.panels(len(panels), tall, label, abreast=5)
    lines, columns = grid[0].get_gridspec().get_geometry()
    figure.set_size_inches(max(5.0, 1.6 + 1.7 * columns), max(2.4, lines * tall + (0.4 if legend else 0.15)))
    for axes, (title, series) in zip(grid, panels, strict=True):
        axes.axvline(0, color="#444444", linewidth=0.9, zorder=1)
        for i, (name, colour, mark, by_engineer) in enumerate(series):
            shift = 0.34 * (i - (len(series) - 1) / 2)
            for row, engineer in enumerate(names):
                _whisker(axes, by_engineer[engineer], row + shift, colour, mark)
            axes.plot([], [], marker=mark, color=colour, linewidth=3, label=name)
        axes.set_title(title)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(axis="x")
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(4))
    if legend:
        style.legend(figure, grid[:1], len(panels[0][1]), "upper")
    return figure


def _whisker(axes: Axes, interval: Interval, y: float, colour: str, mark: str) -> None:
    """Draw an interval in percent; white inside where it holds zero."""
    seeds = 100 * np.array(interval.by_seed)
    axes.plot(seeds, [y + 0.14] * len(seeds), ".", color=colour, markersize=3.5, markeredgewidth=0, zorder=2)
    axes.plot([100 * interval.low, 100 * interval.high], [y, y], color=colour, linewidth=2.6, zorder=3)
    if interval.t_low is not None:
        axes.plot([100 * interval.t_low, 100 * interval.t_high], [y, y], color=colour, linewidth=0.8, zorder=2)
        axes.plot([100 * interval.t_low, 100 * interval.t_high], [y, y], "|", color="black", markersize=6, zorder=4)
    face = colour if interval.is_clear else "white"
    axes.plot(100 * interval.mean, y, mark, color=colour, markerfacecolor=face, markersize=5, zorder=5)


def _learning(comparison: Comparison) -> Figure | None:
    curves = {name: _curve(list(arms.values())) for name, arms in comparison.arms.items()}
    names = [name for name in comparison.engineers if curves[name] is not None]
    if not names:
        return None
    figure, grid = style.panels(len(names), 2.0, "reinforcement learning step", "valid answers, %")
    for axes, name in zip(grid, names, strict=True):
        if curves[comparison.baseline] is not None:
            axes.plot(*curves[comparison.baseline][:2], color=GREY, linewidth=1.2, label=comparison.baseline)
        steps, mean, low, high = curves[name]
        axes.fill_between(steps, low, high, color=SKY, alpha=0.35, linewidth=0)
        axes.plot(steps, mean, color=BLUE, linewidth=1.5, label="training")
        arms = list(comparison.arms[name].values())
        _checkpoints(axes, arms)
        style.mark_rounds(axes, arms[0].run.steps, named=False)
        axes.set_title(name)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    grid[0].set_ylim(0, max(1.0, grid[0].get_ylim()[1]))
    # The baseline's own panel draws its line twice; the others name all three.
    style.legend(figure, grid[:2][-1:], 3, "upper")
    return figure


def _curve(arms: Sequence[Arm]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Return steps, and mean, least and most over the seeds of the smoothed valid share, in percent."""
    count = min(len(arm.run.steps) for arm in arms)
    if not count or all(row.get(VALID) is None for arm in arms for row in arm.run.steps):
        return None
    smooth = [
        100 * style.smooth(style.values(rows, VALID), style.spans(rows), max(3, count // 12))
        for rows in (arm.run.steps[:count] for arm in arms)
    ]
    return np.arange(1, count + 1), np.mean(smooth, axis=0), np.min(smooth, axis=0), np.max(smooth, axis=0)


def _checkpoints(axes: Axes, arms: Sequence[Arm]) -> None:
    """Draw the valid shares on validation by step: the mean of the seeds, and from the least to the most."""
    steps = arms[0].run.steps
    ends = {f"round {steps[begin]['round']}": end for begin, end in style.spans(steps)}
    stages = {0: [arm.run.stage("warm start") or arm.run.stage("before") for arm in arms]}
    stages |= {end: [arm.run.stage(name) for arm in arms] for name, end in ends.items()}
    shares = {step: [100 * one.valid_share for one in own] for step, own in stages.items() if all(own)}
    if shares:
        seeds = np.array(list(shares.values()))
        means, least, most = seeds.mean(axis=1), seeds.min(axis=1), seeds.max(axis=1)
        look: Any = {"fmt": "D", "color": VERMILION, "markersize": 4, "capsize": 2.5, "linewidth": 1.2, "zorder": 3}
        axes.errorbar(list(shares), means, (means - least, most - means), label="validation", clip_on=False, **look)


def _allocation(comparison: Comparison) -> Figure | None:
    """Draw a column per engineer with a heat map per ratio, and as many columns abreast as a page holds."""
    designs = findings(comparison).designs
    if not designs:
        return None
    kinds, names = list(designs[0].config["data"]), comparison.engineers
    rounds = sorted({design.round for design in designs})
    most = {ratio: max(max(design.config[ratio].values()) for design in designs) or 1.0 for ratio in RATIOS}
    written = len(kinds) <= MANY_KINDS
    wide, tall = (0.36, 0.27) if written else (0.16, 0.14)  # of a cell, in inches
    wide, tall = max(1.15, wide * len(rounds)), len(RATIOS) * (tall * len(kinds) + 0.25) + 0.3
    columns = min(len(names), max(1, int(style.WIDTH / wide)))
    batches = [names[begin : begin + columns] for begin in range(0, len(names), columns)]
    figure = Figure(figsize=(1.0 + wide * columns, len(batches) * tall + 0.3), layout="constrained")
    for part, batch in zip(figure.subfigures(len(batches), 1, squeeze=False)[:, 0], batches, strict=True):
        grid = part.subplots(len(RATIOS), columns, squeeze=False, sharey=True)
        for (row, column), axes in np.ndenumerate(grid):
            if column >= len(batch):
                axes.remove()
                continue
            name, ratio = batch[column], RATIOS[row]
            own = {design.round: design.config[ratio] for design in designs if design.engineer == name}
            values = np.array([[own.get(k, {}).get(kind, np.nan) for k in rounds] for kind in kinds])
            texts = [[f"{v:.2f}".removeprefix("0") for v in line] for line in values] if written else ()
            style.heat(axes, values / most[ratio], texts, 7)
            axes.set_xticks(range(len(rounds)), rounds if ratio == RATIOS[-1] else [""] * len(rounds))
            axes.set_yticks(range(len(kinds)), kinds, fontsize=9 if written else 6)
            axes.set_title(name if row == 0 else "", fontsize=8)
            axes.set_ylabel("" if column else ratio)
    figure.supxlabel("round", fontsize=9)
    return figure


def _forgetting(comparison: Comparison) -> Figure | None:
    engineers = findings(comparison).forgetting
    sizes, checkpoints = engineers[0].sizes, engineers[0].checkpoints
    axis_name = next(iter(comparison.arms[comparison.baseline].values())).run.axis_name
    written = len(sizes) <= MANY_KINDS
    abreast = 3 if written and len(checkpoints) > 5 else 4
    tall = (0.3 if written else 0.14) * len(sizes) + 0.5
    figure, grid = style.panels(len(engineers), tall, "after round", axis_name, abreast)
    for axes, one in zip(grid, engineers, strict=True):
        valid = np.array(one.valid).T
        drops = np.maximum.accumulate(valid, axis=1) - valid
        texts = [
            [f"{100 * v:.0f}" + (f" (−{100 * d:.0f})" if round(100 * d) else "") for v, d in zip(*pair, strict=True)]
            for pair in zip(valid, drops, strict=True)
        ]
        style.heat(axes, valid, texts if written else (), 6.5)
        axes.set_title(one.engineer)
        axes.set_yticks(range(len(sizes)), sizes, fontsize=9 if written else 6)
        axes.set_xticks(
            range(len(checkpoints)), [name.replace("warm start", "warm").removeprefix("round ") for name in checkpoints]
        )
        axes.tick_params(axis="x", labelsize=7.5)
    return figure


def _tail(comparison: Comparison) -> Figure:
    """Draw a panel per engineer with a line per number of agents, and the baseline's dotted behind."""
    tails = findings(comparison).tails
    groups = list(dict.fromkeys(tail.agents for tail in tails))
    colours = dict(zip(groups, style.in_order(len(groups)), strict=True)) | {None: "black"}
    shares = {(tail.engineer, tail.agents): 100 * np.array(tail.values) for tail in tails}
    names = (START, *comparison.engineers)
    figure, grid = style.panels(len(names), 1.75, "worst boards, %", "valid answers to them, %")
    percent = 100 * np.array(ALPHAS)
    for axes, name in zip(grid, names, strict=True):
        for agents in groups:
            label = "all agents" if agents is None else f"{agents} agents"
            axes.plot(percent, shares[comparison.baseline, agents], ":", color=colours[agents], linewidth=1.2)
            axes.plot(percent, shares[name, agents], color=colours[agents], linewidth=1.6, label=label)
        axes.plot([], [], ":", color="black", linewidth=1.2, label=comparison.baseline)
        axes.set_title(name)
        axes.set_xticks(range(0, 101, 25))
    grid[0].set_ylim(0, None)
    style.legend(figure, grid[:1], len(groups) + 1, "upper")
    return figure


def _transitions(comparison: Comparison) -> Figure | None:
    moves = findings(comparison).moves
    seen = [i for i, o in enumerate(OUTCOMES) if any(one.before[o] or one.after[o] for one in moves)]
    names = [NAMES[OUTCOMES[i]] for i in seen]
    figure, grid = style.panels(len(moves), 0.27 * len(seen) + 0.6, "in the end", "after round 0")
    for axes, one in zip(grid, moves, strict=True):
        counts = np.array(one.matrix)[np.ix_(seen, seen)]
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        style.heat(axes, shares, [[str(count) if count else "" for count in row] for row in counts.tolist()], 6.5)
        axes.set_xticks(range(len(seen)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=7)
        axes.set_yticks(range(len(seen)), names, fontsize=7)
        axes.set_title(one.engineer)
    return figure


PICTURES: dict[str, style.Drawing] = {
    "validation.png": (
        _validation,
        "The runs' own validation by engineer, the largest area first: share of samples that are valid, after round 0, "
        "which all have in common, and after each designed round. Thick: mean over the seeds, with Student's 95 % "
        "interval; thin: the seeds; grey: the baseline, and dashed hindsight where there is one.",
    ),
    "headroom.png": (
        _headroom,
        f"Headroom captured, (engineer - {FLOOR}) / ({CEILING} - {FLOOR}), of the area under the validation curve and "
        "of its end: ratio of means over common seeds, with a 95 % interval by paired bootstrap over seeds. "
        "An arrow: it goes further.",
    ),
    "differences.png": (
        _differences,
        "Each engineer less the baseline on the same seeds and held-out boards, mean over the board sizes, by "
        f"number of agents. {_INTERVALS}",
    ),
    "learning.png": (
        _learning,
        "Line: valid answers in training, each engineer on boards of its own; points: greedy answers on the "
        "common validation. Mean over the seeds, with the range of the seeds; grey: the baseline. Dashed: a redesign.",
    ),
    "allocation.png": (
        _allocation,
        "What the engineers asked for, mean over the seeds: share of the boards, share of holes, share of "
        "boards that need a wait, by size or kind of boards (down) and round (across). Who keeps a round asks for what "
        "the generator made of it: small boards have few cells to make holes of.",
    ),
    "forgetting.png": (
        _forgetting,
        "Valid % of greedy answers on validation by size or kind of boards (down), mean over the seeds; in brackets, "
        "where there is room, the fall below an earlier checkpoint. Some fall by chance where nothing is forgotten.",
    ),
    "tail.png": (
        _tail,
        "Mean over the worst boards (conditional value at risk), on the right over all; a board counts by its valid "
        "share over the seeds, and the worst are chosen by the same answers. Dotted: the baseline.",
    ),
    "failures.png": (
        _moves,
        "Held-out answers by first failing check: share at the end less share after round 0, which all engineers "
        f"have in common. {_INTERVALS}",
    ),
    "transitions.png": (
        _transitions,
        "What became of the answers after round 0 (down) in the end (across), of all seeds: counts, shaded by "
        "share of the row.",
    ),
}

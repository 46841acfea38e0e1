"""The pictures of a run, drawn off-screen and returned as PNG bytes; writes no file."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from engineer.context import FAILURES as NAMES
from engineer.evidence import CHECKS, KindEvidence, wilson
from jaxlake.kinds import Kind, row_name
from rl.report import boards, curves, heat, published, style
from rl.report.run import Run, Stage
from rl.report.style import BLUE, CHECK_COLOURS, CHECK_MARKS, GREY, PURPLE, SKY, VERMILION


def draw_all(run: Run, names: Sequence[str] | None = None) -> dict[str, style.Picture]:
    """Return pictures by file name, all or those named; what the run holds nothing for yet is left out."""
    return style.draw({name: PICTURES[name] for name in names or PICTURES}, run)


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
    total = len(run.steps)
    parts = style.spans(run.steps)
    for key, colour, label in (("valid", SKY, "training: valid share"), ("reward", PURPLE, "training: reward")):
        series = style.values(run.steps, key)
        if np.isnan(series).all():  # a network has no reward beside its valid share
            continue
        rounds.plot(np.arange(1, total + 1), series, color=colour, alpha=0.3, linewidth=0.7)
        smooth = style.smooth(series, parts, total // 20)
        rounds.plot(np.arange(1, total + 1), smooth, color=colour, linewidth=1.6, label=label, **style.marks(total))
    style.mark_rounds(rounds, run.steps)
    ends = {run.steps[begin]["round"]: end for begin, end in parts}
    points = [
        (0, run.stage("warm start") or run.stage("before")),
        *((end, run.stage(f"round {index}")) for index, end in ends.items()),
    ]
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


def _failures(run: Run) -> Figure:
    """Draw failing answers in percent, two panels per stage: above stacked by first failing check, below by any."""
    columns = len(run.stages) if len(run.stages) <= 5 else 4
    blocks = -(-len(run.stages) // columns)
    figure = Figure(figsize=(max(4.5, 1.9 * columns), 4.2 * blocks + 0.6), layout="constrained")
    grid = figure.subplots(2 * blocks, columns, sharey=True, squeeze=False)
    seen = [check for check in CHECKS if any(row.any_failures[check] for s in run.stages for row in s.evidence.by_kind)]
    places = run.places(run.targets)
    for i, stage in enumerate(run.stages):
        above, below = grid[2 * (i // columns) : 2 * (i // columns) + 2, i % columns]
        rows = stage.evidence.by_kind
        at, bottom = [places[row.kind] for row in rows], np.zeros(len(rows))
        for check in seen:
            colour = CHECK_COLOURS[check]
            share = np.array([100 * row.first_failures[check] / row.n for row in rows])
            above.bar(at, share, 0.78, bottom, color=colour, edgecolor="white", linewidth=0.5)
            bottom += share
            any_share = [100 * row.any_failures[check] / row.n for row in rows]
            drawn = {"marker": CHECK_MARKS[check], "color": colour, "markersize": 4.5, "linewidth": 1.2}
            below.plot(at, any_share, label=NAMES[check], **drawn)
        above.set_title(stage.title)
        below.set_xlabel(run.axis_name)
        for axes in (above, below):
            _kind_ticks(axes, places)
            axes.set_xlim(min(places.values()) - 0.6, max(places.values()) + 0.6)
            axes.tick_params(axis="x", length=0)
    for axes in grid[-2:, (len(run.stages) - 1) % columns + 1 :].flat:
        axes.remove()
    for above, below in zip(grid[::2, 0], grid[1::2, 0], strict=True):
        above.set_ylabel("first failing, %")
        below.set_ylabel("any failing, %")
    grid[0, 0].set(ylim=(0, 104), yticks=range(0, 101, 20))
    style.legend(figure, [grid[1, 0]], columns=max(1, len(seen)))
    return figure


def _learnability(run: Run) -> Figure | None:
    """Draw what could be learnt from each kind: above on validation boards, below on the boards of the rounds."""
    validated = [(stage.name, stage.evidence.by_kind) for stage in run.stages]
    trained = [(stage.name, stage.evidence.training.by_kind) for stage in run.stages if stage.evidence.training]
    sets = [(name, rows) for name, rows in (("validation", validated), ("training", trained)) if _sampled(rows)]
    if not sets:
        return None
    figure = Figure(figsize=(9.0, 2.5 * len(sets) + 0.5), layout="constrained")
    colours = dict(zip((stage.name for stage in run.stages), style.in_order(len(run.stages)), strict=True))
    panels, places = figure.subplots(len(sets), 3, squeeze=False, sharex=True), run.places(run.kinds)
    for line, (of, stages) in zip(panels, sets, strict=True):
        for axes, (title, value, top) in zip(line, _PANELS, strict=True):
            for name, rows in stages:
                points = [(places[row.kind], value(row)) for row in rows if row.groups]
                if points:
                    axes.plot(
                        *zip(*points, strict=True), "o-", color=colours[name], markersize=4, label=name, clip_on=False
                    )
            axes.set(title=f"{of}: {title}", ylim=(0, top))
            _kind_ticks(axes, places)
        line[0].set_ylabel("p (1 - p)")
        line[1].set_ylabel("% of groups")
    for axes in panels[-1]:
        axes.set_xlabel(run.axis_name)
    style.legend(figure, list(panels[:, 0]), columns=6)
    return figure


def _kind_ticks(axes: Axes, places: Mapping[Kind, int]) -> None:
    axes.set_xticks(list(places.values()), list(map(str, places)))
    if row_name(places) == "kind":
        axes.tick_params(axis="x", rotation=60, labelsize=7)


def _sampled(stages: Sequence[tuple[str, Sequence[KindEvidence]]]) -> bool:
    return any(row.groups for _, rows in stages for row in rows)


def _variance(row: KindEvidence) -> float:
    return row.valid_share * (1 - row.valid_share)


_PANELS: tuple[tuple[str, Callable[[KindEvidence], float], float], ...] = (
    ("p (1 - p)", _variance, 0.26),
    ("learnable", lambda row: 100 * row.learnable / row.groups, 102),
    ("all invalid", lambda row: 100 * row.all_invalid / row.groups, 102),
)
"""Title, value and end of the axis of each panel; p is the sampled valid share of a kind."""

PICTURES: dict[str, style.Drawing] = {
    "learning.png": (
        _learning,
        "Training and validation over the run. Points are validations with 95 % intervals; dashed lines "
        "mark where the environment was redesigned.",
    ),
    "training.png": (
        curves.training,
        "The answers of each step and the update made on them; thick lines are running "
        "means, dashed ones mark where the environment was redesigned.",
    ),
    "allocation.png": (
        heat.allocation,
        "What each round's environment was to be, and in the corner below what it turned out to be "
        "where that differs. Entropy in nats. Steps are against the round before: summed absolute differences for "
        "data, their mean for hole and wait.",
    ),
    "failures.png": (
        _failures,
        "Greedy answers that fail. Above by their first failing check, below all that fail a check, of "
        "which an answer can fail several.",
    ),
    "learnability.png": (
        _learnability,
        "Sampled answers by size or kind of boards: variance of validity p (1 - p), groups of samples of which 20 "
        "to 80 % are valid, and groups without any valid one. Training boards are those of the round.",
    ),
    "forgetting.png": (
        heat.forgetting,
        "Valid % of greedy answers by size or kind of boards; in brackets what was lost since the best validation "
        "before. A loss of a few points is within the error, see the intervals above.",
    ),
    "published.png": (
        published.overlay,
        "Valid % on the benchmark, all wait subsets, with 95 % intervals. Grey is printed in the paper "
        "(arXiv 2606.17682): policies of another size, trained on sizes 3 to 10; a reference, not a competitor.",
    ),
    "boards.png": (
        boards.best_and_worst,
        "The costliest optimal plan of the last validation, and a plan that fails.",
    ),
    "samples.png": (
        boards.samples,
        "The same boards at each validation, with the plans that the policy answered; no paths where the "
        "answer could not be read.",
    ),
    "time.png": (
        curves.time,
        "Where the time of each step went, and what it took in memory and compilations.",
    ),
}

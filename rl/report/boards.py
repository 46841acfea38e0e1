"""Pictures of boards with the plans that the policy answered."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxlake import render
from rl.report import html
from rl.report.run import Run
from rl.run.samples import cost, instance_of, lost_parts, plan_of, verdict

COLUMNS = 4
"""Columns of boards in the picture of samples."""
NEAR = 80
"""Characters of an answer that a caption shows on either side of what loses the last valid plan."""


def best_and_worst(run: Run) -> Figure | None:
    """Draw the costliest optimal plan of the last validation, and a plan that can be drawn although it fails."""
    last = next((stage.samples for stage in reversed(run.stages) if stage.samples), ())
    optimal = [sample for sample in last if sample["optimal"]]
    failing = [sample for sample in last if not all(sample["checks"].values()) and sample["checks"]["parsable"]]
    chosen = [max(optimal, key=lambda sample: sample["cost"])] if optimal else []
    chosen += [max(failing, key=lambda sample: sample["instance"]["size"])] if failing else []
    if not chosen:
        return None
    figure = Figure(figsize=(3.7 * len(chosen), 4.0), layout="constrained")
    for axes, sample in zip(figure.subplots(1, len(chosen), squeeze=False).flat, chosen, strict=True):
        _draw(axes, sample)
    return figure


def samples(run: Run) -> Figure | None:
    """Draw a row per validation, a board per column: the same boards each time, from the smallest to the largest."""
    stages = [stage for stage in run.stages if stage.samples]
    if not stages:
        return None
    chosen = _spread(stages[0].samples)
    figure = Figure(figsize=(2.3 * len(chosen) + 0.4, 2.55 * len(stages)))
    grid = figure.subplots(len(stages), len(chosen), squeeze=False)
    height = 2.55 * len(stages)
    figure.subplots_adjust(0.05, 0.05 / height, 0.995, 1 - 0.3 / height, wspace=0.06, hspace=0.16)
    for row, stage in zip(grid, stages, strict=True):
        for axes, i in zip(row, chosen, strict=True):
            _draw(axes, stage.samples[i])
        row[0].text(-0.06, 0.5, stage.title, rotation=90, ha="right", va="center", transform=row[0].transAxes)
    return figure


def walking(run: Run) -> str:
    """Return some boards with the answered plans before the rounds and after the last, as HTML.

    Agents walk on a screen, and leave paths in print. The boards go from the smallest to the largest, the two of one
    side by side; nothing for a run without samples.
    """
    stages = [stage for stage in run.stages if stage.samples]
    if not stages:
        return ""
    first = next((stage for stage in stages if stage.name == "warm start"), stages[0])
    cells = []
    for i in _spread(stages[0].samples):
        for stage in (first, stages[-1])[: 1 + (first is not stages[-1])]:
            cells.append(_walking(stage.samples[i], stage.title))
    return f'<div class="boards">{"".join(cells)}</div>'


def _walking(sample: dict[str, Any], when: str) -> str:
    instance, plan = instance_of(sample), plan_of(sample)
    still = render.svg(instance, plan)
    moving = still if plan is None else render.animate(instance, plan)
    words = verdict(sample) + ("" if cost(sample) == "-" else f", cost {cost(sample)} of {sample['optimum']}")
    parts = f'<div class="moving">{moving}</div><div class="still">{still}</div>'
    caption = html.escape(f"{when}: {words}")
    if lost := lost_parts(sample):
        before, cell, after = (
            html.escape(part.replace("\n", " ")) for part in (lost[0][-NEAR:], lost[1], lost[2][:NEAR])
        )
        caption += f"; {before}<mark>{cell}</mark>{after}"
    return f"<figure>{parts}<figcaption>{caption}</figcaption></figure>"


def _spread(samples: Sequence[dict[str, Any]]) -> list[int]:
    """Choose a few boards, evenly spread from the smallest to the largest."""
    ordered = sorted(range(len(samples)), key=lambda i: samples[i]["instance"]["size"])
    return [ordered[i] for i in np.unique(np.linspace(0, len(ordered) - 1, COLUMNS).astype(int))]


def _draw(axes: Axes, sample: dict[str, Any]) -> None:
    render.draw(instance_of(sample), plan_of(sample), axes)
    words = verdict(sample).split(" (")[0]
    axes.set_title(words if cost(sample) == "-" else f"{words}, cost {cost(sample)}")

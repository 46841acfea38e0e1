"""Pictures of boards with the plans that the policy answered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxlake import render
from rl.report import style
from rl.report.run import Run
from rl.run.samples import cost, instance_of, lost_parts, plan_of, verdict

ROWS, COLUMNS = 5, 4
"""Largest number of validations, and number of boards, in the picture of samples."""
NEAR = 80
"""Characters of an answer that a caption shows on either side of the part that loses the last valid plan."""


class Walk(NamedTuple):
    """A board with an answered plan on a page.

    Attributes:
      moving, still: SVG texts in which the agents walk, and in which they leave paths.
      caption: stage, verdict and cost.
      lost: the answer before the part that loses the last valid plan, this part, and the answer after it.
    """

    moving: str
    still: str
    caption: str
    lost: tuple[str, ...] | None


def samples(run: Run) -> Figure | None:
    """Draw validations in rows and the same boards in columns, from the smallest to the largest."""
    stages = [stage for stage in run.stages if stage.samples]
    if not stages:
        return None
    chosen, stages = _spread(stages[0].samples), [stages[i] for i in style.evenly(len(stages), ROWS)]
    height = 2.55 * len(stages)
    figure = Figure(figsize=(2.3 * len(chosen) + 0.4, height))
    grid = figure.subplots(len(stages), len(chosen), squeeze=False)
    figure.subplots_adjust(0.05, 0.05 / height, 0.995, 1 - 0.3 / height, wspace=0.06, hspace=0.16)
    for row, stage in zip(grid, stages, strict=True):
        for axes, i in zip(row, chosen, strict=True):
            _draw(axes, stage.samples[i])
        row[0].text(-0.06, 0.5, stage.title, rotation=90, ha="right", va="center", transform=row[0].transAxes)
    return figure


def walks(run: Run) -> list[Walk]:
    """Return some boards, from the smallest to the largest, each before the rounds and after the last."""
    stages = [stage for stage in run.stages if stage.samples]
    if not stages:
        return []
    first, last = next((stage for stage in stages if stage.name == "warm start"), stages[0]), stages[-1]
    shown = (first,) if first is last else (first, last)
    return [_walk(stage.samples[i], stage.title) for i in _spread(stages[0].samples) for stage in shown]


def _walk(sample: dict[str, Any], when: str) -> Walk:
    instance, plan = instance_of(sample), plan_of(sample)
    still = render.svg(instance, plan)
    words = "" if cost(sample) == "-" else f", cost {cost(sample)} of {sample['optimum']}"
    if lost := lost_parts(sample):
        before, cell, after = (part.replace("\n", " ") for part in lost)
        lost = before[-NEAR:], cell, after[:NEAR]
    moving = still if plan is None else render.animate(instance, plan)
    return Walk(moving, still, f"{when}: {verdict(sample)}{words}", lost)


def _spread(samples: Sequence[dict[str, Any]]) -> list[int]:
    ordered = sorted(range(len(samples)), key=lambda i: samples[i]["instance"]["size"])
    return [ordered[i] for i in style.evenly(len(ordered), COLUMNS)]


def _draw(axes: Axes, sample: dict[str, Any]) -> None:
    render.draw(instance_of(sample), plan_of(sample), axes)
    words = verdict(sample).split(" (")[0]
    axes.set_title(words if cost(sample) == "-" else f"{words}, cost {cost(sample)}")

"""Sample answers of a validation, the rows of its ``samples.json``: verdict, board and plan in words and pictures."""

from typing import Any, NamedTuple

from matplotlib.figure import Figure

from engineer.context import FAILURES
from jaxlake import render, text
from jaxlake.files import from_record
from jaxlake.types import MAX_STEPS, Instance, Plan
from rl.report import style
from rl.report.run import Run

ROWS, COLUMNS = 5, 4
"""Largest number of validations, and number of boards, in the picture of samples."""


class Walk(NamedTuple):
    """A board with an answered plan: SVG texts in which agents walk or leave paths, a caption, and `lost_parts`."""

    moving: str
    still: str
    caption: str
    lost: tuple[str, str, str] | None


def picture(run: Run) -> Figure | None:
    """Draw validations in rows and the same boards in columns, from the smallest to the largest."""
    stages, boards = [run.stages[i] for i in style.evenly(len(run.stages), ROWS)], _boards(run)
    if not boards:
        return None
    height = 2.55 * len(stages)
    figure = Figure(figsize=(2.3 * len(boards) + 0.4, height))
    grid = figure.subplots(len(stages), len(boards), squeeze=False)
    figure.subplots_adjust(0.05, 0.05 / height, 0.995, 1 - 0.3 / height, wspace=0.06, hspace=0.16)
    for row, stage in zip(grid, stages, strict=True):
        for axes, i in zip(row, boards, strict=True):
            render.draw(instance_of(stage.samples[i]), plan_of(stage.samples[i]), axes)
            axes.set_title(verdict(stage.samples[i]))
        row[0].text(-0.06, 0.5, stage.title, rotation=90, ha="right", va="center", transform=row[0].transAxes)
    return figure


def walks(run: Run) -> list[Walk]:
    """Return some boards, from the smallest to the largest, each before the rounds and after the last."""
    stages = (run.first, run.stages[-1]) if len(run.stages) > 1 else run.stages
    return [_walk(stage.samples[i], stage.title) for i in _boards(run) for stage in stages]


def _walk(sample: dict[str, Any], when: str) -> Walk:
    instance, plan = instance_of(sample), plan_of(sample)
    still = render.svg(instance, plan)
    moving = still if plan is None else render.animate(instance, plan)
    return Walk(moving, still, f"{when}: {verdict(sample)}", lost_parts(sample))


def _boards(run: Run) -> list[int]:
    """Return the places in ``samples.json`` of the boards that are shown."""
    samples = run.first.samples
    ordered = sorted(range(len(samples)), key=lambda i: samples[i]["instance"]["size"])
    return [ordered[i] for i in style.evenly(len(ordered), COLUMNS)]


def lost_parts(sample: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return the answer before the cell or sign that loses the last valid plan, this, and the rest.

    None for a sample whose answer has not failed. The key ``lost_at`` is the character; behind the last one it says
    that the answer ends too early.
    """
    answer, place = sample["answer"], sample.get("lost_at")
    if place is None or all(sample["checks"].values()):
        return None
    begin = answer.rfind("(", 0, place) if answer[place : place + 1] == ")" else place
    sign = answer[begin : place + 1]
    shown, rest = ("↵", answer[place:]) if sign == "\n" else (sign, answer[place + 1 :])
    return answer[:begin], shown, rest


def verdict(sample: dict[str, Any]) -> str:
    """Say in words which check the answer fails first, or whether it is optimal, and its cost."""
    if failed := [FAILURES[name] for name, passed in sample["checks"].items() if not passed]:
        return f"fails: {failed[0]}"
    return f"{'optimal' if sample['optimal'] else 'valid'}, cost {sample['cost']} of {sample['optimum']}"


def instance_of(sample: dict[str, Any]) -> Instance:
    """Return the board as numpy arrays without padding."""
    board = sample["instance"]
    return from_record(board | {"agents": len(board["starts"])})


def plan_of(sample: dict[str, Any]) -> Plan | None:
    """Return the paths that the answer describes; None where it cannot be read."""
    if not sample["checks"]["parsable"]:
        return None
    board = instance_of(sample)
    return text.parse(sample["answer"], max_size=board.max_size, max_agents=board.max_agents, max_steps=MAX_STEPS)

"""Instances as prompts and plans as answers; reads nothing."""

import enum

import numpy as np

from jaxlake.board_text import to_text
from jaxlake.levels import check_has_end
from jaxlake.types import OUTSIDE, STEPS, Action, Instance, Plan, coordinate

_MOVES = dict(zip(STEPS, Action, strict=True))

_RULES = """\
Find paths for {agents} agents on a {size}x{size} board. A cell is (row,column); (0,0) is the top left corner and \
({last},{last}) the bottom right one.
{drawing} {letters}

{board}

Rules:
- All agents move at the same time, one step per time step: up, down, left, right, or stay on the cell.
- No agent leaves the board or enters a hole.
- Two agents are never on the same cell at the same time, and never swap cells in one step. Moving onto a cell that \
another agent leaves in the same step is allowed.
- An agent that has finished its path stays on its goal and is in the way there.
- Every agent ends on its goal, and the sum of the times of arrival is as small as possible.

{tasks}

{answer}"""

_ONE_DRAWING = "In the drawing . is free and # is a hole."
_TWO_DRAWINGS = "In the drawings . is free and # is a hole; the left one shows the starts, the right one the goals."


class PromptStyle(enum.StrEnum):
    """The styles in which an instance is put into words."""

    COORDINATES = "coordinates"
    """One terse line, for small models trained on it; names no answer format."""
    GRID = "grid"
    """The board drawn and a line of instructions."""
    VERBOSE = "verbose"
    """The rules in English with the board drawn and the answer format stated, for chat models."""


class AnswerFormat(enum.StrEnum):
    """The forms in which a plan is put into words, a line per agent."""

    COORDINATES = "coordinates"
    """The cells from the start on, as in the paper: ``0:(0,0)(0,1)(0,1)(1,1)``."""
    MOVES = "moves"
    """A letter per time step, U, D, L, R or W (wait): ``0: R W D``."""


_ASKS = {
    AnswerFormat.COORDINATES: """\
Answer with one line per agent: its number, a colon and every cell of its path from the start to the goal, one cell \
per time step; a cell is repeated where the agent stays. Nothing else. For example:
0:(0,0)(0,1)(0,1)(1,1)
1:(2,2)(1,2)(0,2)""",
    AnswerFormat.MOVES: """\
Answer with one line per agent: its number, a colon and one letter per time step until it has arrived: U for up, D \
for down, L for left, R for right, W where the agent stays. Nothing else. For example:
0: R W D
1: U U""",
}
_ASKS_BRIEFLY = {
    AnswerFormat.COORDINATES: "every cell from start to goal as (row,column), one per time step, such as "
    "0:(0,0)(0,1)(0,1)(1,1)",
    AnswerFormat.MOVES: "U, D, L, R or W (wait) for each time step, such as 0: R W D",
}


def prompt(
    instance: Instance, style: PromptStyle | str, answer_format: AnswerFormat | str = AnswerFormat.COORDINATES
) -> str:
    """Return the text that asks for a plan of an instance (no batch axes).

    In the style COORDINATES: size, holes as (row,column) in row-major order, then each agent's number, start and goal:
    ``4x4 holes(1,1)(2,3) 0(0,0)(3,3) 1(2,0)(0,2)``; without a hole ``4x4 holes 0(0,0)...``. It is the same line for
    every answer format.
    """
    style, answer_format = PromptStyle(style), AnswerFormat(answer_format)
    check_has_end(instance)
    size, max_size = int(instance.size), instance.max_size
    cells = (np.asarray(part)[: int(instance.num_agents)] for part in (instance.starts, instance.goals))
    ends = [(coordinate(start, max_size), coordinate(goal, max_size)) for start, goal in zip(*cells, strict=True)]
    if style is PromptStyle.COORDINATES:
        holes = "".join(coordinate(cell, max_size) for cell in np.flatnonzero(instance.holes).tolist())
        agents = " ".join(f"{agent}{start}{goal}" for agent, (start, goal) in enumerate(ends))
        return f"{size}x{size} holes{holes} {agents}"
    board = to_text(instance)
    if style is PromptStyle.GRID:
        tasks = ", ".join(f"{agent} from {chr(97 + agent)} to {chr(65 + agent)}" for agent in range(len(ends)))
        where = " (starts on the left board, goals on the right)" if " " in board else ""
        return (
            f"{board}\nMove agent {tasks}{where}, all at the same time and in as few steps as possible, around the "
            "holes #, never two on one cell and never swapping cells. Answer with a line per agent: its number, a "
            f"colon and {_ASKS_BRIEFLY[answer_format]}"
        )
    letters = ", ".join(
        f"{chr(97 + agent)} is the start and {chr(65 + agent)} the goal of agent {agent}" for agent in range(len(ends))
    )
    tasks = "\n".join(f"Agent {agent} goes from {start} to {goal}." for agent, (start, goal) in enumerate(ends))
    return _RULES.format(
        agents=len(ends),
        size=size,
        last=size - 1,
        drawing=_TWO_DRAWINGS if " " in board else _ONE_DRAWING,
        letters=f"{letters}.",
        board=board,
        tasks=tasks,
        answer=_ASKS[answer_format],
    )


def answer(plan: Plan, max_size: int, answer_format: AnswerFormat | str = AnswerFormat.COORDINATES) -> str:
    """Write a plan (no batch axes) as text, a line per agent; agents without a path are left out."""
    if np.ndim(plan.lengths) != 1:
        raise ValueError(f"the plan has batch axes {np.shape(plan.parsable)}: it must have none, as plans[0]")
    write = _path if AnswerFormat(answer_format) is AnswerFormat.COORDINATES else _moves
    paths, lengths = np.asarray(plan.paths), np.asarray(plan.lengths)
    return "\n".join(
        f"{agent}:{write(paths[agent, : lengths[agent]].tolist(), max_size)}" for agent in np.flatnonzero(lengths)
    )


def _path(cells: list[int], max_size: int) -> str:
    return "".join(coordinate(cell, max_size) for cell in cells)


def _moves(cells: list[int], max_size: int) -> str:
    stops = [divmod(cell, max_size) for cell in cells]
    steps = [(there[0] - here[0], there[1] - here[1]) for here, there in zip(stops, stops[1:], strict=False)]
    if OUTSIDE in cells or any(step not in _MOVES for step in steps):
        raise ValueError(f"the path {_path(cells, max_size)} is no sequence of moves on the board")
    return "".join(f" {_MOVES[step].name[0]}" for step in steps)

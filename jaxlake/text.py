"""Instances to prompts and answers to plans, in plain Python; knows no tokenizer and no model."""

import enum
import re
from collections.abc import Sequence

import numpy as np

from jaxlake.render import to_text
from jaxlake.types import ABSENT, OUTSIDE, Instance, Plan

_AGENT_LINE = re.compile(r"[\s>*`\"'#-]*(?:agent\s*)?(\d+)[\s*`\"']*:(.*)", re.ASCII | re.IGNORECASE)
_COORDINATE = re.compile(r"\(\s*(-?\d+)\s*,\s*(-?\d+)\s*\)", re.ASCII)

_RULES = """\
Find paths for {agents} agents on a {size}x{size} board. A cell is (row,column); (0,0) is the top left corner and \
({last},{last}) the bottom right one.
In the drawing . is free and # is a hole. {letters}

{board}

Rules:
- All agents move at the same time, one step per time step: up, down, left, right, or stay on the cell.
- No agent leaves the board or enters a hole.
- Two agents are never on the same cell at the same time, and never swap cells in one step. Moving onto a cell that \
another agent leaves in the same step is allowed.
- An agent that has finished its path stays on its goal and is in the way there.
- Every agent ends on its goal, and the sum of the times of arrival is as small as possible.

{tasks}

Answer with one line per agent: its number, a colon and every cell of its path from the start to the goal, one cell \
per time step; a cell is repeated where the agent stays. Nothing else. For example:
0:(0,0)(0,1)(0,1)(1,1)
1:(2,2)(1,2)(0,2)"""


class PromptStyle(enum.Enum):
    """How an instance is put into words."""

    COORDINATES = "coordinates"
    """One terse line, for small models trained on it."""
    VERBOSE = "verbose"
    """The rules in English with the board drawn and the answer format stated, for chat models."""


def prompt(instance: Instance, style: PromptStyle) -> str:
    """One instance (no batch axes) as the text that asks for a plan.

    In the style COORDINATES: size, holes as (row,column) in row-major order, then each agent's number, start and goal:
    ``4x4 holes(1,1)(2,3) 0(0,0)(3,3) 1(2,0)(0,2)``; without a hole ``4x4 holes 0(0,0)...``.
    """
    size, max_size = int(instance.size), instance.max_size
    ends = [(_coordinate(start, max_size), _coordinate(goal, max_size)) for start, goal in _agents(instance)]
    if style is PromptStyle.COORDINATES:
        holes = "".join(_coordinate(cell, max_size) for cell in np.flatnonzero(instance.holes))
        agents = " ".join(f"{agent}{start}{goal}" for agent, (start, goal) in enumerate(ends))
        return f"{size}x{size} holes{holes} {agents}"
    letters = ", ".join(
        f"{chr(97 + agent)} is the start and {chr(65 + agent)} the goal of agent {agent}" for agent in range(len(ends))
    )
    tasks = "\n".join(f"Agent {agent} goes from {start} to {goal}." for agent, (start, goal) in enumerate(ends))
    return _RULES.format(
        agents=len(ends), size=size, last=size - 1, letters=f"{letters}.", board=to_text(instance), tasks=tasks
    )


def answer(plan: Plan, max_size: int) -> str:
    """One plan (no batch axes) as text, a line per agent: ``0:(0,0)(0,1)(1,1)``. Agents without a path are left out."""
    paths, lengths = np.asarray(plan.paths), np.asarray(plan.lengths)
    return "\n".join(
        f"{agent}:" + "".join(_coordinate(cell, max_size) for cell in paths[agent, : lengths[agent]])
        for agent in np.flatnonzero(lengths)
    )


def parse(text: str, *, max_size: int, max_agents: int, max_steps: int) -> Plan:
    """Reads a plan out of a model's text, tolerantly: never raises, in time linear in the text's length.

    Only what follows the last ``</think>`` counts, and nothing of a thought that is not closed. Agent lines look like
    ``0:(0,0)(0,1)``, ``0: (0,0) -> (0, 1)`` or ``Agent 0: [(0,0), (0,1)]``; other lines are skipped, and a later line
    for the same agent replaces the earlier one. The plan is not parsable, and holds nothing, if there is no agent line,
    if one has no coordinate, or if a path has more than ``max_steps + 1`` cells.

    Returns:
      A plan of numpy arrays without batch axes: paths int32 ``[max_agents, max_steps + 1]``; a coordinate off the
      padded board is ``OUTSIDE``.
    """
    paths = np.full((max_agents, max_steps + 1), ABSENT, np.int32)
    lengths = np.zeros(max_agents, np.int32)
    named: dict[str, list[int]] = {}
    spoken = text.rpartition("</think>")[2]
    lines = [] if "<think>" in spoken else spoken.splitlines()
    for line in lines:
        if match := _AGENT_LINE.match(line):
            cells = [_cell(row, column, max_size) for row, column in _COORDINATE.findall(match[2])]
            named[match[1].lstrip("0") or "0"] = cells
    parsable = bool(named) and all(0 < len(cells) <= max_steps + 1 for cells in named.values())
    if parsable:
        for agent in range(max_agents):
            cells = named.get(str(agent), [])
            paths[agent, : len(cells)] = cells
            lengths[agent] = len(cells)
    return Plan(
        parsable=np.asarray(parsable),
        num_named=np.asarray(len(named) if parsable else 0, np.int32),
        paths=paths,
        lengths=lengths,
    )


def parse_batch(texts: Sequence[str], *, max_size: int, max_agents: int, max_steps: int) -> Plan:
    """``parse`` for each text, stacked along a leading batch axis; numpy arrays."""
    plans = [parse(text, max_size=max_size, max_agents=max_agents, max_steps=max_steps) for text in texts]
    return Plan(
        parsable=np.array([plan.parsable for plan in plans], bool),
        num_named=np.array([plan.num_named for plan in plans], np.int32),
        paths=np.array([plan.paths for plan in plans], np.int32).reshape(len(plans), max_agents, max_steps + 1),
        lengths=np.array([plan.lengths for plan in plans], np.int32).reshape(len(plans), max_agents),
    )


def _agents(instance: Instance) -> list[tuple[int, int]]:
    count = int(instance.num_agents)
    return list(zip(np.asarray(instance.starts)[:count], np.asarray(instance.goals)[:count], strict=True))


def _coordinate(cell: int, max_size: int) -> str:
    return "({},{})".format(*divmod(int(cell), max_size))


def _cell(row: str, column: str, max_size: int) -> int:
    # Digits are counted before they are read: int() refuses more than 4,300 of them.
    if max(len(row), len(column)) > 6:
        return OUTSIDE
    r, c = int(row), int(column)
    return r * max_size + c if 0 <= r < max_size and 0 <= c < max_size else OUTSIDE

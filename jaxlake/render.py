"""Boards and plans for human eyes, as characters and as a drawing; reads boards drawn in text. Imports no plot library.

``draw`` works on a matplotlib ``Axes`` that is handed in, so the bare install needs none.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlake.types import ABSENT, Instance, Plan

_ARROWS = {(0, 1): ">", (0, -1): "<", (1, 0): "v", (-1, 0): "^"}


def to_text(instance: Instance, plan: Plan | None = None) -> str:
    """One instance (no batch axes) as rows of characters.

    ``.`` is free, ``#`` a hole, ``a`` and ``A`` start and goal of agent 0, ``b`` and ``B`` of agent 1, and so on. With
    a plan, an arrow shows how an agent leaves a free cell, and ``+`` a cell that several agents enter.
    """
    size, max_size = int(instance.size), instance.max_size
    holes = np.asarray(instance.holes).reshape(max_size, max_size)[:size, :size]
    board = np.where(holes, "#", ".")
    if plan is not None:
        _draw_arrows(board, plan, max_size)
    for agent in range(int(instance.num_agents)):
        board[divmod(int(instance.starts[agent]), max_size)] = chr(ord("a") + agent)
        board[divmod(int(instance.goals[agent]), max_size)] = chr(ord("A") + agent)
    return "\n".join("".join(row) for row in board)


def from_text(rows: str | Sequence[str], *, max_size: int | None = None, max_agents: int | None = None) -> Instance:
    """Reads a board as ``to_text`` writes it (no plan, no agent on its goal); numpy arrays without batch axes.

    Args:
      rows: one string with line breaks or one per row; spaces around rows do not count.
      max_size: side of the padded board, the board's own by default.
      max_agents: number of agent slots, the board's own by default.

    Raises:
      ValueError: naming the fault.
    """
    lines = [line.strip() for line in (rows.split("\n") if isinstance(rows, str) else rows)]
    lines = [line for line in lines if line]
    size = len(lines)
    max_size = size if max_size is None else max_size
    if any(len(line) != size for line in lines) or not size:
        raise ValueError(f"the board has {size} rows of lengths {[len(line) for line in lines]}: it must be square")
    if size > max_size:
        raise ValueError(f"the board has side {size}: max_size is {max_size}")
    cells: dict[str, int] = {}
    holes = np.zeros(max_size * max_size, bool)
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            cell = row * max_size + column
            if character == "#":
                holes[cell] = True
            elif character.isascii() and character.isalpha():
                if character in cells:
                    raise ValueError(f"{character!r} stands on the board twice")
                cells[character] = cell
            elif character != ".":
                raise ValueError(f"{character!r} at ({row},{column}) is neither '.', '#' nor a letter")
    num_agents = len(cells) // 2
    max_agents = num_agents if max_agents is None else max_agents
    letters = "abcdefghijklmnopqrstuvwxyz"[:num_agents]
    if set(cells) != set(letters + letters.upper()) or not cells:
        raise ValueError(f"letters {''.join(sorted(cells))!r}: every agent from a on needs its start and its goal")
    if num_agents > max_agents:
        raise ValueError(f"the board has {num_agents} agents: max_agents is {max_agents}")
    padding = [ABSENT] * (max_agents - num_agents)
    return Instance(
        size=np.asarray(size, np.int32),
        num_agents=np.asarray(num_agents, np.int32),
        holes=holes,
        starts=np.array([cells[letter] for letter in letters] + padding, np.int32),
        goals=np.array([cells[letter.upper()] for letter in letters] + padding, np.int32),
    )


def _draw_arrows(board: np.ndarray, plan: Plan, max_size: int) -> None:
    seen: dict[tuple[int, int], int] = {}
    for agent in np.flatnonzero(plan.lengths):
        path = [divmod(int(cell), max_size) for cell in np.asarray(plan.paths)[agent, : plan.lengths[agent]]]
        for here, there in zip(path, path[1:], strict=False):
            if here != there:
                arrow = _ARROWS.get((there[0] - here[0], there[1] - here[1]), "?")
                board[here] = "+" if seen.setdefault(here, agent) != agent else arrow


def draw(instance: Instance, plan: Plan | None, axes: Any) -> None:
    """Draws one instance (no batch axes), with its paths if there is a plan, on a matplotlib ``Axes``."""
    raise NotImplementedError

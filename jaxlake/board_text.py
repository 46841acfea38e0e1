"""Boards as rows of characters, written and read; draws no picture."""

from collections.abc import Sequence
from string import ascii_letters, ascii_lowercase, ascii_uppercase

import numpy as np

from jaxlake.levels import build, check_has_end, pad
from jaxlake.types import STEPS, Instance, Plan

_ARROWS = dict(zip(STEPS, "^v<>.", strict=True))


def to_text(instance: Instance, plan: Plan | None = None) -> str:
    """Write an instance (no batch axes) as rows of characters.

    ``.`` is free, ``#`` a hole, ``a`` and ``A`` start and goal of agent 0, ``b`` and ``B`` of agent 1, and so on. If a
    start is also a goal, the board is drawn twice, side by side: starts on the left, goals on the right. With a plan,
    an arrow shows how an agent leaves a free cell, and ``+`` a cell that several agents leave.
    """
    check_has_end(instance)
    size, max_size, count = int(instance.size), instance.max_size, int(instance.num_agents)
    if count > len(ascii_lowercase):
        raise ValueError(
            f"the board has {count} agents: a drawing has letters for {len(ascii_lowercase)}; pictures, files of JSON "
            "lines and prompts of coordinates have no such limit"
        )
    left = np.where(np.asarray(instance.holes).reshape(max_size, max_size)[:size, :size], "#", ".")
    if plan is not None:
        _draw_arrows(left, plan, max_size)
    starts, goals = (np.asarray(cells)[:count].tolist() for cells in (instance.starts, instance.goals))
    apart = not set(starts).isdisjoint(goals)
    right = left.copy() if apart else left
    for letter, start, goal in zip(ascii_lowercase, starts, goals, strict=False):
        left[divmod(start, max_size)] = letter
        right[divmod(goal, max_size)] = letter.upper()
    lines = ["".join(row) for row in left]
    if apart:
        lines = [f"{line} {''.join(row)}" for line, row in zip(lines, right, strict=True)]
    return "\n".join(lines)


def from_text(rows: str | Sequence[str], *, max_size: int | None = None, max_agents: int | None = None) -> Instance:
    """Read a board as ``to_text`` writes it, drawn once or twice, without a plan; numpy arrays without batch axes.

    Args:
      rows: one string with line breaks or one per row; spaces around rows do not count.
      max_size: side of the padded board, the board's own by default.
      max_agents: number of agent slots, the board's own by default.
    """
    lines = [line.split() for line in (rows.split("\n") if isinstance(rows, str) else rows) if line.strip()]
    size, drawings = len(lines), len(lines[0]) if lines else 0
    if drawings not in (1, 2) or any([len(row) for row in line] != [size] * drawings for line in lines):
        lengths = [len(" ".join(line)) for line in lines]
        raise ValueError(f"the board has {size} rows of lengths {lengths}: it must be square, once or twice")
    cells: dict[str, int] = {}
    holes = np.zeros((drawings, size, size), bool)
    for drawing, letters in enumerate([ascii_letters] if drawings == 1 else [ascii_lowercase, ascii_uppercase]):
        for row, column in np.ndindex(size, size):
            character = lines[row][drawing][column]
            holes[drawing, row, column] = character == "#"
            if character in letters and character not in cells:
                cells[character] = row * size + column
            elif character not in ".#":
                legal = f"'.', '#' or one of {letters[0]} to {letters[-1]}, each once"
                raise ValueError(f"{character!r} at ({row},{column}) of board {drawing + 1} must be {legal}")
    if (holes[0] != holes[-1]).any():
        raise ValueError("the two boards have different holes")
    letters = ascii_lowercase[: len(cells) // 2]
    if set(cells) != set(letters + letters.upper()) or not cells:
        raise ValueError(f"letters {''.join(sorted(cells))!r}: every agent from a on needs its start and its goal")
    starts, goals = ([cells[letter] for letter in ends] for ends in (letters, letters.upper()))
    return pad(build(size, holes[0], starts, goals), max_size or size, max_agents or len(letters))


def _draw_arrows(board: np.ndarray, plan: Plan, max_size: int) -> None:
    seen: dict[tuple[int, int], int] = {}
    size = len(board)
    for agent in np.flatnonzero(plan.lengths).tolist():
        path = [divmod(int(cell), max_size) for cell in np.asarray(plan.paths)[agent, : plan.lengths[agent]]]
        for here, there in zip(path, path[1:], strict=False):
            if here != there and 0 <= here[0] < size and 0 <= here[1] < size:
                arrow = _ARROWS.get((there[0] - here[0], there[1] - here[1]), "?")
                board[here] = "+" if seen.setdefault(here, agent) != agent else arrow

"""Boards and plans for human eyes, as characters and as a drawing; reads boards drawn in text. Imports no plot library.

``draw`` works on a matplotlib ``Axes`` that is handed in, so the bare install needs none.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlake.types import ABSENT, Instance, Plan

_ARROWS = {(0, 1): ">", (0, -1): "<", (1, 0): "v", (-1, 0): "^"}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")  # Okabe and Ito: told apart by colour-blind eyes.
_FREE, _HOLE = "#EEF1F4", "#39424E"
_RING = 0.31  # Radius of a goal's ring, in cells.
_CORNERS = ((-1, -1), (-1, 1), (1, -1), (1, 1))
_TIGHT = {"shrinkA": 0, "shrinkB": 0}
_SQUARE = np.array([[-1, 1, 1, -1], [-1, -1, 1, 1]])


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


def draw(instance: Instance, plan: Plan | None, axes: Any) -> None:
    """Draws one instance (no batch axes), and its paths where there is a plan, on a matplotlib ``Axes``.

    Holes are dark; starts are discs and goals rings in the agent's colour with its number; paths run side by side with
    an arrow at their end. ``+2`` in a corner of a cell: the agent waits there two steps before its last arrival. Cells
    off the padded board are left out.
    """
    size, max_size = int(instance.size), instance.max_size
    axes.set(xlim=(-0.54, size - 0.46), ylim=(size - 0.46, -0.54), aspect="equal")
    axes.axis("off")
    for row in range(size):
        for column in range(size):
            colour = _HOLE if instance.holes[row * max_size + column] else _FREE
            axes.fill(column + 0.47 * _SQUARE[0], row + 0.47 * _SQUARE[1], color=colour, linewidth=0, zorder=1)

    # Sizes of markers and letters are in points, so they have to follow the size of a cell on paper.
    figure, box = axes.get_figure(), axes.get_position()
    points = 72 * min(box.width * figure.get_figwidth(), box.height * figure.get_figheight()) / (size + 0.08)
    num_agents = int(instance.num_agents)
    for agent in range(num_agents):
        colour = _COLOURS[agent % len(_COLOURS)]
        start, goal = (divmod(int(cells[agent]), max_size) for cells in (instance.starts, instance.goals))
        mark = {"marker": "o", "color": colour, "markeredgewidth": 0.06 * points, "linestyle": "none"}
        text = {"ha": "center", "va": "center_baseline", "fontsize": 0.28 * points, "fontweight": "bold"}
        axes.plot(*goal[::-1], markersize=2 * _RING * points, markerfacecolor="white", zorder=2, **mark)
        patch = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "linewidth": 0}  # Over paths through the ring.
        axes.text(*goal[::-1], str(agent), color=colour, zorder=5, bbox=patch, **text)
        axes.plot(*start[::-1], markersize=0.5 * points, zorder=5, **mark)
        axes.text(*start[::-1], str(agent), color="white", zorder=6, **text)
        if plan is not None:
            aside = 0.36 * ((agent + 0.5) / num_agents - 0.5)
            path = [divmod(int(cell), max_size) for cell in plan.paths[agent][: int(plan.lengths[agent])] if cell >= 0]
            while len(path) > 1 and path[-1] == path[-2] == goal:
                path.pop()
            _draw_path(path, goal, aside, colour, points, axes)
            waits = Counter(here for here, there in zip(path, path[1:], strict=False) if here == there)
            down, right = _CORNERS[agent % len(_CORNERS)]
            text["fontsize"] = 0.2 * points
            for (row, column), count in waits.items():
                axes.text(column + 0.32 * right, row + 0.35 * down, f"+{count}", color=colour, zorder=6, **text)


def _draw_path(
    path: list[tuple[int, int]], goal: tuple[int, int], aside: float, colour: str, points: float, axes: Any
) -> None:
    """A line through the cells, moved aside by the same amount down and right so that it stays parallel to others'."""
    stops = [here for here, before in zip(path, [None, *path], strict=False) if here != before]
    if len(stops) < 2:
        return
    line = np.array(stops, float) + aside
    direction = np.sign(np.subtract(stops[-1], stops[-2]))
    if stops[-1] == goal:
        line[-1] -= (_RING + 0.04 + aside * direction.sum()) * direction  # The arrow ends at the goal's ring.
    style = "-|>,head_width=0.45,head_length=0.7"
    arrow = {"arrowstyle": style, "mutation_scale": 0.24 * points, "color": colour, "linewidth": 0}
    line_end = line[-1] - 0.1 * direction
    axes.plot(*np.vstack([line[:-1], line_end]).T[::-1], color=colour, linewidth=0.06 * points, zorder=4)
    axes.annotate(
        "", xy=line[-1][::-1], xytext=line_end[::-1] - 0.05 * direction[::-1], arrowprops=arrow | _TIGHT, zorder=4
    )


def _draw_arrows(board: np.ndarray, plan: Plan, max_size: int) -> None:
    seen: dict[tuple[int, int], int] = {}
    for agent in np.flatnonzero(plan.lengths):
        path = [divmod(int(cell), max_size) for cell in np.asarray(plan.paths)[agent, : plan.lengths[agent]]]
        for here, there in zip(path, path[1:], strict=False):
            if here != there:
                arrow = _ARROWS.get((there[0] - here[0], there[1] - here[1]), "?")
                board[here] = "+" if seen.setdefault(here, agent) != agent else arrow

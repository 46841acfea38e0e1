"""Boards, plans and rollouts as SVG texts, moving ones included; needs no other library."""

from collections.abc import Sequence

import jax
import numpy as np

from jaxlake.record import Array
from jaxlake.render import scene
from jaxlake.state import State
from jaxlake.types import Instance, LifelongInstance, Plan

_CELL = 48  # Pixels; the picture scales to any size.
_SECONDS = 0.5  # Of a step.
_PAUSE = 3  # Steps before an animation begins again.
_MOST = 12  # Pictures of a batch.


def svg(instance: Instance, plan: Plan | None = None, positions: Sequence[int] | Array | None = None) -> str:
    """Draw an instance (no batch axes).

    Holes are dark; agents are discs and goals rings in the agent's colour with its number; paths run side by side with
    an arrow at their end. ``+2`` in a corner of a cell: the agent waits there two steps before its last arrival.

    Args:
      plan: the paths that are drawn, if any; cells off the padded board are left out.
      positions: cells ``[max_agents]`` where the agents are, their starts by default; ``state.positions`` for
        ``state.instance``, which in a lifelong episode has the goals now.
    """
    return _document(instance, [_element(shape) for shape in scene.still(instance, plan, positions)])


def animate(instance: Instance, moves: Plan | np.ndarray, goals: Array | None = None) -> str:
    """Draw an instance (no batch axes) in which the agents walk, over and over (SMIL).

    A star flashes where agents share a cell or swap cells; a red ring marks one in a hole; an agent that is nowhere or
    off the padded board is hidden.

    Args:
      moves: a plan, or cells ``[times, max_agents]``.
      goals: cells ``[times, max_agents]``, of a lifelong episode ``state.instance.goals`` at each time; by default the
        goals stay.
    """
    if goals is None and isinstance(instance, LifelongInstance):
        raise ValueError("the goals of a lifelong board move: animate needs state.instance.goals of each time")
    positions = scene.walks(instance, moves)
    clock = _Clock(len(positions) - 1)
    shapes, numbers = scene.background(instance) if goals is None else (scene.tiles(instance), [])
    marks = scene.alarms(instance, positions)
    elements = [_element(shape) for shape in shapes + numbers]
    if goals is not None:
        for agent, cells in enumerate(np.reshape(goals, (len(positions), instance.max_agents)).T[: positions.shape[1]]):
            elements.append(clock.moving(scene.goal(instance, agent, (0, 0)), instance.max_size, cells, jumps=True))
    elements += [clock.shown(_element(mark.shape), mark.begin, mark.end) for mark in marks]
    for agent, cells in enumerate(positions.T):
        elements.append(clock.moving(scene.token(instance, agent, (0, 0)), instance.max_size, cells))
    return _document(instance, elements)


def html(instances: Instance) -> str:
    """Draw an instance for a notebook, or the first twelve of a batch side by side."""
    if np.ndim(instances.size) == 0:
        return svg(instances)
    flat = jax.tree.map(lambda leaf: np.reshape(leaf, (-1, *np.shape(leaf)[np.ndim(instances.size) :])), instances)
    pictures = [svg(instance) for instance in flat[:_MOST]]
    more = f"<div>and {len(flat) - _MOST} more</div>" if len(flat) > _MOST else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px">{"".join(pictures)}</div>{more}'


# Notebooks ask the records, which lie below what draws them.
Instance._repr_html_ = html
State._repr_html_ = lambda state: svg(state.instance, positions=state.positions)


def _document(instance: Instance, elements: Sequence[str]) -> str:
    size = int(instance.size)
    low, side = _number(-scene.MARGIN), _number(size - 1 + 2 * scene.MARGIN)
    title = f"board of {size} x {size}, agents: {int(instance.num_agents)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{low} {low} {side} {side}" width="{side}" '
            f'height="{side}" role="img" font-family="DejaVu Sans, Verdana, sans-serif" font-weight="bold" '
            'text-anchor="middle">',
            f"<title>{title}</title>",
            '<rect x="-50%" y="-50%" width="200%" height="200%" fill="#FFFFFF"/>',
            *elements,
            "</svg>\n",
        ]
    )


def _element(shape: scene.Shape) -> str:
    match shape:
        case scene.Polygon():
            return f'<polygon points="{_points(shape.points)}" fill="{shape.colour}"/>'
        case scene.Line():
            look = f'fill="none" stroke="{shape.colour}" stroke-width="{_number(scene.LINE)}" stroke-linejoin="round"'
            return f'<polyline points="{_points(shape.points)}" {look}/>'
        case scene.Circle():
            x, y = map(_number, shape.centre)
            look = f'fill="{shape.inside}" stroke="{shape.colour}" stroke-width="{_number(scene.LINE)}"'
            return f'<circle cx="{x}" cy="{y}" r="{_number(shape.radius)}" {look}/>'
        case scene.Label():
            x, y = map(_number, shape.centre)
            # Most renderers know no dominant-baseline: capitals and digits are 0.7 of the font high.
            look = f'font-size="{_number(shape.size)}" fill="{shape.colour}"'
            return f'<text x="{x}" y="{y}" dy="0.35em" {look}>{shape.text}</text>'


def _points(points: Sequence[scene.Point]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(cells: float) -> str:
    """Cells in pixels."""
    return f"{round(_CELL * cells, 2):g}"


class _Clock:
    """Animations that all last as long: a number of steps and a pause."""

    def __init__(self, steps: int):
        self.steps = steps
        self.total = steps + _PAUSE

    def shown(self, element: str, begin: float, end: float) -> str:
        """Return the element, shown between two times, or to the pause's end if it is there after the last step."""
        changes = [(0.0, 0), (max(begin, 0.0), 1)] + ([(end, 0)] if end <= self.steps else [])
        if begin <= 0:
            changes = changes[1:]
        return f'<g opacity="0">{element}{self._opacity(changes)}</g>'

    def moving(self, shapes: Sequence[scene.Shape], max_size: int, cells: np.ndarray, jumps: bool = False) -> str:
        """Return shapes that move through cells int32 ``[times]``; they are not seen where the cell is negative."""
        seen = cells >= 0
        latest = np.maximum.accumulate(np.where(seen, np.arange(len(cells)), 0))
        places = [_points([scene.middle(max(cell, 0), max_size)]) for cell in cells[latest].tolist()]
        token = "".join(_element(shape) for shape in shapes)
        moments = [time / self.total for time in range(len(places))] + [1.0]
        look = f'attributeName="transform" type="translate" values="{";".join([*places, places[-1]])}"'
        look += ' calcMode="discrete"' * jumps
        times = ";".join(f"{moment:.5g}" for moment in moments)
        motion = f'<animateTransform {look} keyTimes="{times}" {self._cycle()}/>'
        changes = [
            (float(time), int(seen[time])) for time in range(len(cells)) if time == 0 or seen[time] != seen[time - 1]
        ]
        hiding = "" if seen.all() else self._opacity(changes)
        return f'<g transform="translate({places[0]})">{token}{motion}{hiding}</g>'

    def _opacity(self, changes: Sequence[tuple[float, int]]) -> str:
        values = ";".join(str(value) for _, value in changes)
        times = ";".join(f"{time / self.total:.5g}" for time, _ in changes)
        look = f'attributeName="opacity" calcMode="discrete" values="{values}" keyTimes="{times}"'
        return f"<animate {look} {self._cycle()}/>"

    def _cycle(self) -> str:
        return f'dur="{self.total * _SECONDS:g}s" repeatCount="indefinite"'

"""Boards and plans on a matplotlib ``Axes`` that is handed in; imports no plot library."""

from typing import Any

from jaxlake.render import scene
from jaxlake.types import Instance, Plan


def draw(instance: Instance, plan: Plan | None, axes: Any) -> None:
    """Draws one instance (no batch axes), and its paths where there is a plan, as ``svg`` does."""
    size = int(instance.size)
    low, high = -scene.MARGIN, size - 1 + scene.MARGIN
    axes.set(xlim=(low, high), ylim=(high, low), aspect="equal")
    axes.axis("off")
    # Widths of lines and letters are in points, so they have to follow the size of a cell on paper.
    figure, box = axes.get_figure(), axes.get_position()
    points = 72 * min(box.width * figure.get_figwidth(), box.height * figure.get_figheight()) / (high - low)
    width = scene.LINE * points
    for order, shape in enumerate(scene.still(instance, plan)):
        match shape:
            case scene.Polygon():
                axes.fill(*zip(*shape.points, strict=True), color=shape.colour, linewidth=0, zorder=order)
            case scene.Line():
                axes.plot(*zip(*shape.points, strict=True), color=shape.colour, linewidth=width, zorder=order)
            case scene.Circle():
                look = {"markerfacecolor": shape.inside, "markeredgecolor": shape.colour, "markeredgewidth": width}
                axes.plot(*shape.centre, marker="o", markersize=2 * shape.radius * points, zorder=order, **look)
            case scene.Label():
                look = {"ha": "center", "va": "center_baseline", "fontsize": shape.size * points, "fontweight": "bold"}
                axes.text(*shape.centre, shape.text, color=shape.colour, zorder=order, **look)

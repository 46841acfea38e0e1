"""Boards, plans and rollouts for human eyes: as SVG, as pixels, on matplotlib axes."""

from jaxlake.render.axes import draw
from jaxlake.render.pixels import png, rgb
from jaxlake.render.svg import animate, html, svg

__all__ = ["animate", "draw", "html", "png", "rgb", "svg"]

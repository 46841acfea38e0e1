"""Boards, plans and rollouts for human eyes: as characters, as SVG, as pixels and on matplotlib axes."""

from jaxlake.render.axes import draw
from jaxlake.render.boards import from_text, to_text
from jaxlake.render.pixels import frames, gif, png, rgb
from jaxlake.render.svg import animate, html, svg

__all__ = ["animate", "draw", "frames", "from_text", "gif", "html", "png", "rgb", "svg", "to_text"]

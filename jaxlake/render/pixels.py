"""Boards and plans as pixels and PNG files; needs Pillow (10.1), which matplotlib brings along."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlake.record import Array
from jaxlake.render import scene
from jaxlake.types import Instance, Plan

_WIDTH = 1024  # Of boards whose cells would have less than 48 pixels; 64 x 64 cells of 48 take 460 MB to draw.
_FINER = 4  # Pillow draws without smooth edges: pictures are drawn this much larger and averaged.


def rgb(
    instance: Instance,
    plan: Plan | None = None,
    positions: Sequence[int] | Array | None = None,
) -> np.ndarray:
    """Return the picture that ``svg`` draws, uint8 ``[height, width, 3]``.

    A cell has 48 pixels a side; a board of more than 21 cells a side is 1,024 pixels wide.
    """
    return np.asarray(_image(instance, scene.still(instance, plan, positions)))


def png(
    instance: Instance,
    plan: Plan | None = None,
    positions: Sequence[int] | Array | None = None,
) -> bytes:
    """Return the picture of ``rgb`` as a PNG file."""
    file = io.BytesIO()
    _image(instance, scene.still(instance, plan, positions)).save(file, "PNG", optimize=True)
    return file.getvalue()


def _image(instance: Instance, shapes: Sequence[scene.Shape]) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    cell = max(1, min(48, _WIDTH // int(instance.size)))
    unit = cell * _FINER
    side = round((int(instance.size) - 1 + 2 * scene.MARGIN) * cell)
    image = Image.new("RGB", (side * _FINER, side * _FINER), "#FFFFFF")
    canvas = ImageDraw.Draw(image)
    fonts: dict[float, ImageFont.FreeTypeFont] = {}

    def place(point: scene.Point) -> tuple[float, float]:
        return ((point[0] + scene.MARGIN) * unit, (point[1] + scene.MARGIN) * unit)

    for shape in shapes:
        match shape:
            case scene.Polygon():
                canvas.polygon([place(point) for point in shape.points], fill=shape.colour)
            case scene.Line():
                canvas.line(
                    [place(p) for p in shape.points], fill=shape.colour, width=round(scene.LINE * unit), joint="curve"
                )
            case scene.Circle():
                (x, y), reach = place(shape.centre), (shape.radius + scene.LINE / 2) * unit
                look = {"fill": shape.inside, "outline": shape.colour, "width": round(scene.LINE * unit)}
                canvas.ellipse((x - reach, y - reach, x + reach, y + reach), **look)
            case scene.Label():
                font = fonts.setdefault(shape.size, ImageFont.load_default(shape.size * unit))
                look = {"font": font, "anchor": "mm", "stroke_width": round(shape.size * unit / 24)}
                canvas.text(place(shape.centre), shape.text, fill=shape.colour, stroke_fill=shape.colour, **look)
    return image.resize((side, side), Image.Resampling.BOX)

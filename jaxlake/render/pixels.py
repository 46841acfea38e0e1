"""Boards, plans and rollouts as pixels, PNG and GIF files; needs Pillow (10.1), which matplotlib brings along."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlake.record import Array
from jaxlake.render import scene
from jaxlake.types import Instance, Plan

_FINER = 4  # Pillow draws without smooth edges: pictures are drawn this much larger and averaged.
_MOMENTS = 4  # Pictures of one step in an animation.
_MILLISECONDS = 120  # Of each of them.
_PAUSE = 1500  # Milliseconds on the last one.


def rgb(
    instance: Instance, plan: Plan | None = None, positions: Sequence[int] | Array | None = None, cell: int = 48
) -> np.ndarray:
    """The picture that ``svg`` draws, uint8 ``[height, width, 3]``; ``cell`` is the side of a cell in pixels."""
    return np.asarray(_image(instance, scene.still(instance, plan, positions), cell))


def frames(instance: Instance, moves: Plan | np.ndarray, cell: int = 48) -> np.ndarray:
    """The pictures that ``animate`` shows, four for each step, uint8 ``[4 * steps + 1, height, width, 3]``.

    Args:
      instance: without batch axes.
      moves: a plan, or cells ``[times, max_agents]``.
      cell: side of a cell in pixels.
    """
    positions = scene.walks(instance, moves)
    shapes, numbers = scene.background(instance)
    marks = scene.alarms(instance, positions)
    pictures = []
    for moment in range(_MOMENTS * (len(positions) - 1) + 1):
        before, part = divmod(moment, _MOMENTS)
        after = min(before + 1, len(positions) - 1)
        time = moment / _MOMENTS
        agents: list[scene.Shape] = [mark.shape for mark in marks if mark.begin <= time < mark.end]
        for agent, (here, there) in enumerate(zip(positions[before].tolist(), positions[after].tolist(), strict=True)):
            if here >= 0:
                begin = np.array(scene.middle(here, instance.max_size))
                end = np.array(scene.middle(there if there >= 0 else here, instance.max_size))
                agents += scene.token(agent, tuple((begin + part / _MOMENTS * (end - begin)).tolist()))
        pictures.append(np.asarray(_image(instance, shapes + numbers + agents, cell)))
    return np.stack(pictures)


def png(
    instance: Instance, plan: Plan | None = None, positions: Sequence[int] | Array | None = None, cell: int = 48
) -> bytes:
    """The picture of ``rgb`` as a PNG file."""
    file = io.BytesIO()
    _image(instance, scene.still(instance, plan, positions), cell).save(file, "PNG", optimize=True)
    return file.getvalue()


def gif(instance: Instance, moves: Plan | np.ndarray, cell: int = 48) -> bytes:
    """The pictures of ``frames`` as a GIF file that begins again after a pause."""
    from PIL import Image

    pictures = frames(instance, moves, cell)
    # One palette for all: with their own, the colours of pictures that follow one another flicker.
    some = pictures[:: max(1, len(pictures) // 8)]
    palette = Image.fromarray(np.concatenate(list(some))).quantize(128)
    images = [Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    duration = [_MILLISECONDS] * (len(images) - 1) + [_PAUSE]
    file = io.BytesIO()
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=duration, loop=0, optimize=True)
    return file.getvalue()


def _image(instance: Instance, shapes: Sequence[scene.Shape], cell: int) -> Any:
    """The shapes as a Pillow image."""
    from PIL import Image, ImageDraw, ImageFont

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

"""How the pictures of a report look, and what several of them need; draws none."""

import io
import itertools
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from engineer.evidence import CHECKS

# Okabe and Ito (2008): told apart under every common colour-vision deficiency.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
CHECK_COLOURS = dict(zip(CHECKS, (GREY, YELLOW, GREEN, PURPLE, BLUE, SKY, VERMILION, ORANGE), strict=True))
CHECK_MARKS = dict(zip(CHECKS, "oXs^Dv*P", strict=True))
SHADES = "Blues"
"""Of heat maps: one hue, told apart by lightness, and little ink for what is small."""
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
}
DPI = 160
FEW = 40
"""Points of a curve up to which each has a mark."""


def values(rows: Sequence[dict[str, Any]], key: str) -> np.ndarray:
    """A metric over the rows, float64 ``[rows]``; NaN where a row has none or null."""
    return np.array([np.nan if row.get(key) is None else row[key] for row in rows], float)


def spans(steps: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Begin and end of each round's rows among those of all rounds."""
    starts = [i for i in range(len(steps)) if i == 0 or steps[i]["round"] != steps[i - 1]["round"]]
    return list(itertools.pairwise((*starts, len(steps))))


def smooth(series: np.ndarray, parts: Sequence[tuple[int, int]], window: int) -> np.ndarray:
    """Running mean within each part: a redesign changes what a metric is measured on."""
    return np.concatenate([running_mean(series[begin:end], window) for begin, end in parts])


def running_mean(series: np.ndarray, window: int) -> np.ndarray:
    """Centred, over what is there of about ``window`` values; NaN where nothing is."""
    half = window // 2
    near = (series[max(0, i - half) : i + half + 1] for i in range(len(series)))
    return np.array([part[~np.isnan(part)].mean() if not np.isnan(part).all() else np.nan for part in near])


def marks(count: int) -> dict[str, Any]:
    """Of a curve of so few points that one without neighbours would be lost as a line."""
    return {"marker": "o", "markersize": 2.5} if count <= FEW else {}


def in_order(count: int) -> list[Any]:
    """Colours from light to dark; cividis keeps that order under colour-vision deficiencies."""
    return [matplotlib.colormaps["cividis"](share) for share in np.linspace(0.85, 0.15, count)]


def ink(shade: float) -> str:
    """Colour of a text that can be read on this shade, from 0 to 1, of ``SHADES``."""
    return "white" if shade > 0.65 else "black"


def mark_rounds(axes: Axes, steps: Sequence[dict[str, Any]], named: bool = True) -> None:
    """A dashed line where the environment was redesigned, and the rounds' names above."""
    for begin, end in spans(steps):
        if begin:
            axes.axvline(begin + 0.5, color="#444444", linestyle=(0, (4, 3)), linewidth=0.9)
        if named:
            name, place = f"round {steps[begin]['round']}", axes.get_xaxis_transform()
            axes.text((begin + end + 1) / 2, 1.02, name, ha="center", transform=place)


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()

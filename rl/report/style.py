"""The style of all pictures of a report, and the helpers that several of them share."""

import base64
import io
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
WIDTH = 9.2
"""Width of a page in inches."""


def values(rows: Sequence[dict[str, Any]], key: str) -> np.ndarray:
    """Return a metric over the rows, float64 ``[rows]``; NaN where a row has none or null."""
    return np.array([row.get(key) for row in rows], float)


def spans(steps: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return begin and end of each round's rows among those of all rounds."""
    starts = [i for i in range(len(steps)) if i == 0 or steps[i]["round"] != steps[i - 1]["round"]]
    return list(itertools.pairwise((*starts, len(steps))))


def running_mean(series: np.ndarray, window: int) -> np.ndarray:
    """Return the centred mean of what is known of about ``window`` values; NaN where nothing is."""
    half = window // 2
    near = (series[max(0, i - half) : i + half + 1] for i in range(len(series)))
    return np.array([part[~np.isnan(part)].mean() if not np.isnan(part).all() else np.nan for part in near])


def smooth(series: np.ndarray, steps: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the running mean within each round: a redesign changes what a metric is measured on."""
    return np.concatenate([running_mean(series[begin:end], len(steps) // 20) for begin, end in spans(steps)])


def evenly(count: int, most: int) -> list[int]:
    """Return at most so many places, from the first to the last of `count`."""
    return np.unique(np.linspace(0, count - 1, most).astype(int)).tolist()


def in_order(count: int) -> list[Any]:
    """Return colours from light to dark; cividis keeps that order under colour-vision deficiencies."""
    return [matplotlib.colormaps["cividis"](share) for share in np.linspace(0.85, 0.15, count)]


def mark_rounds(axes: Axes, steps: Sequence[dict[str, Any]], named: bool = True) -> None:
    """Draw a dashed line where the environment was redesigned, and the rounds' names above."""
    for begin, end in spans(steps):
        if begin:
            axes.axvline(begin + 0.5, color="#444444", linestyle=(0, (4, 3)), linewidth=0.9)
        if named:
            name, place = f"round {steps[begin]['round']}", axes.get_xaxis_transform()
            axes.text((begin + end + 1) / 2, 1.02, name, ha="center", transform=place)


def heat(axes: Axes, shares: np.ndarray, texts: Sequence[Sequence[str]] = (), font: float = 9) -> None:
    """Shade the cells of float ``[rows, columns]`` from 0 to 1, and write their texts into those that are known."""
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for (i, j), share in np.ndenumerate(shares):
        if texts and not np.isnan(share):
            ink = "white" if share > 0.65 else "black"
            axes.text(j, i, texts[i][j], ha="center", va="center", fontsize=font, color=ink)


def panels(
    count: int,
    height: float,
    xlabel: str | None,
    ylabel: str | None = None,
    abreast: int = 4,
    sharex: bool = True,
    sharey: bool = True,
) -> tuple[Figure, list[Any]]:
    """Make panels of a height in inches; the last of each column has its ticks' names, and the figure the axes'."""
    columns = min(count, abreast)
    lines = math.ceil(count / columns)
    figure = Figure(figsize=(max(4.5, WIDTH * columns / abreast), lines * height + 0.7), layout="constrained")
    grid = list(figure.subplots(lines, columns, sharex=sharex, sharey=sharey, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    for axes in grid[max(0, count - columns) : count]:
        axes.tick_params(labelbottom=True)
    if xlabel:
        figure.supxlabel(xlabel, fontsize=9)
    if ylabel:
        figure.supylabel(ylabel, fontsize=9)
    return figure, grid[:count]


def legend(figure: Figure, panels: Sequence[Axes], columns: int, side: str = "lower") -> None:
    """Write the labels of all panels below or above them, each once."""
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc=f"outside {side} center", ncols=columns)


class Picture(NamedTuple):
    """A picture as a PNG file, and its caption."""

    png: bytes
    caption: str

    @property
    def width(self) -> int:
        """Pixels on a page: a share of the file's, so that the lettering of all pictures has one size."""
        return round(0.69 * int.from_bytes(self.png[16:20]))

    @property
    def base64(self) -> str:
        """The file as text, for a page that contains its pictures."""
        return base64.b64encode(self.png).decode()


Drawing = tuple[Callable[[Any], Figure | None], str]
"""A function that draws a run or comparison, or returns None where there is nothing to draw; and the caption."""


def draw(drawings: Mapping[str, Drawing], subject: Any) -> dict[str, Picture]:
    """Return pictures by file name; one that there is nothing for is left out."""
    pictures = {}
    with matplotlib.rc_context(STYLE):
        for name, (draws, caption) in drawings.items():
            if (figure := draws(subject)) is not None:
                FigureCanvasAgg(figure)
                figure.savefig(buffer := io.BytesIO(), format="png", dpi=DPI)
                pictures[name] = Picture(buffer.getvalue(), caption)
    return pictures

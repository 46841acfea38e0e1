"""The style of all pictures of reports, and the parts that several of them share."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
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


Drawing = Callable[[Any], Figure | None]
"""A function that draws a run or comparison, or returns None where there is nothing to draw."""


def draw(drawings: Mapping[str, Drawing], subject: Any) -> dict[str, bytes]:
    """Return pictures as PNG files by name; one that there is nothing for is left out."""
    pictures = {}
    with matplotlib.rc_context(STYLE):
        for name, drawing in drawings.items():
            if (figure := drawing(subject)) is not None:
                FigureCanvasAgg(figure)
                figure.savefig(buffer := io.BytesIO(), format="png", dpi=DPI)
                pictures[name] = buffer.getvalue()
    return pictures


def panels(
    count: int, height: float, xlabel: str, ylabel: str = "", abreast: int = 4, sharey: bool = True
) -> tuple[Figure, list[Any]]:
    """Make panels of a height in inches; the last of each column has its ticks' names, and the figure the axes'."""
    columns = min(count, abreast)
    lines = math.ceil(count / columns)
    figure = Figure(figsize=(max(4.5, WIDTH * columns / abreast), lines * height + 0.7), layout="constrained")
    grid = list(figure.subplots(lines, columns, sharex=True, sharey=sharey, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    for axes in grid[max(0, count - columns) : count]:
        axes.tick_params(labelbottom=True)
    figure.supxlabel(xlabel, fontsize=9)
    if ylabel:
        figure.supylabel(ylabel, fontsize=9)
    return figure, grid[:count]


def heat(
    axes: Axes,
    shares: np.ndarray,
    rows: Sequence[Any],
    columns: Sequence[Any],
    texts: Sequence[Sequence[str]] | None = None,
    font: float = 8,
) -> None:
    """Shade the cells of float ``[rows, columns]`` from 0 to 1, and write their texts into those that are known."""
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks(range(len(columns)), list(map(str, columns)))
    axes.set_yticks(range(len(rows)), list(map(str, rows)), fontsize=9 if texts else 6)
    for (i, j), share in np.ndenumerate(shares):
        if texts and not np.isnan(share):
            ink = "white" if share > 0.65 else "black"
            axes.text(j, i, texts[i][j], ha="center", va="center", fontsize=font, color=ink)


def decimals(shares: np.ndarray) -> list[list[str]]:
    """Write shares with two decimals, such as ``.25``."""
    return [[f"{share:.2f}".removeprefix("0") for share in row] for row in shares]


def legend(figure: Figure, panels: Sequence[Axes], columns: int, side: str = "lower") -> None:
    """Write the labels of all panels below or above them, each once."""
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc=f"outside {side} center", ncols=columns)


def evenly(count: int, most: int) -> list[int]:
    """Return at most so many places, from the first to the last of `count`."""
    return np.linspace(0, count - 1, min(count, most)).astype(int).tolist()

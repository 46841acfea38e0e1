"""Draws each family at three densities into the folder that this file lies in: `python docs/families/draw.py`."""

from pathlib import Path

import jax
import numpy as np
from matplotlib import figure

from jaxlake import Family, Kind, Status, draw, solve
from jaxlake.generate import candidates

DENSITIES = (0.1, 0.3, 0.5)
SIZE, AGENTS = 8, 3
BOARDS = 16  # candidates: the first one that can be solved at each density is drawn


def main() -> None:
    for family in Family:
        shapes = [candidates.Shape(Kind(family, SIZE, AGENTS), density, SIZE, AGENTS) for density in DENSITIES]
        drawn = [candidates.draw(jax.random.key(7), 0, candidates.BLOCK, shape)[:BOARDS] for shape in shapes]
        solved = [solve(boards).status == Status.SOLVED for boards in drawn]
        number = int(np.argmax(np.all(solved, axis=0)))
        picture = figure.Figure(figsize=(7.2, 2.6), dpi=100)
        picture.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.9, wspace=0.06)
        for axes, boards, density in zip(picture.subplots(1, len(DENSITIES)), drawn, DENSITIES, strict=True):
            draw(boards[number], None, axes)
            axes.set_title(f"{family.value}, density {density:g}", fontsize=10)
        picture.savefig(Path(__file__).with_name(f"{family.value}.png"), metadata={"Software": None})


if __name__ == "__main__":
    main()

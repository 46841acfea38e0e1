"""Slices of a suite: boards by number of agents, waits, and size or family, and the shares of answers to them."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from engineer.evidence import wilson
from jaxlake.kinds import Kind
from rl.statistics import Share


@dataclasses.dataclass(frozen=True, eq=False)
class Slice:
    """Some boards of a set, in which every cell, a number of agents with a size, counts the same.

    Attributes:
      agents, wait, size: what the boards have in common: the wait is the share of boards of their part of the set that
        need one, the size is `Kind.board`. None stands for several; a mean over sizes is the paper's "Sum".
      whole: whether all wait subsets of its agents are in it, be there one or several.
      weights: float ``[boards]``, sums to 1, 0 for the boards that are not in it.
    """

    agents: int | None
    wait: float | None
    size: int | str | None
    whole: bool
    weights: np.ndarray

    @property
    def boards(self) -> np.ndarray:
        """The boards that are in it, bool ``[boards]``."""
        return self.weights > 0

    def mean(self, values: np.ndarray) -> float:
        """Return the mean of float ``[answers, boards]``."""
        return float((values @ self.weights).mean())

    def share(self, values: np.ndarray) -> Share:
        """Return the mean of float ``[answers, boards]`` from 0 to 1 with Wilson's interval.

        The interval is that of independent answers to as many boards as would tell as much if they were drawn from all
        cells together: a mean of C shares of n_i boards each has the variance of C^2 / sum(1 / n_i) boards, their
        number where the cells are of one size.
        """
        n = len(values) / np.square(self.weights).sum()
        return Share(value := self.mean(values), *wilson(value * n, n))


def number_cells(agents: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Number the cells, a number of agents with a size, by agents, then by size: int ``[boards]`` from 0 on."""
    cells = list(zip(agents.tolist(), size.tolist(), strict=True))
    ordered = sorted(set(cells), key=lambda cell: (cell[0], Kind.of(cell[1])))
    places = {cell: place for place, cell in enumerate(ordered)}
    return np.array([places[cell] for cell in cells])


def slices(agents: np.ndarray, wait: np.ndarray, size: np.ndarray) -> Iterator[Slice]:
    """Yield the slices of a set by its columns ``[boards]``: of each number of agents, then of all of them.

    For each of these one of each wait subset, then all subsets; for each of these one of each size, then all sizes.
    What would be the same slice again is left out, as are the sizes of all numbers of agents together.

    Args:
      agents, wait: numbers of agents and wait subsets.
      size: object, `Kind.board` of each.
    """
    cells = number_cells(agents, size)
    numbers = np.unique(agents).tolist()
    for number in (*numbers, None) if len(numbers) > 1 else numbers:
        own = np.ones(len(cells), bool) if number is None else agents == number
        subsets = np.unique(wait[own]).tolist()
        for subset in (*subsets, None) if len(subsets) > 1 else subsets:
            part = own if subset is None else own & (wait == subset)
            whole = subset is None or len(subsets) == 1
            for side in () if number is None else sorted(set(size[part].tolist()), key=Kind.of):
                yield Slice(number, subset, side, whole, cell_weights(cells, part & (size == side)))
            yield Slice(number, subset, None, whole, cell_weights(cells, part))


def cell_weights(cells: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return float ``[boards]`` that sum to 1: boards count so that the cells among them count the same.

    Args:
      cells: int ``[boards]``.
      chosen: bool ``[boards]``; the others get 0.
    """
    _, place, count = np.unique(cells[chosen], return_inverse=True, return_counts=True)
    weights = np.zeros(len(cells))
    weights[chosen] = 1 / (len(count) * count[place])
    return weights

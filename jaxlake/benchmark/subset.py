"""Parts of a fixed set that represent the whole: an order whose every beginning is spread evenly."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlake.fixed_sets import Benchmark
from jaxlake.types import Instance

_GOLDEN = (5**0.5 - 1) / 2


def spread(benchmark: Benchmark) -> np.ndarray:
    """Return the set's indices, int ``[n]``, in an order that visits all cells once before it visits one again.

    A cell has number of agents, size, family and wait subset in common. The cells come in the order of the multiples of
    the golden ratio modulo 1, so that neighbours are far apart; from visit to visit a cell continues with its next hole
    ratio, and the cells begin with different ones. Of the first n instances each cell has ``n / cells``,
    rounded up or down, as long as it lasts.
    """
    instances = benchmark.instances
    family = np.unique(benchmark.family, return_inverse=True)[1]
    columns = np.stack([instances.num_agents, instances.size, family, benchmark.wait_subset], axis=1)
    cell = np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)
    turn = np.argsort(np.argsort(_GOLDEN * np.arange(cell.max() + 1) % 1))[cell]
    ratios, ratio = np.unique(benchmark.hole_ratio, return_inverse=True)
    alike = cell * len(ratios) + ratio
    by_group = np.argsort(alike, kind="stable")
    place = np.empty(len(alike), int)  # among those of its cell and hole ratio
    place[by_group] = np.arange(len(alike)) - np.searchsorted(alike[by_group], alike[by_group])
    visit = place * len(ratios) + (ratio - turn) % len(ratios)
    return np.lexsort((turn, visit))


def take(benchmark: Benchmark, indices: Sequence[int] | np.ndarray) -> Benchmark:
    """Return the set's instances at ``indices``, in that order; name and account stay those of the whole set."""
    indices = np.asarray(indices, int)
    columns: dict[str, Any] = {
        name: part[indices] for name, part in vars(benchmark).items() if isinstance(part, (np.ndarray, Instance))
    }
    return dataclasses.replace(benchmark, ids=tuple(benchmark.ids[index] for index in indices), **columns)

"""Parts of the fixed sets: evenly spread at every length, and what is taken stays what it was."""

import numpy as np
import pytest

from jaxlake.benchmark import SETS, load, spread, take


def cells_of(benchmark, *more) -> np.ndarray:
    """A row of (agents, size, family, wait subset, ...) for each instance."""
    instances, family = benchmark.instances, np.unique(benchmark.family, return_inverse=True)[1]
    return np.stack([instances.num_agents, instances.size, family, benchmark.wait_subset, *more], axis=1)


@pytest.mark.parametrize("name", SETS)
def test_every_beginning_takes_from_all_cells_alike(name):
    benchmark, order = load(name), spread(load(name))
    everything, cell = np.unique(cells_of(benchmark), axis=0, return_inverse=True)
    for limit in (1, 7, 50, 63, 64, 200, 315, 800):
        counts = np.bincount(cell.reshape(-1)[order[:limit]], minlength=len(everything))
        assert counts.max() - counts.min() <= 1


def test_what_is_taken_keeps_its_columns_together():
    whole = load("validation")
    part = take(whole, [700, 3])
    assert part.ids == (whole.ids[700], whole.ids[3]) and len(part) == 2
    for field in ("optimum", "lower_bound", "makespan", "needs_wait", "family", "hole_ratio", "wait_subset"):
        assert (getattr(part, field) == getattr(whole, field)[[700, 3]]).all()
    assert (part.instances.holes == whole.instances.holes[[700, 3]]).all()
    assert part.account is whole.account

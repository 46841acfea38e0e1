"""The paper's figures: free of contradictions but for those that are named."""

import numpy as np
import pytest

from jaxlake.benchmark import published

SUM_MISPRINTS = {("Kimi-K2.5", 5): (13.47, 14.22), ("Gemini-3.1-Pro", 4): (12.95, 13.05)}


def test_sums_are_means_over_the_sizes_but_for_the_misprints():
    for row in published().rows:
        mean = np.mean(list(row.by_size.values()), axis=0)
        if (row.model, row.num_agents) in SUM_MISPRINTS:
            printed, right = SUM_MISPRINTS[row.model, row.num_agents]
            assert row.mean[0] == printed and mean[0] == pytest.approx(right, abs=0.005)
            told = (
                f"{row.model}, {row.num_agents} agents, Sum: valid is printed as {printed}, its cells average {right}"
            )
            assert told in published().misprints
        else:
            assert row.mean[0] == pytest.approx(mean[0], abs=0.011)
        assert row.mean[1] == pytest.approx(mean[1], abs=0.011)
    assert len(published().misprints) == 3

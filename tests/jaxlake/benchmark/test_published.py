"""The paper's figures: complete, and free of contradictions but for those that are named."""

import numpy as np
import pytest

from jaxlake.benchmark import published

SIZES = {3: list(range(3, 11)), 4: list(range(4, 11)), 5: list(range(5, 11))}
SUM_MISPRINTS = {("Kimi-K2.5", 5): (13.47, 14.22), ("Gemini-3.1-Pro", 4): (12.95, 13.05)}


def test_every_model_has_every_cell_of_the_benchmark():
    models = [row.model for row in published().rows if row.num_agents == 3]
    assert len(models) == 7 and models[-1] == "Qwen3-4B +GRPO designed"
    for agents, sizes in SIZES.items():
        rows = [row for row in published().rows if row.num_agents == agents]
        assert [row.model for row in rows] == models and all(list(row.by_size) == sizes for row in rows)
    assert 2 * sum(len(row.by_size) for row in published().rows) == 294
    assert all(valid >= optimal >= 0 for row in published().rows for valid, optimal in row.by_size.values())


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

"""Intervals, correlations and shares are held against hand-worked and brute-force ones."""

import numpy as np
import pytest

from rl.lab.statistics import cell_weights, intervals, ratio_interval, seed_interval, t_interval


def test_bootstrap_is_that_of_a_plain_loop():
    rng = np.random.default_rng(1)
    strata = np.repeat([7, 8, 9], (5, 8, 3))
    values = rng.normal(size=(4, 16)) + rng.normal(size=(4, 1))
    weights = np.stack([cell_weights(strata, strata < 9), cell_weights(strata, strata > 0)])
    by_group = intervals({"a": values}, weights, strata)["a"]
    drawn = []
    for _ in range(4000):
        seeds = rng.integers(4, size=4)
        boards = [rng.choice(np.flatnonzero(strata == s), (strata == s).sum()) for s in (7, 8, 9)]
        means = [values[np.ix_(seeds, part)].mean() for part in boards]
        drawn.append((np.mean(means[:2]), np.mean(means)))
    for interval, sample in zip(by_group, np.array(drawn).T, strict=True):
        assert (interval.low, interval.high) == pytest.approx(np.percentile(sample, (2.5, 97.5)), abs=0.06)
    assert by_group[0].mean == pytest.approx((values[:, :5].mean() + values[:, 5:13].mean()) / 2)


def test_what_is_the_same_for_all_seeds_and_boards_has_no_width():
    [interval] = intervals({"a": np.full((3, 6), 0.25)}, np.full((1, 6), 1 / 6), np.zeros(6, int))["a"]
    assert (interval.low, interval.high, interval.t_low, interval.t_high) == pytest.approx((0.25,) * 4)
    assert interval.is_clear


def test_one_seed_has_no_t_interval_and_is_never_clear():
    [interval] = intervals({"a": np.ones((1, 4))}, np.full((1, 4), 0.25), np.zeros(4, int))["a"]
    assert (interval.t_low, interval.t_high, interval.by_seed) == (None, None, (1.0,))
    assert not interval.is_clear


def test_t_interval_of_one_two_three():
    # Mean 2, standard deviation 1, t of 2 degrees of freedom 4.3027.
    assert t_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)


def test_bootstrap_of_three_seeds_reaches_from_the_least_to_the_largest():
    # Of three seeds drawn, all are the same one in 1 of 27 cases each, which is more than 2.5 %.
    interval = seed_interval(np.array([0.1, 0.4, 0.2]))
    assert (interval.low, interval.high) == pytest.approx((0.1, 0.4))


def test_four_of_five_samples_around_a_detectable_difference_tell_it_from_zero():
    rng = np.random.default_rng(0)
    sample = rng.normal(0, 0.05, 6)
    sample *= 0.05 / sample.std(ddof=1)
    detectable = seed_interval(sample).detectable
    assert seed_interval(sample[:1]).detectable is None
    drawn = rng.normal(detectable, 0.05, (20_000, 6))
    found = drawn.mean(axis=1) - 2.5706 * drawn.std(axis=1, ddof=1) / 6**0.5 > 0  # Student's t of five degrees
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_interval_of_a_ratio_is_that_of_a_plain_loop():
    rng = np.random.default_rng(3)
    denominator = rng.uniform(0.1, 0.9, 12)
    numerator = 0.6 * denominator + rng.normal(0, 0.1, 12)
    picks = rng.integers(12, size=(20_000, 12))
    drawn = [numerator[seeds].mean() / denominator[seeds].mean() for seeds in picks]
    _, low, high = ratio_interval(numerator, denominator)
    assert (low, high) == pytest.approx(np.percentile(drawn, (2.5, 97.5)), abs=0.01)


def test_cells_weigh_the_same_whatever_their_boards():
    cells, chosen = np.array([1, 1, 1, 2, 9]), np.array([True, True, True, True, False])
    assert cell_weights(cells, chosen) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2, 0])

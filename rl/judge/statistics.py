"""Intervals, rank correlation and paired differences: functions of numpy arrays that know no run and no file."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import nctdtrinc, stdtrit

from engineer.evidence import wilson

COVERED = 0.95
"""Probability that every interval is meant to cover."""
POWER = 0.8
"""Probability that a difference is found of which it is said that it could be."""
RESAMPLES = 10_000
ENDS = [100 * (1 - COVERED) / 2, 100 * (1 + COVERED) / 2]
"""Percentiles between which that much lies."""


@dataclasses.dataclass(frozen=True)
class Share:
    """A share from 0 to 1 with its 95 % interval; the ends are None where the error is not known."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, count: float, n: float) -> "Share":
        """Return ``count / n`` with Wilson's interval."""
        return cls(count / n, *wilson(count, n))

    @property
    def percent(self) -> tuple[float, ...]:
        """The share in percent, and the ends of the interval if it is known."""
        return tuple(100 * part for part in (self.value, self.low, self.high) if part is not None)

    def text(self, digits: int = 0) -> str:
        """Write percent, such as ``51 [46-56]``; the share alone has the digits."""
        value, *ends = self.percent
        return f"{value:.{digits}f}" + (f" [{ends[0]:.0f}-{ends[1]:.0f}]" if ends else "")


def cell_weights(cells: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return float ``[boards]`` that sum to 1, 0 unless ``chosen``: the cells among the boards count the same."""
    _, place, count = np.unique(cells[chosen], return_inverse=True, return_counts=True)
    weights = np.zeros(len(cells))
    weights[chosen] = 1 / (len(count) * count[place])
    return weights


def weighted_share(values: np.ndarray, weights: np.ndarray) -> Share:
    """Return the weighted mean of float ``[answers, boards]`` from 0 to 1 with Wilson's interval.

    The interval is that of independent answers to as many boards as would tell as much if they were drawn from all
    cells together: a mean of C shares of n_i boards each has the variance of C^2 / sum(1 / n_i) boards, their number
    where the cells are of one size.
    """
    n = len(values) / np.square(weights).sum()
    value = float((values @ weights).mean())
    return Share(value, *wilson(value * n, n))


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over seeds with two 95 % intervals.

    Attributes:
      low, high: ends of the bootstrap interval.
      t_low, t_high: ends of Student's t interval over the seeds, with the boards as they are; None with one seed.
    """

    mean: float
    low: float
    high: float
    t_low: float | None
    t_high: float | None
    by_seed: tuple[float, ...]

    @property
    def is_clear(self) -> bool:
        """Whether both intervals exclude zero, and so whether there is more than one seed."""
        if self.t_low is None or self.t_high is None:
            return False
        return min(self.low, self.t_low) > 0 or max(self.high, self.t_high) < 0

    @property
    def detectable(self) -> float | None:
        """The true mean that Student's interval would tell from 0 in `POWER` of all such samples; None for one seed.

        From the noncentral t distribution, with the deviation over the seeds that was measured.
        """
        count = len(self.by_seed)
        if count < 2:
            return None
        critical = stdtrit(count - 1, (1 + COVERED) / 2)
        error = np.std(self.by_seed, ddof=1) / math.sqrt(count)
        return float(nctdtrinc(count - 1, 1 - POWER, critical) * error)


def t_interval(by_seed: np.ndarray) -> tuple[float, float] | tuple[None, None]:
    """Return Student's 95 % interval of the mean of float ``[seeds]``; two None for a single seed."""
    count = len(by_seed)
    if count < 2:
        return None, None
    half = float(stdtrit(count - 1, (1 + COVERED) / 2)) * by_seed.std(ddof=1) / math.sqrt(count)
    return float(by_seed.mean() - half), float(by_seed.mean() + half)


def seed_interval(by_seed: np.ndarray) -> Interval:
    """Return the mean of float ``[seeds]`` with intervals for new seeds, the boards as they are."""
    low, high = np.percentile(_draw_seeds(len(by_seed), RESAMPLES) @ by_seed, ENDS)
    return _interval(by_seed, low, high)


def ratio_interval(numerator: np.ndarray, denominator: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of the means of two float ``[seeds]``, and the ends of its 95 % interval by paired bootstrap.

    Percentile interval; a resample has the same seeds in both. The mean of the denominator must be clearly above 0:
    the few resamples in which it is not are left out. Efron and Tibshirani 1993, "An Introduction to the Bootstrap",
    chapter 25, has the same ratio of differences.
    """
    picked = _draw_seeds(len(numerator), RESAMPLES)
    above, below = picked @ numerator, picked @ denominator
    low, high = np.percentile(above[below > 0] / below[below > 0], ENDS)
    return float(numerator.mean() / denominator.mean()), float(low), float(high)


def intervals(
    values: Mapping[Any, np.ndarray], weights: np.ndarray, strata: np.ndarray, resamples: int = RESAMPLES
) -> dict[Any, list[Interval]]:
    """Return weighted sums over boards, averaged over seeds, with intervals for new seeds and new boards.

    Hierarchical bootstrap, percentile interval: each time seeds are drawn with replacement, and boards with
    replacement within each stratum; every seed and every entry of ``values`` sees the same boards (both ways of a table
    resampled: Owen 2007, "The pigeonhole bootstrap"). For a paired difference the values are differences.

    The interval covers other boards of the same kinds, and other seeds of what differs between the seeds. Few seeds are
    little to draw from: where seeds differ by more than the boards explain, an interval of 95 % covers, by simulation
    with normal seeds, 83 % with 5 seeds, 90 % with 10 and 51 % with 2. Student's t beside it covers 95 % of normal
    seeds, whatever their number, and leaves the boards as they are: trust what both exclude.

    Args:
      values: values by name, float ``[seeds, boards]``; the numbers of seeds may differ.
      weights: float ``[groups, boards]``: a row makes a number of the boards, such as the mean over those of a size;
        the same for all boards of a stratum.
      strata: int ``[boards]``: the boards are drawn within these.

    Returns:
      By name an interval for each group.
    """
    if not values:
        return {}
    columns = np.concatenate([np.asarray(part, np.float32) for part in values.values()])
    drawn = _resample_boards(columns, weights, strata, resamples)
    by_name, begin = {}, 0
    for name, part in values.items():
        seeds = len(part)
        means = np.einsum("rgs,rs->rg", drawn[:, :, begin : begin + seeds], _draw_seeds(seeds, resamples))
        ends = np.percentile(means, ENDS, axis=0)
        exact = np.asarray(part, float) @ weights.T
        by_name[name] = [_interval(own, low, high) for own, low, high in zip(exact.T, *ends, strict=True)]
        begin += seeds
    return by_name


def _interval(by_seed: np.ndarray, low: float, high: float) -> Interval:
    t_low, t_high = t_interval(by_seed)
    return Interval(float(by_seed.mean()), float(low), float(high), t_low, t_high, tuple(by_seed.tolist()))


def _draw_seeds(count: int, resamples: int) -> np.ndarray:
    """Return the weights of seeds drawn with replacement, float ``[resamples, count]``, the same for every call."""
    return np.random.default_rng(1).multinomial(count, [1 / count] * count, resamples) / count


def _resample_boards(columns: np.ndarray, weights: np.ndarray, strata: np.ndarray, resamples: int) -> np.ndarray:
    """Return the weighted sums of ``[columns, boards]`` on drawn boards, float32 ``[resamples, groups, columns]``."""
    rng = np.random.default_rng(0)
    sums = np.zeros((resamples, len(weights), len(columns)), np.float32)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        count = len(members)
        drawn = rng.integers(count, size=(resamples, count)) + count * np.arange(resamples)[:, None]
        times = np.bincount(drawn.ravel(), minlength=resamples * count).reshape(resamples, count).astype(np.float32)
        drawn_sums, weight = times @ columns[:, members].T, weights[:, members[0]].astype(np.float32)
        for group in np.flatnonzero(weight):
            sums[:, group] += weight[group] * drawn_sums
    return sums

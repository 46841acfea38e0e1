"""The statistics of a comparison: pure functions of numpy arrays; reads nothing and knows no engineer."""

import dataclasses
import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

RESAMPLES = 10_000
COVERED = 0.95
"""Probability that every interval of a comparison is meant to cover."""
_ENDS = [100 * (1 - COVERED) / 2, 100 * (1 + COVERED) / 2]
"""Percentiles between which that much lies."""
_CHUNK = 1_000  # resamples at a time: their counts of boards stay below 20 MB

Key = TypeVar("Key", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over seeds with two 95 % intervals.

    Attributes:
      mean: over seeds.
      low, high: by the hierarchical bootstrap of ``intervals``.
      t_low, t_high: Student's t over the seeds, the boards as they are; None with one seed.
      by_seed: the seeds' own values.
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
        if self.t_low is None:
            return False
        return min(self.low, self.t_low) > 0 or max(self.high, self.t_high) < 0


def intervals(
    values: Mapping[Key, np.ndarray], weights: np.ndarray, strata: np.ndarray, resamples: int = RESAMPLES
) -> dict[Key, list[Interval]]:
    """Return weighted sums over boards, averaged over seeds, with intervals for new seeds and new boards.

    Hierarchical bootstrap, percentile interval: each time seeds are drawn with replacement, and boards with
    replacement within each stratum; every seed and every entry of ``values`` sees the same boards (both ways of a table
    resampled: Owen 2007, "The pigeonhole bootstrap"). A paired difference is one whose values are differences.

    What it covers: other boards of the same kinds, and other seeds of what differs between the seeds. Few seeds are
    little to draw from. Where the seeds differ by more than the boards explain, an interval of 95 % covers, by
    simulation with normal seeds, 83 % with 5 seeds, 90 % with 10 and 51 % with 2. Student's t beside it covers 95 %
    of seeds that are normal, whatever their number, and leaves the boards as they are: trust what both exclude.

    Args:
      values: by name, float ``[seeds, boards]``; the numbers of seeds may differ.
      weights: float ``[groups, boards]``: a row makes a number of the boards, such as the mean over those of a size;
        the same for all boards of a stratum.
      strata: int ``[boards]``: the boards are drawn within these.
      resamples: how often.

    Returns:
      By name an interval for each group.
    """
    if not values:
        return {}
    rng = np.random.default_rng(0)
    columns = np.concatenate([np.asarray(part, np.float32) for part in values.values()])
    drawn = _resample_boards(columns, weights, strata, resamples, rng)
    by_name, begin = {}, 0
    for name, part in values.items():
        seeds = len(part)
        means = np.einsum("rgs,rs->rg", drawn[:, :, begin : begin + seeds], _draw_seeds(seeds, resamples))
        ends = np.percentile(means, _ENDS, axis=0)
        exact = np.asarray(part, float) @ weights.T
        by_name[name] = [
            Interval(float(own.mean()), float(low), float(high), *t_interval(own), tuple(own.tolist()))
            for own, low, high in zip(exact.T, *ends, strict=True)
        ]
        begin += seeds
    return by_name


def seed_interval(by_seed: np.ndarray) -> Interval:
    """Return the mean of float ``[seeds]`` with intervals for new seeds, the boards as they are."""
    low, high = np.percentile(_draw_seeds(len(by_seed), RESAMPLES) @ by_seed, _ENDS)
    return Interval(float(by_seed.mean()), float(low), float(high), *t_interval(by_seed), tuple(by_seed.tolist()))


def ratio_interval(numerator: np.ndarray, denominator: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of the means of two float ``[seeds]``, and the ends of its 95 % interval by paired bootstrap.

    Percentile interval; a resample has the same seeds in both. For a denominator whose mean is clearly above 0: the
    few resamples in which it is not are left out. Efron and Tibshirani 1993, "An Introduction to the Bootstrap",
    chapter 25, has the same ratio of differences.
    """
    picked = _draw_seeds(len(numerator), RESAMPLES)
    above, below = picked @ numerator, picked @ denominator
    low, high = np.percentile(above[below > 0] / below[below > 0], _ENDS)
    return float(numerator.mean() / denominator.mean()), float(low), float(high)


def _draw_seeds(count: int, resamples: int) -> np.ndarray:
    """Return the weights of seeds drawn with replacement, float ``[resamples, count]``, the same for every call."""
    return np.random.default_rng(1).multinomial(count, [1 / count] * count, resamples) / count


def _resample_boards(
    columns: np.ndarray, weights: np.ndarray, strata: np.ndarray, resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the weighted sums of ``[columns, boards]`` on drawn boards, float32 ``[resamples, groups, columns]``."""
    sums = np.zeros((resamples, len(weights), len(columns)), np.float32)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        count = len(members)
        weight = weights[:, members[0]].astype(np.float32)
        groups = np.flatnonzero(weight)
        values = np.ascontiguousarray(columns[:, members].T)
        for begin in range(0, resamples, _CHUNK):
            rows = min(_CHUNK, resamples - begin)
            drawn = rng.integers(count, size=(rows, count)) + count * np.arange(rows)[:, None]
            times = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float32)
            drawn_sums = times @ values
            for g in groups:
                sums[begin : begin + rows, g] += weight[g] * drawn_sums
    return sums


def t_interval(by_seed: np.ndarray) -> tuple[float, float] | tuple[None, None]:
    """Return Student's 95 % interval of the mean of float ``[seeds]``; two None where there is one seed."""
    count = len(by_seed)
    if count < 2:
        return None, None
    half = float(stdtrit(count - 1, (1 + COVERED) / 2)) * by_seed.std(ddof=1) / math.sqrt(count)
    return float(by_seed.mean() - half), float(by_seed.mean() + half)


def cvar(values: np.ndarray, alpha: float) -> float:
    """Return the conditional value at risk: the mean of the worst share ``alpha`` of float ``[boards]``.

    The last board counts in part. Rockafellar and Uryasev 2000; of curricula in Rutherford et al. 2024, "No Regrets".
    """
    worst = np.sort(values)
    share = np.clip(alpha * len(worst) - np.arange(len(worst)), 0, 1)
    return float(share @ worst / (alpha * len(worst)))


def transitions(before: np.ndarray, after: np.ndarray, kinds: int) -> np.ndarray:
    """Count the answers that were of the row's kind before and are of the column's after, int ``[kinds, kinds]``."""
    matrix = np.zeros((kinds, kinds), int)
    np.add.at(matrix, (before, after), 1)
    return matrix


def largest_drop(rates: np.ndarray) -> np.ndarray:
    """Return by how much float ``[checkpoints, sizes]`` falls at most below an earlier checkpoint, float ``[sizes]``.

    The largest of several noisy differences: it is above zero where nothing was forgotten, too.
    """
    return (np.maximum.accumulate(rates) - rates).max(axis=0)

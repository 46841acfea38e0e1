"""The statistics of branches: pure functions of numpy arrays; reads nothing and knows no design."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from rl.statistics import COVERED, mean_known, spearman

RESAMPLES = 2_000
_CHUNK = 200  # resamples at a time: a transfer matrix of 30 kinds, three repeats of it, then takes 4 MB


@dataclasses.dataclass(frozen=True)
class Interval:
    """A statistic averaged over the states with a 95 % interval.

    Attributes:
      value: mean over the states in which it is defined.
      low, high: by the percentile bootstrap over the members of each state: other designs, the states as they are.
      by_state: the value of each state; None where it is not defined.
    """

    value: float
    low: float
    high: float
    by_state: Mapping[str, float | None]


def bootstrap(
    statistic: Callable[..., np.ndarray], samples: Mapping[str, tuple[np.ndarray, ...]], resamples: int = RESAMPLES
) -> Interval | None:
    """Return the mean of a statistic over the states, with an interval for other members of each.

    Percentile bootstrap (Efron 1979): members are drawn with replacement within each state, again and again. Resamples
    in which the statistic is defined for no state, such as a rank correlation of one design drawn K times, are
    left out.

    Args:
      statistic: takes the arrays of a state with members drawn, each ``[resamples, members, ...]``, and returns float
        ``[resamples]``, NaN where it is not defined.
      samples: by state one or more arrays ``[members, ...]``, whose members are drawn together.
      resamples: how often.

    Returns:
      None where the statistic is defined for no state.
    """
    by_state = {name: float(statistic(*(array[None] for array in arrays))[0]) for name, arrays in samples.items()}
    if np.isnan(list(by_state.values())).all():
        return None
    rng = np.random.default_rng(0)
    drawn = []
    for begin in range(0, resamples, _CHUNK):
        count = min(_CHUNK, resamples - begin)
        values = []
        for arrays in samples.values():
            members = rng.integers(len(arrays[0]), size=(count, len(arrays[0])))
            values.append(statistic(*(array[members] for array in arrays)))
        drawn.append(mean_known(np.stack(values, axis=-1)))
    tail = 100 * (1 - COVERED) / 2
    low, high = np.nanpercentile(np.concatenate(drawn), [tail, 100 - tail])
    mean = float(mean_known(np.array(list(by_state.values()))))
    known = {name: None if np.isnan(value) else value for name, value in by_state.items()}
    return Interval(mean, float(low), float(high), known)


def retest_correlation(gains: np.ndarray) -> np.ndarray:
    """Return the mean over pairs of repeats of the rank correlation of gains ``[..., designs, repeats]``.

    NaN with one repeat; a pair for which it is not defined does not count.
    """
    pairs = itertools.combinations(range(gains.shape[-1]), 2)
    correlations = [spearman(gains[..., i], gains[..., j]) for i, j in pairs]
    return mean_known(np.stack(correlations, axis=-1)) if correlations else np.full(gains.shape[:-2], np.nan)


def spearman_brown(correlation: np.ndarray, repeats: int) -> np.ndarray:
    """Return the correlation of means over as many repeats, from that of single ones; 0 where that is below 0.

    Spearman 1910 and Brown 1910, who derive it for Pearson's correlation: of ranks it is close.
    """
    single = np.maximum(correlation, 0.0)
    return repeats * single / (1 + (repeats - 1) * single)


def intraclass(gains: np.ndarray) -> np.ndarray:
    """Return the share of the variance of gains ``[..., designs, repeats]`` that is between designs.

    ICC(1) of a one-way analysis of variance (Shrout and Fleiss 1979): what differs between repeats is noise, also where
    it moves all designs alike. Without bias, and so below 0 at times where there is nothing; NaN with one repeat and
    where all gains are equal.
    """
    repeats = gains.shape[-1]
    if repeats < 2:
        return np.full(gains.shape[:-2], np.nan)
    between = repeats * gains.mean(-1).var(-1, ddof=1)
    within = gains.var(-1, ddof=1).mean(-1)
    with np.errstate(invalid="ignore"):
        return (between - within) / (between + (repeats - 1) * within)


def specialisation(gains: np.ndarray) -> np.ndarray:
    """Return what the best kind to train on gains above the mean one, averaged over the kinds gained on.

    The best is chosen for each kind gained on by the other repeats than the one it is measured in: chosen by the same
    numbers, it would be above the mean by luck alone.

    Args:
      gains: ``[..., gained on, repeats, trained on]``.

    Returns:
      Float ``[...]``; NaN with one repeat.
    """
    repeats = gains.shape[-2]
    if repeats < 2:
        return np.full(gains.shape[:-3], np.nan)
    others = gains.sum(-2, keepdims=True) - gains
    best = np.take_along_axis(gains, others.argmax(-1)[..., None], axis=-1)[..., 0]
    return (best - gains.mean(-1)).mean((-1, -2))


def variance_shares(gains: np.ndarray) -> np.ndarray:
    """Return what makes up a transfer matrix, as shares of the variance that its repeats have in common.

    Each repeat of the matrix is the sum of its mean, an effect of what was trained on, one of what was gained on, and
    the interaction, which is the rest (two-way analysis of variance). The product of an effect in two different
    repeats is on average the square of the true effect, whatever the noise, as repeats are independent: its mean over
    cells and pairs of repeats is the effect's variance without bias. Below 0, which is noise, it counts as 0.

    Args:
      gains: ``[..., gained on, repeats, trained on]``.

    Returns:
      Float ``[..., 3]``: share of the kinds trained on, of those gained on, of the interaction. NaN with one repeat,
      and where repeats have nothing in common.
    """
    repeats = gains.shape[-2]
    if repeats < 2:
        return np.full((*gains.shape[:-3], 3), np.nan)
    mean = gains.mean((-1, -3), keepdims=True)
    trained_on, gained_on = gains.mean(-3, keepdims=True) - mean, gains.mean(-1, keepdims=True) - mean
    effects = (trained_on, gained_on, gains - mean - trained_on - gained_on)
    products = [effect.sum(-2) ** 2 - (effect**2).sum(-2) for effect in effects]  # summed over pairs of repeats
    common = np.maximum(np.stack([product.mean((-1, -2)) for product in products], axis=-1), 0.0)
    with np.errstate(invalid="ignore"):
        return common / common.sum(-1, keepdims=True)


def repeat_half_widths(gains: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return half of Student's 95 % interval of a transfer matrix's cells, for other repeats on the same boards.

    The variance between repeats is that of all kinds trained on together: few repeats say little about that of one.

    Args:
      gains: of each state ``[gained on, repeats, trained on]``; the matrix is the mean over repeats and states.

    Returns:
      Float ``[gained on]``; None with one repeat.
    """
    if any(one.shape[1] < 2 for one in gains):
        return None
    freedom = sum((one.shape[1] - 1) * one.shape[2] for one in gains)
    squares = sum((one.var(1, ddof=1) * (one.shape[1] - 1)).sum(-1) for one in gains)
    spread = np.sqrt(squares / freedom * sum(1 / one.shape[1] for one in gains)) / len(gains)
    return stdtrit(freedom, (1 + COVERED) / 2) * spread

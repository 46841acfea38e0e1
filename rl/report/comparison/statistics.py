"""The statistics of a comparison beside intervals: pure functions of numpy arrays."""

import numpy as np


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

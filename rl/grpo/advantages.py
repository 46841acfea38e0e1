"""How much better an answer is than the others of its group; plain numpy over the answers of a whole step."""

import numpy as np

from rl.config.choices import Advantage


def advantages(rewards: np.ndarray, groups: np.ndarray, kind: Advantage, epsilon: float = 1e-4) -> np.ndarray:
    """Compute the advantages of answers whose groups may be of any sizes and lie in any order.

    Standard deviations are the population's. A group of one answer, and one whose rewards are all equal, gets exactly
    0, hence no gradient: sums are float64, where the mean of equal float32 numbers is that number.

    Args:
      rewards: float32 ``[B]``.
      groups: int ``[B]``, equal for the answers of a group, as their instance's number is; prompts may coincide.
      epsilon: added to standard deviations.

    Returns:
      float32 ``[B]``. A reward that is not finite makes its group's advantages NaN, and `update` skips the batch.
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rewards, size = rewards.astype(np.float64), sizes[group]

    def mean(values: np.ndarray) -> np.ndarray:
        """Return the mean over each answer's group."""
        return (np.bincount(group, values) / sizes)[group]

    centered = rewards - mean(rewards)
    match kind:
        case Advantage.GROUP_STD:
            scaled = centered / (np.sqrt(mean(centered**2)) + epsilon)
        case Advantage.CENTERED:
            scaled = centered
        case Advantage.BATCH_STD:
            scaled = centered / (rewards.std() + epsilon)
        case Advantage.RLOO:  # r - (n mean - r) / (n - 1)
            scaled = centered * size / np.maximum(size - 1, 1)
    return scaled.astype(np.float32)

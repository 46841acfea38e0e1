"""Advantages of answers over their group, and of tokens over the other likely ones; plain numpy."""

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
        return (np.bincount(group, values) / sizes)[group]

    centered = rewards - mean(rewards)
    match kind:
        case "group_std":
            scaled = centered / (np.sqrt(mean(centered**2)) + epsilon)
        case "centered":
            scaled = centered
        case "batch_std":
            scaled = centered / (rewards.std() + epsilon)
        case "rloo":  # r - (n mean - r) / (n - 1)
            scaled = centered * size / np.maximum(size - 1, 1)
    return scaled.astype(np.float32)


def token_advantages(credit: np.ndarray, logprobs: np.ndarray) -> np.ndarray:
    """Compute the advantages of tokens that are known to be right or wrong.

    A right token of probability p gets sqrt(p), a wrong one -p / sqrt(1 - p). Between two tokens, of which one is right
    with probability P, the gradient is on average that of 2 sqrt(P): what is hardly ever right weighs more than under
    P, the plain reward, whose gradient is as small as the rare success, and less than under log P, where a token
    that cannot be known drowns the others. Tokens that are equally right compete: the likelier one gains.

    Args:
      credit: int8 ``[B, T]``, 1 for a right token, -1 for a wrong one, 0 where nothing is said.
      logprobs: float32 ``[B, T]``, of the tokens when they were sampled.

    Returns:
      float32 ``[B, T]``, within [-10, 1].
    """
    p = np.exp(np.minimum(logprobs, 0.0))
    wrong = p / np.sqrt(np.maximum(1 - p, 0.01))  # bounded, as the last of 1 - p is rounding
    return np.select([credit > 0, credit < 0], [np.sqrt(p), -wrong]).astype(np.float32)

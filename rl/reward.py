"""The paper's reward: accuracy by cost, a penalty on length, and weights that follow how short the answers are."""

import numpy as np


def accuracy(valid: np.ndarray, cost: np.ndarray, optimum: np.ndarray) -> np.ndarray:
    """R_acc of each answer (paper, reward; as reconstructed).

    0 unless all checks pass; with c = cost - optimum and c_max = 2 * optimum: 1 - 0.7 * c / c_max up to c_max, 0.3
    beyond. An optimum of 0 (every agent starts on its goal) leaves 1 for cost 0 and 0.3 for any other.

    Args:
      valid: bool ``[...]``.
      cost, optimum: int ``[...]``, time steps.

    Returns:
      float32 ``[...]`` in [0, 1].
    """
    excess = cost - optimum
    share = np.where(excess > 0, excess / np.maximum(2 * optimum, 1), 0.0)
    graded = np.where((excess <= 2 * optimum) | (excess <= 0), 1 - 0.7 * share, 0.3)
    return np.where(valid, graded, 0.0).astype(np.float32)


def length_penalty(tokens: np.ndarray, free: int, limit: int) -> np.ndarray:
    """R_len: 0 up to `free` tokens (the paper's L1), -1 from `limit` on (L2), linear between; float32."""
    return -np.clip((tokens - free) / (limit - free), 0.0, 1.0).astype(np.float32)


def weights(short_share: float) -> tuple[float, float]:
    """(w_acc, w_len) for the moving share of answers with at most L1 tokens: (.5, .5) below .5, (.8, .2) from .9 on."""
    w_acc = 0.5 + 0.3 * min(max((short_share - 0.5) / 0.4, 0.0), 1.0)
    return w_acc, 1.0 - w_acc


def moving_share(previous: float | None, tokens: np.ndarray, free: int, decay: float) -> float:
    """The next exponential moving average of the share of answers with at most `free` tokens; starts at the first."""
    share = float(np.mean(tokens <= free))
    return share if previous is None else decay * previous + (1 - decay) * share

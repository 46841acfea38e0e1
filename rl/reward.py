"""The paper's reward beside `jaxlake.rewards.accuracy`: a penalty on length, and weights that follow it."""

import numpy as np


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

"""The spread of a configuration's data over kinds of boards."""

import math
from collections.abc import Sequence


def entropy(shares: Sequence[float]) -> float:
    """Return the entropy of a distribution in nats: 0 where one kind has all data, log n where n have the same."""
    return -sum(share * math.log(share) for share in shares if share > 0)

"""Rows of evidence with a given valid share, and a design's data by name."""

from engineer.evidence import CHECKS, KindEvidence
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind


def measured(kind: Kind | int | str, share: float, n: int = 100, **more) -> KindEvidence:
    """A row with this greedy and sampled valid share."""
    failures = dict.fromkeys(CHECKS, 0) | {"goal_reached": n - round(share * n)}
    more = {"sampled_valid": share if n else None, "groups": n // 5} | more
    return KindEvidence(Kind.of(kind), n, round(share * n), 0, failures, failures, **more)


def given_data(config: LakeConfig) -> dict[str, float]:
    """The kinds that have data."""
    return {str(kind): share for kind, share in zip(config.kinds, config.data, strict=True) if share}

"""Solved instances to a config's quotas; ``generate`` is the way in."""

from jaxlake.generate.dataset import GAPS, Dataset, KindReport
from jaxlake.generate.quotas import generate

__all__ = ["GAPS", "Dataset", "KindReport", "generate"]

"""Solved instances to a config's quotas; ``generate`` is the way in."""

from jaxlake.generate.quotas import Dataset, SizeReport, generate

__all__ = ["Dataset", "SizeReport", "generate"]

"""A report on branches of training, which are designs tried from one saved state, from ``gains.jsonl`` alone."""

from rl.report.branch.gains import Branches, read
from rl.report.branch.page import to_text, write

__all__ = ["Branches", "read", "to_text", "write"]

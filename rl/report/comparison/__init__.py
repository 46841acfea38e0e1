"""A comparison of engineers from its directory alone: statistics, tables and pictures; trains and evaluates nothing."""

from rl.report.comparison.arms import Comparison, read
from rl.report.comparison.findings import findings
from rl.report.comparison.page import notes, to_text, write
from rl.report.comparison.pictures import draw_all
from rl.report.comparison.tables import tables

__all__ = ["Comparison", "draw_all", "findings", "notes", "read", "tables", "to_text", "write"]

"""A comparison of engineers from its directory alone: statistics, tables and pictures; trains and evaluates nothing."""

from engineer.comparison.arms import Comparison, read
from engineer.comparison.findings import findings
from engineer.comparison.page import notes, to_text, write
from engineer.comparison.pictures import CAPTIONS, draw_all
from engineer.comparison.tables import tables

__all__ = ["CAPTIONS", "Comparison", "draw_all", "findings", "notes", "read", "tables", "to_text", "write"]

"""A run's report from its directory alone: tables for the terminal, pictures, an HTML page. Computes nothing new."""

from rl.report.page import write
from rl.report.samples import samples_markdown
from rl.report.tables import SummaryRow, summary_table, table_text

__all__ = ["SummaryRow", "samples_markdown", "summary_table", "table_text", "write"]

"""A run's report from its directory alone: tables for the terminal, pictures, an HTML page. Computes nothing new."""

from engineer.report.page import write
from engineer.report.samples import samples_markdown
from engineer.report.tables import SummaryRow, summary_table, table_text

__all__ = ["SummaryRow", "samples_markdown", "summary_table", "table_text", "write"]

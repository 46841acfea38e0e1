"""The table of all reports: for terminals of 80 columns and as Markdown."""

import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

WIDTH = 80
"""Columns of plain text."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the row.

    Attributes:
      note: stands below.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @classmethod
    def grid(
        cls,
        title: str,
        corner: str,
        rows: Iterable[Any],
        columns: Iterable[Any],
        cell: Callable[..., str],
        note: str = "",
    ) -> "Table":
        """Make a table of cells that each follow from the keys of their row and column.

        Args:
          corner: heading of the first column.
          rows, columns: keys; a mapping has the headings for them, else a key is its own.
          cell: the text for a row's and a column's key.
        """
        down, across = (
            keys if isinstance(keys, Mapping) else {key: str(key) for key in keys} for keys in (rows, columns)
        )
        body = [(name, *(cell(row, column) for column in across)) for row, name in down.items()]
        return cls(title, (corner, *across.values()), body, note)

    def to_text(self) -> str:
        """Align the columns in at most 80; where they do not fit, the table goes on below with the next ones."""
        columns = list(zip(self.header, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        blocks, start = [textwrap.fill(self.title, WIDTH)], 1
        while start < len(columns):
            end = start + 1
            while end < len(columns) and widths[0] + sum(2 + width for width in widths[start : end + 1]) <= WIDTH:
                end += 1
            for first, *others in (self.header, *self.rows):
                shown = zip(others[start - 1 : end - 1], widths[start:end], strict=True)
                cells = (cell.rjust(width) for cell, width in shown)
                blocks.append("  ".join((first.ljust(widths[0]), *cells)).rstrip())
            start = end
        return "\n".join([*blocks, *([textwrap.fill(self.note, WIDTH)] if self.note else [])])

    def to_markdown(self) -> str:
        """Write a section of its own with a pipe table."""
        rule = ("---", *("---:" for _ in self.header[1:]))
        rows = ([cell.strip().replace("|", "\\|") for cell in row] for row in (self.header, rule, *self.rows))
        lines = [f"## {self.title}", "", *(f"| {' | '.join(row)} |" for row in rows)]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

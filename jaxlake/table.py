"""The table of all reports, and its form in a terminal."""

import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

WIDTH = 80
"""Columns of plain text."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells as text, with a note below them; the first column names the row."""

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

    def to_text(self, width: int = WIDTH) -> str:
        """Align the columns; those that do not fit into the width follow below the others."""
        columns = list(zip(self.header, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        blocks, start = [textwrap.fill(self.title, width)], 1
        while start < len(columns):
            end = start + 1
            while end < len(columns) and widths[0] + sum(2 + size for size in widths[start : end + 1]) <= width:
                end += 1
            for first, *others in (self.header, *self.rows):
                shown = zip(others[start - 1 : end - 1], widths[start:end], strict=True)
                cells = (cell.rjust(size) for cell, size in shown)
                blocks.append("  ".join((first.ljust(widths[0]), *cells)).rstrip())
            start = end
        return "\n".join([*blocks, *([textwrap.fill(self.note, width)] if self.note else [])])

"""The report on a comparison of engineers, from its directory alone; trains and evaluates nothing."""

import json
import textwrap
from pathlib import Path

from jaxlake.files import write_whole
from jaxlake.table import WIDTH
from rl.report import page, style
from rl.report.comparison.findings import findings
from rl.report.comparison.pictures import PICTURES
from rl.report.comparison.runs import ComparisonResult, read
from rl.report.comparison.tables import notes, tables

__all__ = ["ComparisonResult", "findings", "notes", "read", "tables", "to_text", "write"]


def write(out: Path, comparison: ComparisonResult, file: Path | None = None) -> Path:
    """Write the page, ``report/comparison.html`` by default, its pictures and numbers; return the page's path."""
    file = file or out / "report" / "comparison.html"
    parts = {"name": comparison.name, "notes": notes(comparison), "tables": [*tables(comparison)]}
    page.save(file, "comparison.html", style.draw(PICTURES, comparison), **parts)
    numbers = {
        "baseline": comparison.baseline,
        "seeds": {name: list(runs) for name, runs in comparison.runs.items()},
        "boards": len(comparison.boards.id),
        "shared_rounds": comparison.shared_rounds,
        "left_out": list(comparison.left_out),
        **findings(comparison).to_json(),
    }
    write_whole(file.with_suffix(".json"), (json.dumps(numbers, indent=1) + "\n").encode())
    return file


def to_text(comparison: ComparisonResult) -> str:
    """Write tables and notes for a terminal of 80 columns, the table of who designs best first."""
    first, *others = (table.to_text() for table in tables(comparison))
    return "\n\n".join((first, *(textwrap.fill(note, WIDTH) for note in notes(comparison)), *others))

"""The page on branches, ``report/index.html``, its pictures as PNG files and all numbers as JSON beside it."""

import dataclasses
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlake.files import write_whole
from rl.report import html, page
from rl.report.branch import tables
from rl.report.branch.findings import findings
from rl.report.branch.gains import Branches, State, read
from rl.report.branch.pictures import draw_all
from rl.report.style import Picture
from rl.table import WIDTH, Table

PAGE, NUMBERS = "index.html", "branch.json"


def write(folder: str | Path) -> Path:
    """Write ``report/`` of a folder with ``gains.jsonl``, the page last.

    Returns:
      The path of ``report/index.html``.

    Raises:
      ValueError: see `read`.
      OSError: if the disk does not take it.
    """
    branches = read(folder)
    file = Path(folder) / "report" / PAGE
    file.parent.mkdir(exist_ok=True)
    write_whole(file.with_name(NUMBERS), (json.dumps(_numbers(branches), indent=1) + "\n").encode())
    drawn = draw_all(branches)
    page.save(file, {file.parent: drawn}, _page(branches, drawn))
    return file


def to_text(branches: Branches) -> str:
    """Write what is to be said of branches and the tables, for a terminal of 80 columns."""
    paragraphs = (textwrap.fill(note, WIDTH) for note in tables.notes(branches))
    return "\n\n".join((*paragraphs, *(table.to_text() for table in tables.tables(branches))))


def _page(branches: Branches, drawn: Mapping[str, Picture]) -> str:
    numbers = findings(branches)
    parts = {
        "Test-retest": ("retest.png", tables.retest_tables(numbers)),
        "Distribution of gains": ("gains.png", tables.distribution_tables(numbers)),
        "Transfer": ("transfer.png", tables.transfer_tables(numbers.transfer)),
        "Predictors": ("predictors.png", tables.prediction_tables(numbers)),
    }
    blocks = [*map(html.paragraph, tables.notes(branches)), _table(tables.state_table(branches))]
    blocks += map(_table, tables.engineer_tables(numbers))
    for title, (name, tabled) in parts.items():
        blocks.append(html.section(title, [*page.shown(drawn, name), *map(_table, tabled)]))
    blocks.append(html.section("State by state", map(_state, branches.states)))
    return html.document(f"Branches {branches.name}", blocks)


def _table(content: Table) -> str:
    return html.table(content) + (html.note(content.note) if content.note else "")


def _state(state: State) -> str:
    context = [html.paragraph("What an engineer would read:"), html.verbatim(state.context)] if state.context else []
    return html.folded(state.name, [html.table(tables.design_table(state)), *context])


def _numbers(branches: Branches) -> dict[str, Any]:
    return {
        "left_out": branches.left_out,
        "states": [
            {
                "state": state.name,
                "round": state.round,
                "updates": state.updates,
                "before": state.before,
                "designs": [
                    {
                        "design": design.number,
                        "origin": design.origin,
                        "gains": state.gains[i].tolist(),
                        "gain_se": state.errors[i].tolist(),
                    }
                    for i, design in enumerate(state.designs)
                ],
            }
            for state in branches.states
        ],
        **dataclasses.asdict(findings(branches)),
    }

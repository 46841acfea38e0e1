"""The numbers of a run as tables, once for terminals (at most 80 columns) and once for Markdown."""

import dataclasses
import statistics
import textwrap
from collections.abc import Callable
from pathlib import Path

from engineer.context import FAILURES
from engineer.evidence import CHECKS, Evidence, SizeEvidence, wilson
from rl.report.run import PARTS, RATIOS, Run, Stage, read

WIDTH = 80
"""Columns of the plain-text tables."""

Share = tuple[float, float, float]
"""A share with the ends of its 95 % interval."""


@dataclasses.dataclass(frozen=True)
class SummaryRow:
    """One validation of one size.

    Attributes:
      stage: ``before``, ``warm start`` or ``round 0``, ...
      size: side of the board, None for all sizes together.
      n: prompts.
      valid, optimal: shares of greedy answers with Wilson intervals.
      sampled: mean share of valid samples, with 1.96 standard errors of the mean over prompts where that is known (all
        sizes together) and not zero, else without an interval; None when nothing was sampled.
    """

    stage: str
    size: int | None
    n: int
    valid: Share
    optimal: Share
    sampled: tuple[float, ...] | None


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def summary_table(run_dir: str | Path) -> list[SummaryRow]:
    """Valid, optimal and sampled shares of every stage: a row per size, then one for all sizes together."""
    return [row for stage in read(run_dir).stages for row in _summary(stage)]


def table_text(run_dir: str | Path) -> str:
    """The run's tables as plain text of at most 80 columns."""
    run = read(run_dir)
    return "\n\n".join(as_text(table) for table in (*validation_tables(run), *config_tables(run)))


def validation_tables(run: Run) -> list[Table]:
    """Valid, optimal and sampled valid percentages, sizes down and stages across."""
    cells = {(row.stage, row.size): row for stage in run.stages for row in _summary(stage)}

    def table(title: str, cell: Callable[[SummaryRow], tuple[float, ...] | None]) -> Table:
        rows = []
        for size in (*run.sizes, None):
            line = (cells.get((stage.name, size)) for stage in run.stages)
            rows.append((_row_name(size), *("-" if row is None else _percent(cell(row)) for row in line)))
        return Table(title, ("size", *(stage.name for stage in run.stages)), tuple(rows))

    samples = max(stage.evidence.samples_per_prompt for stage in run.stages)
    tables = [
        table("Valid % of greedy answers [95 % interval]", lambda row: row.valid),
        table("Optimal % of greedy answers [95 % interval]", lambda row: row.optimal),
    ]
    if samples:
        title = f"Valid % of sampled answers, mean of {samples} a prompt [95 % interval of the mean over prompts]"
        tables.append(table(title, lambda row: row.sampled))
    return tables


def summary_cells(stage: Stage) -> tuple[str, str, str]:
    """Valid, optimal and sampled valid percentages over all sizes, with their intervals."""
    row = _summary(stage)[-1]
    return _percent(row.valid), _percent(row.optimal), _percent(row.sampled)


def config_tables(run: Run) -> list[Table]:
    """Every round's configuration side by side: as requested, and as realised by the generator."""
    kinds = (("requested", lambda past: past.requested), ("realised", lambda past: past.realised))
    return [
        Table(
            title=f"Configurations as {kind}: data / hole / wait",
            header=("size", *(past.name for past in run.rounds)),
            rows=tuple(
                (str(size), *(" / ".join(_ratio(value(past)(size, name)) for name in RATIOS) for past in run.rounds))
                for size in run.sizes
            ),
        )
        for kind, value in kinds
        if run.rounds
    ]


def failure_table(run: Run) -> Table:
    """Counts over all sizes: answers whose first failing check it is, and in brackets all that fail it."""
    rows = []
    for stage in run.stages:
        any_failures = {check: sum(row.any_failures[check] for row in stage.evidence.by_size) for check in CHECKS}
        first = stage.evidence.first_failures
        rows.append((stage.name, *(f"{first[check]} ({any_failures[check]})" for check in CHECKS)))
    title = "Answers by first failing check, in brackets all that fail the check"
    return Table(title, ("stage", *FAILURES.values()), tuple(rows))


def size_failure_table(stage: Stage) -> Table:
    """The same counts of one validation by board size."""
    rows = []
    for row in stage.evidence.by_size:
        counts = (f"{row.first_failures[check]} ({row.any_failures[check]})" for check in CHECKS)
        rows.append((str(row.size), str(row.n), *counts))
    title = f"{stage.name.capitalize()}: answers by first failing check, in brackets all that fail the check"
    return Table(title, ("size", "n", *FAILURES.values()), tuple(rows))


def time_tables(run: Run) -> list[Table]:
    """Seconds of the rounds' steps by part, and what each part put through; none where no clock was read."""
    seconds = {part: sum(row.get(part) or 0.0 for row in run.timings) for part in PARTS}
    total = sum(seconds.values())
    if not total:
        return []
    rows = [(part, took, f"{part}_tokens_per_second") for part, took in seconds.items() if took]
    rows.append(("all", total, "tokens_per_second"))

    def rate(key: str) -> str:
        there = [row[key] for row in run.timings if row.get(key) is not None]
        return f"{statistics.median(there):,.0f}" if there else "-"

    title = "Steps of the rounds: seconds, compilation included, and the median of their tokens a second"
    cells = ((part, f"{took:.1f}", f"{100 * took / total:.1f}", rate(key)) for part, took, key in rows)
    return [Table(title, ("part", "seconds", "%", "tokens a second"), tuple(cells))]


def as_text(table: Table) -> str:
    """Columns aligned, at most 80 wide: where the columns do not fit, the table goes on below with the next ones."""
    columns = list(zip(table.header, *table.rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    blocks, start = [], 1
    while start < len(columns):
        end = start + 1
        while end < len(columns) and widths[0] + sum(2 + width for width in widths[start : end + 1]) <= WIDTH:
            end += 1
        shown = [0, *range(start, end)]
        lines = zip(*(columns[i] for i in shown), strict=True)
        blocks.append("\n".join(_line(cells, [widths[i] for i in shown]) for cells in lines))
        start = end
    return "\n".join((textwrap.fill(table.title, WIDTH), *blocks))


def as_markdown(table: Table) -> str:
    """A pipe table under its title."""
    rule = ("---", *("---:" for _ in table.header[1:]))
    lines = (f"| {' | '.join(map(str.strip, cells))} |" for cells in (table.header, rule, *table.rows))
    return "\n".join((f"**{table.title}**", "", *lines))


def _summary(stage: Stage) -> list[SummaryRow]:
    evidence = stage.evidence
    sampled = None if evidence.sampled_valid is None else (evidence.sampled_valid,)
    if evidence.sampled_se:  # Zero where every prompt has the same share: no interval rather than one without width.
        half = 1.96 * evidence.sampled_se
        sampled = (*sampled, max(0.0, sampled[0] - half), min(1.0, sampled[0] + half))
    per_size = [
        _summary_row(stage.name, row.size, row, None if row.sampled_valid is None else (row.sampled_valid,))
        for row in evidence.by_size
    ]
    return [*per_size, _summary_row(stage.name, None, evidence, sampled)]


def _summary_row(
    stage: str, size: int | None, row: SizeEvidence | Evidence, sampled: tuple[float, ...] | None
) -> SummaryRow:
    valid, optimal = ((count / row.n, *wilson(count, row.n)) for count in (row.valid, row.optimal))
    return SummaryRow(stage, size, row.n, valid, optimal, sampled)


def _row_name(size: int | None) -> str:
    return "all" if size is None else str(size)


def _percent(share: tuple[float, ...] | None) -> str:
    if share is None:
        return "-"
    middle, *interval = (f"{100 * part:.0f}" for part in share)
    brackets = f"[{'-'.join(interval)}]" if interval else ""
    return f"{middle:>3} {brackets:8}"


def _ratio(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.3f}"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    _, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join((cells[0].ljust(widths[0]), *others)).rstrip()

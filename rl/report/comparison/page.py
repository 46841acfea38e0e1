"""The report in a comparison's directory: a page of Markdown, all numbers as JSON, and the pictures."""

import dataclasses
import json
import textwrap
from pathlib import Path

from jaxlake.files import write_whole
from jaxlake.kinds import Kind
from rl.report.comparison.arms import Comparison, read
from rl.report.comparison.findings import findings
from rl.report.comparison.pictures import draw_all
from rl.report.comparison.published import beside_published
from rl.report.comparison.tables import main_tables, tables
from rl.report.table import WIDTH

PAGE, NUMBERS = "comparison.md", "comparison.json"


def write(out: str | Path) -> Path:
    """Write ``report/`` of a comparison's directory, the page last.

    Returns:
      The path of ``report/comparison.md``.

    Raises:
      ValueError: see `read`.
      OSError: if the disk does not take it.
    """
    comparison = read(out)
    folder = Path(out) / "report"
    folder.mkdir(exist_ok=True)
    drawn = draw_all(comparison)
    for name, picture in drawn.items():
        write_whole(folder / name, picture.png)
    write_whole(folder / NUMBERS, (json.dumps(_numbers(comparison), indent=1) + "\n").encode())
    blocks = [f"# Comparison {comparison.name}", *notes(comparison)]
    blocks += [f"![{picture.caption}]({name})\n\n*{picture.caption}*" for name, picture in drawn.items()]
    blocks += (table.to_markdown() for table in tables(comparison))
    write_whole(folder / PAGE, ("\n\n".join(blocks) + "\n").encode())
    return folder / PAGE


def to_text(comparison: Comparison) -> str:
    """Write the tables with a line for each engineer, for a terminal of 80 columns."""
    paragraphs = (textwrap.fill(note, WIDTH) for note in notes(comparison))
    return "\n\n".join((*paragraphs, *(table.to_text() for table in main_tables(comparison))))


def notes(comparison: Comparison) -> list[str]:
    """Say in sentences what a reader must know of all numbers together."""
    boards, baseline = comparison.boards, comparison.baseline
    sizes = ", ".join(map(str, sorted(set(boards.size.tolist()), key=Kind.of)))
    seeds = {len(arms) for arms in comparison.arms.values()}
    count = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    differences = findings(comparison).differences
    clear = sum(difference.interval.is_clear for difference in differences)
    lines = [
        f"{len(comparison.engineers)} engineers, {count} seeds each, {len(boards.id):,} held-out boards of sizes "
        f"{sizes}; measured against {baseline}.",
        "All intervals are of 95 %. Differences are means over the sizes, on the same boards and seeds; the bootstrap "
        "draws seeds and boards, and with few seeds it is too narrow, so that * marks only what Student's t over the "
        "seeds excludes from 0 too. Wilson's intervals take every answer for one to a board of its own and "
        "know of no other seeds: they are too narrow to compare engineers by.",
    ]
    if differences:
        lines.append(
            f"Both intervals exclude 0 for {clear} of {len(differences)} differences from {baseline}; by chance "
            "alone a few of so many would."
        )
    if len(seeds) > 1:
        lines.append(
            "Not all engineers have the same seeds yet: compare their differences, which are paired, and no shares, "
            "tails or averages."
        )
    if comparison.left_out:
        lines.append(f"Not finished and left out: {', '.join(comparison.left_out)}.")
    return lines


def _numbers(comparison: Comparison) -> dict:
    return {
        "baseline": comparison.baseline,
        "seeds": {name: list(arms) for name, arms in comparison.arms.items()},
        "boards": len(comparison.boards.id),
        "left_out": list(comparison.left_out),
        **dataclasses.asdict(findings(comparison)),
        "published": [dataclasses.asdict(row) for row in beside_published(comparison)],
    }

"""The report in a comparison's directory: a page of Markdown, all numbers as JSON, and the pictures."""

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

from jaxlake.files import write_whole
from jaxlake.kinds import Kind
from rl.report.comparison.arms import Comparison
from rl.report.comparison.findings import findings
from rl.report.comparison.measures import CEILING, ESCAPED, FLOOR, THRESHOLDS, engineer_of_kind
from rl.report.comparison.pictures import draw_all
from rl.report.comparison.published import beside_published
from rl.report.comparison.tables import main_tables, tables
from rl.table import WIDTH

PAGE, NUMBERS = "comparison.md", "comparison.json"


def write(out: str | Path, comparison: Comparison) -> Path:
    """Write ``report/`` of a comparison's directory, the page last.

    Args:
      out: the directory.
      comparison: what `read` gives of it.

    Returns:
      The path of ``report/comparison.md``.

    Raises:
      OSError: if the disk does not take it.
    """
    folder = Path(out) / "report"
    folder.mkdir(exist_ok=True)
    drawn = draw_all(comparison)
    for name, picture in drawn.items():
        write_whole(folder / name, picture.png)
    write_whole(folder / NUMBERS, (json.dumps(_numbers(comparison), indent=1) + "\n").encode())
    first, *others = (table.to_markdown() for table in tables(comparison))
    blocks = [f"# Comparison {comparison.name}", first, *notes(comparison)]
    blocks += [f"![{picture.caption}]({name})\n\n*{picture.caption}*" for name, picture in drawn.items()]
    blocks += others
    write_whole(folder / PAGE, ("\n\n".join(blocks) + "\n").encode())
    return folder / PAGE


def to_text(comparison: Comparison) -> str:
    """Write the tables with a line for each engineer, for a terminal of 80 columns."""
    first, *others = (table.to_text() for table in main_tables(comparison))
    return "\n\n".join((first, *(textwrap.fill(note, WIDTH) for note in notes(comparison)), *others))


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
        *_measures(comparison),
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
        named, others = comparison.left_out[:8], len(comparison.left_out) - 8
        more = f" and {others} more runs" if others > 0 else ""
        lines.append(f"Not finished and left out: {', '.join(named)}{more}.")
    return lines


def _measures(comparison: Comparison) -> Iterator[str]:
    """Say what the measures of the runs' own validations are."""
    measured = findings(comparison).validated
    if not measured:
        yield "Nothing says who designs best: for that the runs' own validations must be sampled (validation.samples)."
        return
    shares = " and ".join(f"{100 * share:.0f} %" for share in THRESHOLDS)
    yield (
        "The runs' own validation is what the engineers design for; its measures are of valid samples. End: after the "
        "last round. Area: mean over the validations after the designed rounds, all but round 0. To "
        f"{shares}: median number of designed rounds until a validation is there, 0 where round 0 is enough; in "
        "brackets the % of seeds that got there, if not all. Escape: % of seeds that end at "
        f"{100 * ESCAPED:.0f} % or above. n: seeds."
    )
    ceiling = engineer_of_kind(comparison, CEILING)
    wholes = {name: one.whole for row in measured if row.engineer == ceiling for name, one in row.headroom.items()}
    if wholes:
        sizes = ", ".join(
            f"{name} {100 * one.mean:+.1f} [{100 * one.low:+.1f} {100 * one.high:+.1f}]" for name, one in wholes.items()
        )
        yield (
            f"Headroom is what {ceiling}, each round the best of several trained branches, has over {FLOOR}, in "
            f"points: {sizes}. An engineer captures (engineer - {FLOOR}) / ({CEILING} - {FLOOR}) of it, in %: a ratio "
            "of means over the seeds that all three have, with a paired bootstrap over seeds, first of area; none: the "
            "bootstrap does not put the headroom above 0, or there is one seed."
        )


def _numbers(comparison: Comparison) -> dict:
    return {
        "baseline": comparison.baseline,
        "seeds": {name: list(arms) for name, arms in comparison.arms.items()},
        "boards": len(comparison.boards.id),
        "left_out": list(comparison.left_out),
        **dataclasses.asdict(findings(comparison)),
        "published": [dataclasses.asdict(row) for row in beside_published(comparison)],
    }

"""The pages of runs and comparisons: HTML files that stand alone, and the pictures beside them."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from jaxlake.files import write_whole
from rl.report import samples, tables
from rl.report.pictures import PICTURES
from rl.report.run import Run, read
from rl.report.style import draw

FILE = "report.html"
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_TEMPLATES.filters |= {
    "headings": re.compile('<h2 id="(.*?)">(.*?)</h2>').findall,
    "base64": lambda png: base64.b64encode(png).decode(),
    # A share of a file's pixels on each side, so that the lettering of all pictures has one size.
    "width": lambda png: round(0.69 * int.from_bytes(png[16:20])),
}


def write(run_dir: str | Path, file: Path | None = None) -> Path:
    """Write the report of a run, by default to its ``report/report.html``; return the page's path. Raises as `read`."""
    run = read(run_dir)
    values = {"run": run, "headline": headline(run), "tables": tables, "walks": samples.walks(run)}
    return save(file or Path(run_dir) / "report" / FILE, "run.html", draw(PICTURES, run), **values)


def write_several(run_dirs: Sequence[Path], file: Path) -> Path:
    """Write one page of several runs, without pictures beside it; return its path. Raises as `read`."""
    runs = {str(path): read(path) for path in run_dirs}
    allocation = {"allocation.png": PICTURES["allocation.png"]}
    drawn = {name: draw(allocation, run) for name, run in runs.items()}
    return save(file, "several.html", {}, runs=runs, drawn=drawn, headline=headline, tables=tables)


def save(file: Path, template: str, pictures: Mapping[str, bytes], **values: Any) -> Path:
    """Write pictures by name, and then the page beside them that a template makes of them and of values."""
    page = _TEMPLATES.get_template(template).render(values, pictures=pictures)
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        write_whole(file.parent / name, picture)
    write_whole(file, page.encode())
    return file


def headline(run: Run) -> str:
    """Say what the rounds have changed; before the first is through, what the warm start has."""
    first, last = run.first, run.stages[-1]
    if first is last:
        return f"Valid plans on validation before training: {100 * last.evidence.valid / last.evidence.n:.0f} %."
    ways = {"greedy": "valid", "sampled": "sampled"}
    pairs = {way: (first.share(name), last.share(name)) for way, name in ways.items()}
    changes = " and ".join(
        f"from {100 * before.value:.0f} % to {100 * after.value:.0f} % ({way})"
        for way, (before, after) in pairs.items()
        if before and after
    )
    return f"From {first.name} to {last.name}, valid plans on validation went {changes}."

"""The page of a run or of several: an HTML file that stands alone; its pictures and its numbers are files beside it."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from jaxlake.files import write_whole
from rl.report import samples, tables
from rl.report.pictures import PICTURES
from rl.report.run import Run, read
from rl.report.style import Picture, draw

FILE = "report.html"
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_TEMPLATES.filters["headings"] = re.compile('<h2 id="(.*?)">(.*?)</h2>').findall


def write(run_dir: str | Path, file: Path | None = None) -> Path:
    """Write the report of a run, by default to its ``report/report.html``; return the page's path.

    Raises:
      ValueError: the directory holds no validation, or a file that is broken or of another version; one line.
    """
    run, file = read(run_dir), file or Path(run_dir) / "report" / FILE
    drawn = draw(PICTURES, run)
    values = {"headline": headline(run), "tables": tables, "walks": samples.walks(run)}
    save(file, {file.parent: drawn}, tables.numbers(run), "run.html", run=run, pictures=drawn, **values)
    return file


def write_several(run_dirs: Sequence[Path], file: Path) -> Path:
    """Write the page of several runs, and pictures into folders beside it with the runs' names; return its path.

    Raises:
      ValueError: see `write`; or two runs have the same name.
    """
    names = [path.resolve().name for path in run_dirs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two of the runs are called {twice[0]}: give each a page of its own")
    runs = dict(zip(names, map(read, run_dirs), strict=True))
    allocation = {"allocation.png": PICTURES["allocation.png"]}
    drawn = {name: draw(allocation, run) for name, run in runs.items()}
    folders = {file.parent / name: pictures for name, pictures in drawn.items()}
    numbers = {name: tables.numbers(run) for name, run in runs.items()}
    save(file, folders, numbers, "several.html", runs=runs, pictures=drawn, headline=headline, tables=tables)
    return file


def save(
    file: Path, drawn: Mapping[Path, Mapping[str, Picture]], numbers: dict[str, Any], template: str, **values: Any
) -> None:
    """Write pictures by folder and name, the numbers as JSON, and then the page that a template makes of values."""
    page = _TEMPLATES.get_template(template).render(values)
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder, pictures in drawn.items():
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            write_whole(folder / name, picture.png)
    write_whole(file.with_suffix(".json"), (json.dumps(numbers, indent=1) + "\n").encode())
    write_whole(file, page.encode())


def headline(run: Run) -> str:
    """Say what the rounds have changed; before the first is through, what the warm start has."""
    *before, last = run.stages
    if not before:
        return f"Valid plans on validation {last.name} training: {100 * last.valid_share:.0f} %."
    first = next((stage for stage in before if stage.name == "warm start"), before[0])
    shares: dict[str, list[float | None]] = {"greedy": [stage.valid_share for stage in (first, last)]}
    shares["sampled"] = [stage.evidence.sampled_valid for stage in (first, last)]
    ways = (
        f"from {100 * one:.0f} % to {100 * other:.0f} % ({way})"
        for way, (one, other) in shares.items()
        if one is not None and other is not None
    )
    return f"From {first.name} to {last.name}, valid plans on validation went {' and '.join(ways)}."

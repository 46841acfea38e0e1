"""The page of a run: one HTML file that stands alone, and its pictures as PNG files beside it."""

from collections.abc import Mapping
from pathlib import Path

from jaxlake.files import write_whole
from rl.report import boards, card, changes, html, tables
from rl.report.design import design
from rl.report.pictures import draw_all
from rl.report.run import Run, read
from rl.report.style import Picture

FILE = "report.html"


def write(run_dir: str | Path, file: Path | None = None) -> Path:
    """Write the report of a finished or unfinished run from nothing but its directory, the page last.

    Args:
      run_dir: of the run.
      file: the page; ``report/report.html`` in the run if None.

    Returns:
      The path of the page.

    Raises:
      ValueError: the directory holds no validation, or a file that is broken or of another version; one line.
      OSError: if the disk does not take it.
    """
    run, file = read(run_dir), file or Path(run_dir) / "report" / FILE
    drawn = draw_all(run)
    save(file, {file.parent: drawn}, html.document(f"Run {run.name}", [headline(run), *_whole(run, drawn)]))
    return file


def save(file: Path, drawn: Mapping[Path, Mapping[str, Picture]], page: str) -> None:
    """Write pictures by folder and name, and then the page."""
    for folder, pictures in drawn.items():
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            write_whole(folder / name, picture.png)
    write_whole(file, page.encode())


def headline(run: Run) -> str:
    """Say what the rounds have changed; before the first is through, what the warm start has."""
    *before, last = run.stages
    if not before:
        return html.paragraph(f"Valid plans on validation {last.name} training: {_percent(last.valid_share)}.")
    first = next((stage for stage in before if stage.name == "warm start"), before[0])
    greedy = " to ".join(_percent(stage.valid_share) for stage in (first, last))
    text = f"From {first.name} to {last.name}, valid plans on validation went from {greedy} (greedy)"
    sampled = [stage.evidence.sampled_valid for stage in (first, last)]
    if None not in sampled:
        text += f" and from {' to '.join(map(_percent, sampled))} (sampled)"
    return html.paragraph(f"{text}.")


def shown(drawn: Mapping[str, Picture], *names: str) -> list[str]:
    """Show pictures over their captions, those named that could be drawn."""
    return [html.picture(*drawn[name]) for name in names if name in drawn]


def environments(run: Run, drawn: Mapping[str, Picture], level: int = 2) -> str:
    """Show the environment of each round, and what was changed on what evidence."""
    blocks = shown(drawn, "allocation.png")
    tabled = ((past, changes.change_table(run, past)) for past in run.rounds)
    compared = [(past, table) for past, table in tabled if table is not None]
    for past, table in compared:
        supported = changes.changes(run, past).values()
        count = f"{len(supported)} ratios changed, {list(supported).count(False)} of them without evidence."
        blocks += [html.table(table, of_words=True), html.paragraph(count if supported else "No ratio changed.")]
    blocks.append(html.note(changes.DEFINITION) if compared else "")
    blocks.append(html.folded("All ratios, as requested and as realised", map(html.table, tables.config_tables(run))))
    return html.section("Environments", blocks, level)


def designs(run: Run, level: int = 2) -> str:
    """Show what the engineer wrote in each round, and what became of it."""
    return html.section("What the engineer wrote", [design(past, level + 1) for past in run.rounds], level)


def _whole(run: Run, drawn: Mapping[str, Picture]) -> list[str]:
    counts = html.folded(
        f"By {run.axis_name}", [html.table(tables.kind_failure_table(run, stage)) for stage in run.stages]
    )
    samples = html.folded("The same boards at every validation", shown(drawn, "samples.png"))
    walking = boards.walking(run)
    return [
        html.section("Validation", [*shown(drawn, "learning.png"), *map(html.table, tables.validation_tables(run))]),
        environments(run, drawn),
        html.section("Failures", [*shown(drawn, "failures.png"), html.table(tables.failure_table(run)), counts]),
        html.section("What there was to learn", shown(drawn, "learnability.png")),
        html.section("What was forgotten", shown(drawn, "forgetting.png")),
        html.section("Boards", [html.paragraph(_BOARDS), walking, samples] if walking else []),
        html.section("Beside the paper", shown(drawn, "published.png") or [html.paragraph(_NOT_COMPARABLE)]),
        designs(run),
        html.section("Training", [*shown(drawn, "training.png"), *_adapters(run)]),
        html.section("Time and memory", [*map(html.table, tables.time_tables(run)), *shown(drawn, "time.png")]),
        html.section("Run card", [html.table(table, of_words=True) for table in card.tables(run)] + [_settings(run)]),
    ]


def _adapters(run: Run) -> list[str]:
    table = tables.adapter_table(run)
    return [html.table(table), html.note(_ADAPTERS)] if table else []


def _settings(run: Run) -> str:
    table = card.settings(run)
    return html.folded("Every setting", [html.note(_ORIGINS), html.table(table, of_words=True)] if table else [])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


_BOARDS = (
    "Validation boards with the plans that the policy answered, before the rounds and after the last; nobody walks "
    "where the answer could not be read. A star flashes where agents collide, a ring where one is in a hole. In an "
    "answer that fails, the cell that loses the last valid plan is marked."
)
_ADAPTERS = (
    "By training: from the base to the policy. By merging: from there to the model in final/ and best/, whose sums are "
    "rounded to model.dtype; adapters/ in them holds what was trained, and rl.evaluate --run takes that."
)
_NOT_COMPARABLE = (
    "Nothing to set beside the paper's tables: they are of its benchmark with 3, 4 and 5 agents, and no evaluation of "
    "this run on it is in its directory (python -m rl.evaluate --run DIR --suite benchmark makes one)."
)
_ORIGINS = (
    "paper: as the paper has it; inferred: read out of it; ours: chosen here; changed: set by the command line or by a "
    "file that does not say why."
)

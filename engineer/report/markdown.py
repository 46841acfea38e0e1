"""Writes a run's report, ``report/report.md`` and its pictures, into the run directory."""

import os
import tempfile
from pathlib import Path

from engineer.report import pictures, tables
from engineer.report.run import Round, Run, read
from engineer.report.samples import fenced


def write(run_dir: str | Path) -> Path:
    """Writes the report of a finished or unfinished run from nothing but its directory.

    Every file is replaced as a whole, the Markdown last, so that a reader never sees half a report.

    Returns:
      the path of ``report/report.md``.

    Raises:
      ValueError: the directory holds no validation, or evidence in another form.
    """
    run = read(run_dir)
    folder = Path(run_dir) / "report"
    folder.mkdir(exist_ok=True)
    drawn = pictures.draw_all(run)
    for name, png in drawn.items():
        _replace(folder / name, png)
    report = folder / "report.md"
    _replace(report, _markdown(run, set(drawn)).encode())
    return report


def _markdown(run: Run, drawn: set[str]) -> str:
    sections = {
        "Validation": [*map(tables.as_markdown, tables.validation_tables(run)), pictures.LEARNING],
        "Training": [pictures.TRAINING],
        "Environments": [*map(tables.as_markdown, tables.config_tables(run)), pictures.ALLOCATION],
        "Failures": [tables.as_markdown(tables.failure_table(run)), pictures.FAILURES],
        "What the engineer wrote": [block for past in run.rounds for block in _engineer(past)],
        "Boards": [pictures.BOARDS, pictures.SAMPLES, *_sample_pages(run)],
        "Time and memory": [*map(tables.as_markdown, tables.time_tables(run)), pictures.TIME],
    }
    blocks = [
        f"# Run {run.name}",
        _headline(run),
        "The resolved settings are in [config.yaml](../config.yaml), every step in [metrics.jsonl](../metrics.jsonl).",
    ]
    for title, content in sections.items():
        shown = [
            _picture(block) if block in drawn else block for block in content if block not in _CAPTIONS.keys() - drawn
        ]
        blocks += [f"## {title}", *shown] if shown else []
    return "\n\n".join(blocks) + "\n"


_CAPTIONS = {
    pictures.LEARNING: "Training and validation over the run. Points are validations with 95 % intervals; dashed lines "
    "mark where the environment was redesigned.",
    pictures.ALLOCATION: "What each round's environment was to be (bars) and what it turned out to be (marks).",
    pictures.FAILURES: "Greedy answers that fail, by their first failing check.",
    pictures.BOARDS: "Validation boards after the last round, with the plans that the policy answered.",
    pictures.SAMPLES: "The same boards at each validation, with the plans that the policy answered; no paths where the "
    "answer could not be read.",
    pictures.TRAINING: "The answers of each step and the update made on them; thick lines are running "
    "means, dashed ones mark where the environment was redesigned.",
    pictures.TIME: "Where the time of each step went, and what it took in memory and compilations.",
}


def _picture(name: str) -> str:
    return f"![{_CAPTIONS[name]}]({name})\n\n*{_CAPTIONS[name]}*"


def _headline(run: Run) -> str:
    """What the rounds have changed; before the first is through, what the warm start has."""
    *before, last = run.stages
    if not before:
        return f"Valid plans on validation {last.name} training: {_percent(last.evidence.valid / last.evidence.n)}."
    first = next((stage for stage in before if stage.name == "warm start"), before[0])
    greedy = " to ".join(_percent(stage.evidence.valid / stage.evidence.n) for stage in (first, last))
    text = f"From {first.name} to {last.name}, valid plans on validation went from {greedy} (greedy)"
    sampled = [stage.evidence.sampled_valid for stage in (first, last)]
    if None not in sampled:
        text += f" and from {' to '.join(map(_percent, sampled))} (sampled)"
    return f"{text}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _sample_pages(run: Run) -> list[str]:
    links = [f"[{s.name}](../{s.folder}/samples.md)" for s in run.stages if s.has_page]
    return [f"Prompts, answers and verdicts of more boards: {', '.join(links)}."] if links else []


def _engineer(past: Round) -> list[str]:
    proposal = past.proposal
    title = f"### {past.name.capitalize()}: {proposal.get('engineer', 'unknown')} engineer"
    faults = [f"- attempt {i}: {fault}" for i, fault in enumerate(proposal.get("errors", ()), start=1)]
    words = [fenced(proposal["raw"])] if proposal.get("raw") else []
    if not words and not faults:
        return [title, "No text: the configuration is a random draw."]
    refused = ["\n".join(("Answers that held no configuration:", "", *faults))] if faults else []
    if proposal["fallback"]:
        outcome = "No answer held a configuration; the previous round's stayed in force."
    elif proposal["repairs"]:
        outcome = "\n".join(("Repairs by the projection:", "", *(f"- {repair}" for repair in proposal["repairs"])))
    else:
        outcome = "Taken as it is: the projection repaired nothing."
    return [title, *words, *refused, outcome, f"Written by the parameters `{proposal.get('parameters', '?')}`."]


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise

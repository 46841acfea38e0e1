"""The tables of a run; the same on its page and in a terminal."""

import statistics
from collections.abc import Iterable
from pathlib import Path

from engineer.context import FAILURES
from engineer.evidence import CHECKS, Evidence, SizeEvidence
from rl.report.run import PARTS, RATIOS, Round, Run, Stage, read
from rl.report.shares import Share
from rl.report.table import Table


def table_text(run_dir: str | Path) -> str:
    """Write a run's tables as plain text of at most 80 columns."""
    run = read(run_dir)
    return "\n\n".join(table.to_text() for table in (*validation_tables(run), *config_tables(run)))


def shares(stage: Stage) -> dict[int | None, dict[str, Share]]:
    """Return by size, None for all sizes together, the shares of a validation by name.

    "valid" and "optimal" are of the greedy answers. "sampled" is the mean share of valid samples, with 1.96 standard
    errors of the mean over prompts where that is known (all sizes together) and not zero; it is left out where nothing
    was sampled.
    """
    evidence = stage.evidence
    rows: dict[int | None, SizeEvidence | Evidence] = {row.size: row for row in evidence.by_size} | {None: evidence}
    by_size: dict[int | None, dict[str, Share]] = {}
    for size, row in rows.items():
        by_size[size] = {name: Share.of(getattr(row, name), row.n) for name in ("valid", "optimal")}
        if row.sampled_valid is not None:
            by_size[size]["sampled"] = Share(row.sampled_valid)
    if evidence.sampled_se:  # Zero where every prompt has the same share: no interval rather than one without width.
        mean, half = evidence.sampled_valid, 1.96 * evidence.sampled_se
        by_size[None]["sampled"] = Share(mean, max(0.0, mean - half), min(1.0, mean + half))
    return by_size


def validation_tables(run: Run) -> list[Table]:
    """Show valid, optimal and sampled valid percentages, sizes down and stages across."""
    by_stage = [shares(stage) for stage in run.stages]
    samples = max(stage.evidence.samples_per_prompt for stage in run.stages)
    titles = {
        "valid": "Valid % of greedy answers [95 % interval]",
        "optimal": "Optimal % of greedy answers [95 % interval]",
        "sampled": f"Valid % of sampled answers, mean of {samples} a prompt [95 % interval of the mean over prompts]",
    }
    return [
        Table.grid(
            title,
            "size",
            {size: str(size) for size in run.sizes} | {None: "all"},
            {i: stage.name for i, stage in enumerate(run.stages)},
            lambda size, i, name=name: percent(by_stage[i].get(size, {}).get(name)),
        )
        for name, title in titles.items()
        if name != "sampled" or samples
    ]


def percent(share: Share | None) -> str:
    """Write a share so that percentages stand below each other in a column, with an interval or without."""
    if share is None:
        return "-"
    number, _, interval = share.text().partition(" ")
    return f"{number:>3} {interval:8}"


def config_tables(run: Run) -> list[Table]:
    """Show the configurations of all rounds: as requested, and as realised by the generator."""
    rounds = dict(enumerate(past.name for past in run.rounds))
    return [
        Table.grid(
            f"Configurations as {kind}: data / hole / wait",
            "size",
            run.sizes,
            rounds,
            lambda size, i, value=value: ratios(value(run.rounds[i], size, name) for name in RATIOS),
        )
        for kind, value in (("requested", Round.requested), ("realised", Round.realised))
        if rounds
    ]


def ratios(values: Iterable[float | None]) -> str:
    """Write the ratios of a size, a dash for one that there is not."""
    return " / ".join("-" if value is None or value != value else f"{value:.3f}" for value in values)


def failure_table(run: Run) -> Table:
    """Count the answers whose first failing check it is, over all sizes, and in brackets all that fail it."""
    rows = []
    for stage in run.stages:
        any_failures = {check: sum(row.any_failures[check] for row in stage.evidence.by_size) for check in CHECKS}
        first = stage.evidence.first_failures
        rows.append((stage.name, *(f"{first[check]} ({any_failures[check]})" for check in CHECKS)))
    title = "Answers by first failing check, in brackets all that fail the check"
    return Table(title, ("stage", *FAILURES.values()), tuple(rows))


def size_failure_table(stage: Stage) -> Table:
    """Count the failing answers of one validation by board size, as `failure_table` does."""
    rows = []
    for row in stage.evidence.by_size:
        counts = (f"{row.first_failures[check]} ({row.any_failures[check]})" for check in CHECKS)
        rows.append((str(row.size), str(row.n), *counts))
    title = f"{stage.name.capitalize()}: answers by first failing check, in brackets all that fail the check"
    return Table(title, ("size", "n", *FAILURES.values()), tuple(rows))


def time_tables(run: Run) -> list[Table]:
    """Show the seconds of the rounds' steps by part, and its tokens a second; none where no clock was read."""
    seconds = {part: sum(row.get(part) or 0.0 for row in run.timings) for part in PARTS}
    total = sum(seconds.values())
    if not total:
        return []
    rows = [(part, took, f"{part}_tokens_per_second") for part, took in seconds.items() if took]
    rows.append(("all", total, "tokens_per_second"))

    def rate(key: str) -> str:
        measured = [row[key] for row in run.timings if row.get(key) is not None]
        return f"{statistics.median(measured):,.0f}" if measured else "-"

    title = "Steps of the rounds: seconds, compilation included, and the median of their tokens a second"
    cells = ((part, f"{took:.1f}", f"{100 * took / total:.1f}", rate(key)) for part, took, key in rows)
    return [Table(title, ("part", "seconds", "%", "tokens a second"), tuple(cells))]

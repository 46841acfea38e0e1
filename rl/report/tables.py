"""The tables of a run; the same on its page and in a terminal."""

import statistics
from collections.abc import Iterable
from pathlib import Path

from engineer.context import FAILURES
from engineer.evidence import CHECKS, Evidence, KindEvidence
from jaxlake.kinds import Kind
from rl.report.run import PARTS, RATIOS, Round, Run, Stage, read
from rl.statistics import Share
from rl.table import Table


def table_text(run_dir: str | Path) -> str:
    """Write a run's tables as plain text of at most 80 columns."""
    run = read(run_dir)
    return "\n\n".join(table.to_text() for table in (*validation_tables(run), *config_tables(run)))


def shares(stage: Stage) -> dict[Kind | None, dict[str, Share]]:
    """Return by kind, None for all kinds together, the shares of a validation by name.

    "valid" and "optimal" are of the greedy answers. "sampled" is the mean share of valid samples, with 1.96 standard
    errors of the mean over prompts where that is known (all kinds together) and not zero; it is left out where nothing
    was sampled.
    """
    evidence = stage.evidence
    rows: dict[Kind | None, KindEvidence | Evidence] = {row.kind: row for row in evidence.by_kind} | {None: evidence}
    by_kind: dict[Kind | None, dict[str, Share]] = {}
    for kind, row in rows.items():
        by_kind[kind] = {name: Share.of(getattr(row, name), row.n) for name in ("valid", "optimal")}
        if row.sampled_valid is not None:
            by_kind[kind]["sampled"] = Share(row.sampled_valid)
    if evidence.sampled_se:  # Zero where every prompt has the same share: no interval rather than one without width.
        mean, half = evidence.sampled_valid, 1.96 * evidence.sampled_se
        by_kind[None]["sampled"] = Share(mean, max(0.0, mean - half), min(1.0, mean + half))
    return by_kind


def validation_tables(run: Run) -> list[Table]:
    """Show valid, optimal and sampled valid percentages, kinds down and stages across."""
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
            run.row_name,
            {kind: str(kind) for kind in run.targets} | {None: "all"},
            {i: stage.name for i, stage in enumerate(run.stages)},
            lambda kind, i, name=name: percent(by_stage[i].get(kind, {}).get(name)),
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
            f"Configurations as {way}: data / hole / wait",
            run.row_name,
            run.designed,
            rounds,
            lambda kind, i, value=value: ratios(value(run.rounds[i], kind, name) for name in RATIOS),
        )
        for way, value in (("requested", Round.requested), ("realised", Round.realised))
        if rounds
    ]


def ratios(values: Iterable[float | None]) -> str:
    """Write the ratios of a kind, a dash for one that there is not."""
    return " / ".join("-" if value is None or value != value else f"{value:.3f}" for value in values)


def failure_table(run: Run) -> Table:
    """Count the answers whose first failing check it is, over all kinds, and in brackets all that fail it."""
    rows = []
    for stage in run.stages:
        any_failures = {check: sum(row.any_failures[check] for row in stage.evidence.by_kind) for check in CHECKS}
        first = stage.evidence.first_failures
        rows.append((stage.name, *(f"{first[check]} ({any_failures[check]})" for check in CHECKS)))
    title = "Answers by first failing check, in brackets all that fail the check"
    return Table(title, ("stage", *FAILURES.values()), tuple(rows))


def kind_failure_table(run: Run, stage: Stage) -> Table:
    """Count the failing answers of one validation by kind of boards, as `failure_table` does."""
    rows = []
    for row in stage.evidence.by_kind:
        counts = (f"{row.first_failures[check]} ({row.any_failures[check]})" for check in CHECKS)
        rows.append((str(row.kind), str(row.n), *counts))
    title = f"{stage.name.capitalize()}: answers by first failing check, in brackets all that fail the check"
    return Table(title, (run.row_name, "n", *FAILURES.values()), tuple(rows))


def adapter_table(run: Run) -> Table | None:
    """Show how far training has moved the answers of a model with adapters, and how far merging these would."""
    rows = [
        (stage.name, *(f"{stage.adapters[by]:.2g}" for by in ("training", "merging")))
        for stage in run.stages
        if stage.adapters
    ]
    title = "Adapters: mean change of the log-probability of an answer's token, in nats"
    return Table(title, ("stage", "by training", "by merging"), rows) if rows else None


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

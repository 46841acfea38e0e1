"""The tables of a run for its page and a terminal, and its numbers as JSON."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from engineer.evidence import Evidence, KindEvidence
from jaxlake.kinds import Kind
from jaxlake.table import Table
from rl.lab.statistics import Share
from rl.report.run import RATIOS, Round, Run, Stage


def table_text(run: Run) -> str:
    """Write a run's validation by sampled answers, or by greedy ones, and its designs as text of at most 80 columns."""
    validations = validation_tables(run)
    shown = (validations.get("sampled") or validations["valid"], config_table(run))
    return "\n\n".join(table.to_text() for table in shown if table)


def numbers(run: Run) -> dict[str, Any]:
    """Return the numbers of a run's page as plain JSON values."""
    return {
        "run": run.name,
        "engineer": run.settings.get("engineer.kind"),
        "seed": run.settings.get("seed"),
        "steps": {"warm_start": len(run.warm_start), "rounds": len(run.steps)},
        "validations": {
            stage.name: {
                "boards": stage.evidence.n,
                "by_kind": {
                    str(kind or "all"): {name: dataclasses.asdict(share) for name, share in row.items()}
                    for kind, row in shares(stage).items()
                },
                "first_failures": stage.evidence.first_failures,
            }
            for stage in run.stages
        },
        "rounds": {
            past.name: {"requested": past.config.to_dict(), "realised": past.proposal.get("realised")}
            for past in run.rounds
        },
    }


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
    mean = evidence.sampled_valid
    if mean is not None and evidence.sampled_se:
        # Zero where every prompt has the same share: no interval rather than one without width.
        half = 1.96 * evidence.sampled_se
        by_kind[None]["sampled"] = Share(mean, max(0.0, mean - half), min(1.0, mean + half))
    return by_kind


def validation_tables(run: Run) -> dict[str, Table]:
    """Show valid, optimal and sampled valid percentages, kinds down and stages across."""
    by_stage = [shares(stage) for stage in run.stages]
    samples = max(stage.evidence.samples_per_prompt for stage in run.stages)
    titles = {
        "valid": "Valid % of greedy answers [95 % interval]",
        "optimal": "Optimal % of greedy answers [95 % interval]",
        "sampled": f"Valid % of sampled answers, mean of {samples} a prompt [95 % interval of the mean over prompts]",
    }
    return {
        name: Table.grid(
            title,
            run.row_name,
            {kind: str(kind) for kind in run.targets} | {None: "all"},
            {i: stage.name for i, stage in enumerate(run.stages)},
            lambda kind, i, name=name: _percent(by_stage[i].get(kind, {}).get(name)),
        )
        for name, title in titles.items()
        if name != "sampled" or samples
    }


def _percent(share: Share | None) -> str:
    return "-" if share is None else share.text()


def config_table(run: Run) -> Table | None:
    """Show the shares of boards that each round asked for, of the kinds that engineers gave boards to."""

    def cell(kind: Kind, i: int) -> str:
        share = run.rounds[i].requested(kind, "data")
        return f"{100 * share:.0f}" if share else "-"

    rounds = dict(enumerate(past.name for past in run.rounds))
    return Table.grid("Boards asked for, % of each round", run.row_name, run.chosen, rounds, cell) if rounds else None


def ratios(values: Iterable[float | None]) -> str:
    """Write the ratios of a kind, a dash for one that there is not."""
    return " / ".join("-" if value is None or value != value else f"{value:.3f}" for value in values)


def round_table(run: Run, current: Round) -> Table:
    """Show a round's design, its changes and boards, and the evidence before it, for kinds with boards then or now.

    The evidence is the validation's greedy answers or, of kinds that are not validated, the answers in training.
    """
    previous = next((past for past in run.rounds if past.index == current.index - 1), None)
    stage = run.stage(previous.name) if previous else None
    training = stage.evidence.training if stage else None
    seen = (*(training.by_kind if training else ()), *(stage.evidence.by_kind if stage else ()))
    evidence = {row.kind: row for row in seen}

    def change(kind: Kind, ratio: str) -> str:
        before, after = ("-" if past is None else _short(past.requested(kind, ratio)) for past in (previous, current))
        return after if "-" in (before, after) or before == after else f"{before} → {after}"

    rows = []
    for kind in sorted({*current.config.kinds, *(previous.config.kinds if previous else ())}):
        if not any(past and past.requested(kind, "data") for past in (previous, current)):
            continue
        rates = ["-"] * 4
        if row := evidence.get(kind):
            counts = (row.valid, row.first_failures["hole_free"], row.first_failures["conflict_free"])
            learnable = f"{100 * row.learnable / row.groups:.0f}" if row.groups else "-"
            rates = [*(Share.of(count, row.n).text() for count in counts), learnable]
        changes = (change(kind, ratio) for ratio in RATIOS)
        boards = ratios(current.realised(kind, r) for r in RATIOS) if current.realised(kind, "data") else "-"
        rows.append((str(kind), *changes, boards, *rates))
    header = (run.row_name, *RATIOS, "realised", "valid %", "hole %", "conflict %", "learnable %")
    header, *rows = zip(*(x for x in zip(header, *rows, strict=True) if {*x[1:]} != {"-"}), strict=True)
    title = f"The design of {current.name}, its boards as realised (data / hole / wait), and the evidence before it"
    return Table(title, header, rows)


def _short(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}".rstrip("0").rstrip(".")


def settings_table(run: Run) -> Table | None:
    """Show every setting with its value."""
    rows = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in run.settings.items()]
    return Table("Settings", ("setting", "value"), rows) if rows else None


def side_by_side(runs: Mapping[str, Run]) -> Table:
    """Show the last validation of each run."""
    rows = []
    for name, run in runs.items():
        last = run.stages[-1]
        row = shares(last)[None]
        engineer, seed = (str(run.settings.get(key, "-")) for key in ("engineer.kind", "seed"))
        percentages = (_percent(row.get(key)) for key in ("valid", "optimal", "sampled"))
        rows.append((name, engineer, seed, last.name, *percentages))
    header = ("run", "engineer", "seed", "after", "valid %", "optimal %", "sampled valid %")
    return Table("Last validation of each run [95 % interval]", header, rows)

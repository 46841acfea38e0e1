"""The tables of a run for its page and a terminal."""

import json
from collections.abc import Mapping

from jaxlake.config import FIELDS
from jaxlake.kinds import Kind
from jaxlake.table import Table
from rl.lab.statistics import Share
from rl.report.run import Round, Run


def table_text(run: Run) -> str:
    """Write a run's validation by sampled answers, or by greedy ones, and its designs as text of at most 80 columns."""
    validations = validation_tables(run)
    shown = (validations.get("sampled") or validations["valid"], _data_table(run))
    return "\n\n".join(table.to_text() for table in shown if table)


def validation_tables(run: Run) -> dict[str, Table]:
    """Show valid, optimal and sampled valid percentages, kinds down and stages across."""
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
            lambda kind, i, name=name: _percent(run.stages[i].share(name, kind)),
        )
        for name, title in titles.items()
        if name != "sampled" or samples
    }


def _percent(share: Share | None) -> str:
    return "-" if share is None else share.text()


def _data_table(run: Run) -> Table | None:
    """Show the shares of boards that each round asked for, of the kinds that engineers gave boards to."""

    def cell(kind: Kind, i: int) -> str:
        row = run.rounds[i].requested.get(kind)
        return f"{100 * row['data']:.0f}" if row else "-"

    rounds = {past.index: past.name for past in run.rounds}
    title = "Boards asked for, % of each round"
    return Table.grid(title, run.row_name, run.designed, rounds, cell) if rounds else None


def round_table(run: Run, current: Round) -> Table:
    """Show a round's design, its changes and boards, and the evidence before it, for kinds with boards then or now.

    The evidence is the validation's greedy answers or, of kinds that are not validated, the answers in training.
    Columns without values are left out.
    """
    previous = run.rounds[current.index - 1] if current.index else None
    seen = previous.evidence.known_rows if previous and previous.evidence else {}

    def design(kind: Kind, ratio: str) -> str:
        now = _short(current.requested.get(kind, {}).get(ratio))
        before = _short(previous.requested.get(kind, {}).get(ratio)) if previous else now
        return now if before == now else f"{before} → {now}"

    def rates(kind: Kind) -> list[str]:
        if kind not in seen:
            return ["-"] * 4
        row = seen[kind]
        counts = (row.valid, row.first_failures["hole_free"], row.first_failures["conflict_free"])
        learnable = f"{100 * row.learnable / row.groups:.0f}" if row.groups else "-"
        return [*(Share.of(count, row.n).text() for count in counts), learnable]

    header = (run.row_name, *FIELDS, "realised", "valid %", "hole %", "conflict %", "learnable %")
    columns: list[tuple[str, ...]] = [header]
    for kind in sorted({*current.requested, *(previous.requested if previous else ())}):
        realised = current.realised.get(kind, {})
        boards = " / ".join(_short(realised.get(ratio)) for ratio in FIELDS) if realised else "-"
        columns.append((str(kind), *(design(kind, ratio) for ratio in FIELDS), boards, *rates(kind)))
    header, *rows = zip(*(cells for cells in zip(*columns, strict=True) if {*cells[1:]} != {"-"}), strict=True)
    title = f"The design of {current.name}, its boards as realised (data / hole / wait), and the evidence before it"
    return Table(title, header, rows)


def _short(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}".rstrip("0").rstrip(".")


def settings_table(run: Run) -> Table:
    """Show every setting with its value."""
    rows = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in run.settings.items()]
    return Table("Settings", ("setting", "value"), rows)


def side_by_side(runs: Mapping[str, Run]) -> Table:
    """Show the last validation of each run."""

    def cells(run: Run) -> list[str]:
        settings = (str(run.settings.get(key, "-")) for key in ("engineer.kind", "seed"))
        last = run.stages[-1]
        return [*settings, last.name, *(_percent(last.share(name)) for name in ("valid", "optimal", "sampled"))]

    header = ("run", "engineer", "seed", "after", "valid %", "optimal %", "sampled valid %")
    rows = [(name, *cells(run)) for name, run in runs.items()]
    return Table("Last validation of each run [95 % interval]", header, rows)

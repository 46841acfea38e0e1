"""The picture of the paper's printed figures, a grey reference to a run's own on the same kind of boards."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxlake.benchmark.published import published
from rl.report import style
from rl.report.run import Run, naming
from rl.report.style import BLUE, GREY
from rl.statistics import Share

OURS = "Qwen3-4B"
"""How the names of the paper's own policies begin; the others are models that it only asked."""
STYLES = {"base": ":", "+GRPO random": "--", "+GRPO designed": "-"}
"""Styles of their lines, by the rest of the name."""


def overlay(run: Run) -> Figure | None:
    """Draw valid % by board size, a panel per number of agents that the paper has and the run was evaluated on."""
    measured = comparable(run)
    if not measured:
        return None
    figure = Figure(figsize=(max(6.2, 3.0 * len(measured)), 3.4), layout="constrained")
    panels = figure.subplots(1, len(measured), sharey=True, squeeze=False)[0]
    for axes, (agents, by_size) in zip(panels, measured.items(), strict=True):
        _panel(axes, agents, by_size)
        axes.plot([], [], color="#dddddd", linewidth=6, label="paper: models asked")
    panels[0].set_ylabel("valid, %")
    panels[0].set(ylim=(-1, 100), yticks=range(0, 101, 20))
    style.legend(figure, panels[:1], columns=3)
    return figure


def comparable(run: Run) -> dict[int, dict[int, Share]]:
    """Return valid shares on the benchmark by number of agents and board size, where the paper prints some too.

    Taken from a comparison's ``evaluation.json`` of the run, else from an evaluation of its final policy
    (``evaluations/*/scores.json``, the latest that holds any).

    Raises:
      ValueError: a file that is broken; one line.
    """
    shares: dict[tuple[int, int], Share] = {}
    columns = run.directory / "evaluation.json"
    if columns.exists():
        shares = _read(columns, _from_columns)
    else:
        files = (run.directory / "evaluations").glob("*/scores.json")
        for path in sorted(files, key=lambda path: path.stat().st_mtime):
            shares = _read(path, _from_lines) or shares
    printed = {(row.num_agents, size) for row in published().rows for size in row.by_size}
    measured: dict[int, dict[int, Share]] = {}
    for agents, size in sorted(printed & shares.keys()):
        measured.setdefault(agents, {})[size] = shares[agents, size]
    return measured


def _panel(axes: Axes, agents: int, by_size: Mapping[int, Share]) -> None:
    rows = [row for row in published().rows if row.num_agents == agents]
    others = [row for row in rows if not row.model.startswith(OURS)]
    sizes = sorted({size for row in rows for size in row.by_size})
    low, high = ([end(row.by_size[size][0] for row in others) for size in sizes] for end in (min, max))
    axes.fill_between(sizes, low, high, color="#dddddd", linewidth=0)
    for row in rows:
        if row.model.startswith(OURS):
            name = row.model.removeprefix(OURS).strip()
            shares = [row.by_size[size][0] for size in sizes]
            axes.plot(sizes, shares, color=GREY, linestyle=STYLES[name], linewidth=1.4, label=f"paper: {name}")
    middle, lowest, highest = zip(*(share.percent for share in by_size.values()), strict=True)
    below = [m - low for m, low in zip(middle, lowest, strict=True)]
    above = [high - m for m, high in zip(middle, highest, strict=True)]
    axes.errorbar(
        list(by_size), middle, (below, above), fmt="o-", color=BLUE, markersize=5, capsize=2.5, label="this run"
    )
    axes.set(title=f"{agents} agents", xlabel="board size", xticks=sizes)


def _read(path: Path, cells: Callable[[Any], dict[tuple[int, int], Share]]) -> dict[tuple[int, int], Share]:
    with naming(path, "no scores of a benchmark"):
        return cells(json.loads(path.read_text(encoding="utf-8")))


def _from_columns(evaluation: Mapping) -> dict[tuple[int, int], Share]:
    """Count the columns of a comparison's evaluation: a greedy answer per board."""
    boards, valid = evaluation["boards"], evaluation["answers"]["valid"]
    cells: dict[tuple[int, int], list[int]] = {}
    for agents, size, passed in zip(boards["agents"], boards["size"], valid, strict=True):
        cells.setdefault((agents, size), []).append(int(passed))
    return {cell: Share.of(sum(passed), len(passed)) for cell, passed in cells.items()}


def _from_lines(scores: Mapping) -> dict[tuple[int, int], Share]:
    """Read the lines over all wait subsets in the scores of `rl.evaluate`; of the benchmark, no other set."""
    if scores["set"] != "test":
        return {}
    return {
        (line["agents"], line["size"]): Share(*(line["valid"][end] / 100 for end in ("percent", "low", "high")))
        for line in scores["lines"]
        if line["wait_subset"] is None and None not in (line["agents"], line["size"])
    }

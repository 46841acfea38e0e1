"""The paper's policies beside those of a comparison, as far as the engineers are of one kind."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxlake.benchmark.published import published
from rl.report.comparison.arms import Comparison
from rl.report.comparison.findings import VALID, paired, table
from rl.slices import cell_weights
from rl.statistics import Interval, intervals


@dataclasses.dataclass(frozen=True)
class PublishedRow:
    """A policy of the paper beside ours of the same kind of engineer; shares valid, mean over 3 to 5 agents and sizes.

    Attributes:
      name: the paper's.
      theirs: published.
      theirs_less_random: the same less the paper's fixed random configuration.
      engineer: ours of that kind; None where the comparison has none.
      ours: our share.
      ours_less_baseline: None for the baseline.
    """

    name: str
    theirs: float
    theirs_less_random: float
    engineer: str | None
    ours: float | None
    ours_less_baseline: Interval | None


def beside_published(comparison: Comparison) -> Iterable[PublishedRow]:
    """Yield a row for each policy of the paper that an engineer led to.

    None without boards of 3 to 5 agents, and none of networks that play, which are no policies in the paper's sense.
    """
    boards = comparison.boards
    runs = [arm.run for arms in comparison.arms.values() for arm in arms.values()]
    if any(run.settings.get("student.kind") == "network" for run in runs):
        return
    papers = np.isin(boards.agents, (3, 4, 5)) & np.array([isinstance(size, int) for size in boards.size])
    if not papers.any():
        return
    weights = cell_weights(boards.cells, papers)
    less = {engineer: values for (engineer, metric), values in paired(comparison).items() if metric == VALID}
    less = intervals(less, weights[None], boards.strata)
    theirs = _papers_engineers()
    for name, (share, is_ours) in theirs.items():
        kin = [engineer for engineer in comparison.engineers if is_ours(comparison.settings[engineer])]
        for engineer in kin or [None]:
            answers = [arm.after for arm in comparison.arms.get(engineer, {}).values()]
            yield PublishedRow(
                name=name,
                theirs=share,
                theirs_less_random=share - theirs["fixed random"][0],
                engineer=engineer,
                ours=float((table(answers, VALID) @ weights).mean()) if answers else None,
                ours_less_baseline=less[engineer][0] if engineer in less else None,
            )


def _papers_engineers() -> dict[str, tuple[float, Any]]:
    """Return by name the share valid over the paper's 21 cells of 3 to 5 agents, and a test of settings."""
    cells: dict[str, list[float]] = {}
    for row in published().rows:
        cells.setdefault(row.model, []).extend(valid for valid, _ in row.by_size.values())
    pooled = {model: float(np.mean(valid)) / 100 for model, valid in cells.items()}
    contexts = {  # "V1: failures" and so on, in percent by wait subset
        name.partition(":")[0]: float(np.mean(list(by_wait.values()))) / 100
        for name, by_wait in published().contexts.items()
    }
    kinds: dict[str, tuple[float, Any]] = {}
    kinds["fixed random"] = (pooled["Qwen3-4B +GRPO random"], lambda s: s["kind"] == "fixed_random")
    kinds["base engineer"] = (_mean_of_cells(45.21, 27.62, 16.00), lambda s: s["kind"] == "base")
    contexts["V6-full"] = _mean_of_cells(38.83, 24.76, 14.22)
    for context, share in contexts.items():
        kinds[context] = (share, lambda s, c=context: s["kind"] == "checkpoint" and s["context"] == c)
    return kinds


def _mean_of_cells(three: float, four: float, five: float) -> float:
    """Return the mean over cells of what the paper prints for 3, 4 and 5 agents, which have 8, 7 and 6 sizes."""
    return (8 * three + 7 * four + 6 * five) / 21 / 100

"""The paper's policies beside those of a comparison, as far as the engineers are of one kind."""

from collections.abc import Iterator

import numpy as np

from jaxlake.benchmark.published import published
from rl.report.comparison.findings import VALID, values
from rl.report.comparison.runs import Comparison
from rl.slices import cell_weights

HEADER = ("paper", "published", "less random", "ours", "ours: valid", "ours: less baseline")
AGENTS = (3, 4, 5)
RANDOM = "Qwen3-4B +GRPO random"


def published_rows(comparison: Comparison) -> Iterator[tuple[str, float, float, str, float, float | None]]:
    """Yield under ``HEADER`` the policies of the paper that engineers of ours led to as well.

    Shares valid, mean over 3 to 5 agents and sizes. None without such boards, and none of networks that play, which
    are no policies in the paper's sense.
    """
    boards = comparison.boards
    papers = np.isin(boards.agents, AGENTS) & np.array([isinstance(size, int) for size in boards.size])
    if comparison.is_network or not papers.any():
        return
    weights = cell_weights(boards.cells, papers)
    valid = {
        engineer: dict(zip(runs, values([run.after for run in runs.values()], VALID) @ weights, strict=True))
        for engineer, runs in comparison.runs.items()
    }
    theirs = _published()
    for engineer, settings in comparison.engineers.items():
        key = str(settings.context if settings.kind == "checkpoint" else settings.kind)
        if key in theirs:
            ours, baseline = valid[engineer], valid[comparison.baseline]
            less = [ours[seed] - baseline[seed] for seed in comparison.paired_seeds(engineer)]
            mean, difference = float(np.mean(list(ours.values()))), float(np.mean(less)) if less else None
            name, share = theirs[key]
            yield name, share, share - theirs["fixed_random"][1], engineer, mean, difference


def _published() -> dict[str, tuple[str, float]]:
    """Return by an engineer's kind, or a checkpoint's context, the paper's name and its share valid.

    The mean over the paper's 21 cells: 8 sizes with 3 agents, 7 with 4, 6 with 5.
    """
    cells = [valid for row in published().rows if row.model == RANDOM for valid, _ in row.by_size.values()]
    rows = {"fixed_random": ("fixed random", float(np.mean(cells)))}
    rows["base"] = ("base engineer", float(np.average([45.21, 27.62, 16.00], weights=[8, 7, 6])))
    for context, by_wait in published().contexts.items():
        name = context.partition(":")[0]
        rows[name] = (name, float(np.mean(list(by_wait.values()))))
    rows["V6-full"] = ("V6-full", float(np.average([38.83, 24.76, 14.22], weights=[8, 7, 6])))
    return {key: (name, percent / 100) for key, (name, percent) in rows.items()}

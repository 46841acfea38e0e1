"""The numbers of a comparison: flat records for tables, pictures and ``comparison.json``. Draws nothing."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl.lab import statistics
from rl.lab.held_out import AnswerColumns, number_cells
from rl.lab.statistics import Interval
from rl.report.comparison.runs import ComparisonResult

MEASURES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "end": lambda curve: curve[-1],
    "area": lambda curve: float(np.mean(curve[1:])),
}
"""The measures of a validation curve from the last shared round on: the share after the last round, and the mean over
the designed rounds."""


class Key(NamedTuple):
    """A measure of an engineer's own validation, or a metric of its answers to the held-out boards.

    Attributes:
      agents: the boards' number of agents; None: any, as of all measures.
    """

    engineer: str
    metric: str
    agents: int | None = None


@dataclasses.dataclass(frozen=True)
class Findings:
    """All numbers of a comparison; without measures if a validation was not sampled.

    Attributes:
      curves: share of samples valid on the runs' own validation after each round, by engineer and seed, the largest
        area first.
      rates: means over the seeds and, on the held-out boards, over the sizes.
      differences: engineers less the baseline on the same seeds and boards, means like the rates.
      captured: the share of the headroom from the baseline to the ceiling that an engineer captures: a ratio of means
        over the seeds that all three have, with the ends of its interval by paired bootstrap over seeds. None where
        the headroom is not clearly above 0; none without a ceiling or common seeds.
    """

    curves: Mapping[str, Mapping[int, tuple[float, ...]]]
    rates: Mapping[Key, float]
    differences: Mapping[Key, Interval]
    captured: Mapping[Key, tuple[float, float, float] | None]

    def to_json(self) -> dict[str, Any]:
        return {
            "curves": self.curves,
            "rates": [{**key._asdict(), "value": rate} for key, rate in self.rates.items()],
            "differences": [{**key._asdict(), **dataclasses.asdict(one)} for key, one in self.differences.items()],
            "captured": [{**key._asdict(), "value": value} for key, value in self.captured.items()],
        }


@functools.lru_cache(maxsize=1)
def findings(comparison: ComparisonResult) -> Findings:
    """Compute all numbers of a comparison; cached, as tables and pictures ask for the same."""
    own, (rates, differences) = _own_validation(comparison), _held_out(comparison)
    return dataclasses.replace(own, rates={**own.rates, **rates}, differences={**own.differences, **differences})


def _own_validation(comparison: ComparisonResult) -> Findings:
    curves: dict[str, dict[int, Any]] = {
        name: {seed: run.curve for seed, run in runs.items()} for name, runs in comparison.runs.items()
    }
    if any(None in curve for by_seed in curves.values() for curve in by_seed.values()):
        return Findings({}, {}, {}, {})
    rates, differences, captured = {}, {}, {}
    for measure, of in MEASURES.items():
        shares = {
            name: {seed: of(curve[comparison.shared_rounds - 1 :]) for seed, curve in by_seed.items()}
            for name, by_seed in curves.items()
        }
        baseline, ceiling = shares[comparison.baseline], shares.get(comparison.ceiling or "", {})
        for name, ours in shares.items():
            key = Key(name, measure)
            rates[key] = float(np.mean([*ours.values()]))
            if (pair := _common(ours, baseline)).size and ours is not baseline:
                differences[key] = statistics.seed_interval(pair[0] - pair[1])
            if (three := _common(ours, baseline, ceiling)).size:
                captured[key] = _captured(*three)
    by_area = sorted(curves, key=lambda name: rates[Key(name, "area")], reverse=True)
    return Findings({name: curves[name] for name in by_area}, rates, differences, captured)


def _common(*by_seed: Mapping[int, float]) -> np.ndarray:
    """Return float ``[engineers, seeds]`` of the seeds that all have."""
    seeds = [seed for seed in by_seed[0] if all(seed in values for values in by_seed)]
    return np.array([[values[seed] for seed in seeds] for values in by_seed])


def _captured(ours: np.ndarray, baseline: np.ndarray, ceiling: np.ndarray) -> tuple[float, float, float] | None:
    is_known = len(ours) > 1 and statistics.seed_interval(ceiling - baseline).low > 0
    return statistics.ratio_interval(ours - baseline, ceiling - baseline) if is_known else None


def _held_out(comparison: ComparisonResult) -> tuple[dict[Key, float], dict[Key, Interval]]:
    """Return rates of the policies, also of those that all start from, and differences on the held-out boards.

    Both are by number of agents and, if there are several, for all of them.
    """
    boards = comparison.boards
    agents = np.array(boards.agents)
    cells = number_cells(agents, np.array(boards.size, object))
    strata = 1000 * cells + np.rint(100 * np.array(boards.wait_subset)).astype(int)  # slices that boards are drawn in
    groups = [*np.unique(agents).tolist(), *([None] if len(set(boards.agents)) > 1 else [])]
    weights = np.stack([statistics.cell_weights(cells, agents == n if n else agents > 0) for n in groups])

    start = {seed: run.before for runs in comparison.runs.values() for seed, run in runs.items()}
    policies: dict[str, dict[int, AnswerColumns]] = {f"round {comparison.shared_rounds - 1}": start}
    policies |= {name: {seed: run.after for seed, run in runs.items()} for name, runs in comparison.runs.items()}
    answers = [one for by_seed in policies.values() for one in by_seed.values()]
    metrics = ["valid", "optimal"] + ["sampled valid"] * all(one.sampled_valid is not None for one in answers)
    rates: dict[Key, float] = {}
    less: dict[tuple[str, str], np.ndarray] = {}
    for metric in metrics:
        values = {
            name: {seed: np.array(getattr(one, metric.replace(" ", "_")), float) for seed, one in by_seed.items()}
            for name, by_seed in policies.items()
        }
        baseline = values[comparison.baseline]
        for name, by_seed in values.items():
            means = np.mean([*by_seed.values()], axis=0) @ weights.T
            rates |= {Key(name, metric, n): mean for n, mean in zip(groups, means.tolist(), strict=True)}
            pairs = [by_seed[seed] - baseline[seed] for seed in by_seed if seed in baseline]
            if pairs and name in comparison.runs and by_seed is not baseline:
                less[name, metric] = np.array(pairs)
    return rates, {
        Key(name, metric, n): interval
        for (name, metric), intervals in statistics.intervals(less, weights, strata).items()
        for n, interval in zip(groups, intervals, strict=True)
    }

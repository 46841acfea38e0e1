"""The numbers of a comparison: flat records for tables, pictures and ``comparison.json``. Draws nothing."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl.lab import statistics
from rl.lab.held_out import AnswerColumns, number_cells
from rl.lab.statistics import Interval, Share
from rl.report.comparison.runs import ComparisonResult

MEASURES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "end": lambda curve: curve[-1],
    "area": lambda curve: float(np.mean(curve[1:])),
}
"""The measures of a validation curve from the last shared round on: the share after the last round, and the mean over
the designed rounds."""


@dataclasses.dataclass(frozen=True)
class Headroom:
    """Ceiling less baseline on the seeds that an engineer has with both, and its share that the engineer captures.

    Attributes:
      captured: (engineer - baseline) / (ceiling - baseline), a ratio of means with the ends of its interval by paired
        bootstrap over seeds. None where ``whole`` is not clearly above 0: one seed, or an interval that holds 0.
    """

    whole: Interval
    captured: tuple[float, float, float] | None


@dataclasses.dataclass(frozen=True)
class Validated:
    """An engineer by the validations of its own runs: shares of samples that are valid, on the boards it designs for.

    Attributes:
      curves: shares by seed after each round, of which all engineers have the shared ones in common.
      measures: values of ``MEASURES`` by seed.
      less_baseline: difference from the baseline by measure, on the same seeds; empty without such seeds.
      headroom: headroom by measure; empty without a ceiling or common seeds.
    """

    engineer: str
    curves: tuple[tuple[float, ...], ...]
    measures: Mapping[str, tuple[float, ...]]
    less_baseline: Mapping[str, Interval]
    headroom: Mapping[str, Headroom]

    def mean(self, measure: str) -> float:
        return float(np.mean(self.measures[measure]))


class Key(NamedTuple):
    """A metric of an engineer's answers to the held-out boards with so many agents; None: with any number."""

    engineer: str
    metric: str
    agents: int | None


@dataclasses.dataclass(frozen=True)
class Findings:
    """All numbers of a comparison.

    Attributes:
      validated: the engineers' validations with the largest area first; empty if they were not sampled.
      rates: means over the seeds and over the sizes, with Wilson's interval for as many answers, as if no two were to
        the same board; it speaks of these seeds and no others.
      differences: engineers less the baseline on the same seeds and boards, means over the sizes.
    """

    validated: tuple[Validated, ...]
    rates: Mapping[Key, Share]
    differences: Mapping[Key, Interval]

    def to_json(self) -> dict[str, Any]:
        def rows(values: Mapping[Key, Any]) -> list[dict[str, Any]]:
            return [{**key._asdict(), **dataclasses.asdict(value)} for key, value in values.items()]

        validated = [dataclasses.asdict(one) for one in self.validated]
        return {"validated": validated, "rates": rows(self.rates), "differences": rows(self.differences)}


@functools.lru_cache(maxsize=1)
def findings(comparison: ComparisonResult) -> Findings:
    """Compute all numbers of a comparison; cached, as tables and pictures ask for the same."""
    return Findings(
        validated=tuple(sorted(_validated(comparison), key=lambda one: one.mean("area"), reverse=True)),
        rates=_rates(comparison),
        differences=_differences(comparison),
    )


def _validated(comparison: ComparisonResult) -> Iterator[Validated]:
    """Yield the measures of every engineer; of none if a validation was not sampled, or no round was designed."""
    finished = [run.curve for runs in comparison.runs.values() for run in runs.values()]
    if any(None in curve or len(curve) < 2 for curve in finished):
        return
    curves = {
        name: {seed: tuple(map(float, run.curve)) for seed, run in runs.items()}  # type: ignore[arg-type]
        for name, runs in comparison.runs.items()
    }
    values = {
        name: {
            measure: {seed: of(curve[comparison.shared_rounds - 1 :]) for seed, curve in by_seed.items()}
            for measure, of in MEASURES.items()
        }
        for name, by_seed in curves.items()
    }
    baseline, ceiling = values[comparison.baseline], comparison.ceiling
    for name, own in values.items():
        less, headroom = {}, {}
        for measure in MEASURES:
            if (pair := _common(own[measure], baseline[measure])).size:
                less[measure] = statistics.seed_interval(pair[0] - pair[1])
            if ceiling and (three := _common(own[measure], baseline[measure], values[ceiling][measure])).size:
                headroom[measure] = _headroom(*three)
        measures = {measure: tuple(by_seed.values()) for measure, by_seed in own.items()}
        yield Validated(name, tuple(curves[name].values()), measures, less, headroom)


def _common(*by_seed: Mapping[int, float]) -> np.ndarray:
    """Return float ``[engineers, seeds]`` of the seeds that all have."""
    return np.array([[values[seed] for seed in by_seed[0] if all(seed in x for x in by_seed)] for values in by_seed])


def _headroom(ours: np.ndarray, baseline: np.ndarray, ceiling: np.ndarray) -> Headroom:
    whole = statistics.seed_interval(ceiling - baseline)
    known = len(ours) > 1 and whole.low > 0
    return Headroom(whole, statistics.ratio_interval(ours - baseline, ceiling - baseline) if known else None)


def metrics(comparison: ComparisonResult) -> tuple[str, ...]:
    """Return the metrics that every policy has."""
    answers = [one for runs in comparison.runs.values() for run in runs.values() for one in (run.before, run.after)]
    return ("valid", "optimal") + (() if any(one.sampled_valid is None for one in answers) else ("sampled valid",))


def _values(answers: AnswerColumns, metric: str) -> np.ndarray:
    """Return the values of a metric, float ``[boards]``."""
    return np.array(getattr(answers, metric.replace(" ", "_")), float)


def _groups(comparison: ComparisonResult) -> tuple[dict[int | None, np.ndarray], np.ndarray]:
    """Return by number of agents, and under None for several, the boards' weights in a mean over sizes; and strata.

    A stratum is the slice of its suite that a board was drawn in.
    """
    boards = comparison.boards
    agents = np.array(boards.agents)
    cells = number_cells(agents, np.array(boards.size, object))
    groups: dict[int | None, np.ndarray] = {
        n: statistics.cell_weights(cells, agents == n) for n in np.unique(agents).tolist()
    }
    if len(groups) > 1:
        groups[None] = statistics.cell_weights(cells, agents > 0)
    return groups, 1000 * cells + np.rint(100 * np.array(boards.wait_subset)).astype(int)


def _rates(comparison: ComparisonResult) -> dict[Key, Share]:
    start = {seed: run.before for runs in comparison.runs.values() for seed, run in runs.items()}
    policies = {comparison.start: list(start.values())}
    policies |= {name: [run.after for run in runs.values()] for name, runs in comparison.runs.items()}
    groups, _ = _groups(comparison)
    return {
        Key(name, metric, agents): statistics.weighted_share(
            np.array([_values(one, metric) for one in answers]), weights
        )
        for metric in metrics(comparison)
        for name, answers in policies.items()
        for agents, weights in groups.items()
    }


def _differences(comparison: ComparisonResult) -> dict[Key, Interval]:
    groups, strata = _groups(comparison)
    baseline, less = comparison.runs[comparison.baseline], {}
    for name, runs in comparison.runs.items():
        pairs = [(run.after, baseline[seed].after) for seed, run in runs.items() if seed in baseline]
        for metric in metrics(comparison) if pairs and name != comparison.baseline else ():
            less[name, metric] = np.array([_values(ours, metric) - _values(theirs, metric) for ours, theirs in pairs])
    return {
        Key(name, metric, agents): interval
        for (name, metric), by_group in statistics.intervals(less, np.stack([*groups.values()]), strata).items()
        for agents, interval in zip(groups, by_group, strict=True)
    }

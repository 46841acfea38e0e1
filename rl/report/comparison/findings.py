"""The numbers of a comparison: flat records for tables, pictures and ``comparison.json``. Draws nothing."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from rl.judge.statistics import Interval, Share, intervals, ratio_interval, seed_interval, weighted_share
from rl.lab.held_out import AnswerColumns
from rl.report.comparison.runs import ComparisonResult
from rl.report.run import RATIOS

VALID, OPTIMAL, SAMPLED = "valid", "optimal", "sampled valid"
END, AREA = "end", "area"
MEASURES: Mapping[str, Callable[[Sequence[float]], float]] = {
    END: lambda curve: curve[-1],
    AREA: lambda curve: float(np.mean(curve[1:])),
}
"""The measures of a validation curve from the last shared round on: the share after the last round, and the mean over
the designed rounds."""
CEILING = "hindsight"
"""Kind of the engineer up to which there is headroom."""


@dataclasses.dataclass(frozen=True)
class Headroom:
    """The share of the headroom that an engineer captures: (engineer - baseline) / (ceiling - baseline).

    The ceiling is the first engineer of kind `hindsight`. A ratio of means over the seeds that all three have.

    Attributes:
      seeds: number of these seeds.
      whole: ceiling less baseline on these seeds.
      captured: the ratio with the ends of its interval by paired bootstrap over seeds. None where ``whole`` is not
        clearly above 0: there is one seed, or the bootstrap's interval reaches down to 0.
    """

    seeds: int
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


@dataclasses.dataclass(frozen=True)
class Rate:
    """A share of an engineer's answers to the held-out boards, mean over the seeds and over the sizes.

    Attributes:
      agents: number of agents on the boards; None for all.
      share: the mean with Wilson's interval for as many answers, as if no two were to the same board; it speaks of
        these seeds and no others.
    """

    engineer: str
    metric: str
    agents: int | None
    answers: int
    share: Share


@dataclasses.dataclass(frozen=True)
class Difference:
    """An engineer less the baseline on the same seeds and held-out boards, mean over sizes; agents None for all."""

    engineer: str
    metric: str
    agents: int | None
    interval: Interval


@dataclasses.dataclass(frozen=True)
class MeanDesign:
    """The designs of an engineer in one round, mean over seeds: ``{ratio: {label of a kind: mean}}`` as requested."""

    engineer: str
    round: int
    config: Mapping[str, Mapping[int | str, float]]


@dataclasses.dataclass(frozen=True)
class Findings:
    """All numbers of a comparison; the engineers' validations with the largest area first."""

    validated: tuple[Validated, ...]
    rates: tuple[Rate, ...]
    differences: tuple[Difference, ...]
    designs: tuple[MeanDesign, ...]


@functools.lru_cache(maxsize=1)
def findings(comparison: ComparisonResult) -> Findings:
    """Compute all numbers of a comparison; cached, as tables and pictures ask for the same."""
    return Findings(
        validated=tuple(sorted(_validated(comparison), key=lambda one: one.mean(AREA), reverse=True)),
        rates=tuple(_rates(comparison)),
        differences=tuple(_differences(comparison)),
        designs=tuple(_designs(comparison)),
    )


def _validated(comparison: ComparisonResult) -> Iterator[Validated]:
    """Yield the measures of every engineer; of none if a validation was not sampled, or no round was designed."""
    curves: dict[str, dict[int, tuple[float, ...]]] = {}
    for name, runs in comparison.runs.items():
        sampled = {seed: tuple(share for share in run.curve if share is not None) for seed, run in runs.items()}
        if any(len(sampled[seed]) < max(2, len(run.curve)) for seed, run in runs.items()):
            return
        curves[name] = sampled
    last = comparison.shared_rounds - 1
    designed = {name: {seed: curve[last:] for seed, curve in own.items()} for name, own in curves.items()}
    baseline, ceiling = designed[comparison.baseline], comparison.of_kind(CEILING)
    for name, own in designed.items():
        three = _by_seed(own, baseline, designed[ceiling]) if ceiling else {}
        yield Validated(
            engineer=name,
            curves=tuple(curves[name].values()),
            measures={measure: tuple(map(of, own.values())) for measure, of in MEASURES.items()},
            less_baseline={measure: seed_interval(x - y) for measure, (x, y) in _by_seed(own, baseline).items()},
            headroom={measure: _headroom(*values) for measure, values in three.items()},
        )


def _by_seed(*curves: Mapping[int, Sequence[float]]) -> dict[str, list[np.ndarray]]:
    """Return by measure float ``[seeds]`` of each engineer, the seeds that all have; nothing if there is none."""
    seeds = [seed for seed in curves[0] if all(seed in own for own in curves)]
    return {
        measure: [np.array([of(own[seed]) for seed in seeds]) for own in curves]
        for measure, of in MEASURES.items()
        if seeds
    }


def _headroom(ours: np.ndarray, baseline: np.ndarray, ceiling: np.ndarray) -> Headroom:
    whole = seed_interval(ceiling - baseline)
    known = len(ours) > 1 and whole.low > 0
    return Headroom(len(ours), whole, ratio_interval(ours - baseline, ceiling - baseline) if known else None)


def metrics(comparison: ComparisonResult) -> tuple[str, ...]:
    """Return the metrics that every policy has."""
    answers = [one for runs in comparison.runs.values() for run in runs.values() for one in (run.before, run.after)]
    return (VALID, OPTIMAL) if any(one.sampled_valid is None for one in answers) else (VALID, OPTIMAL, SAMPLED)


def values(answers: Iterable[AnswerColumns], metric: str) -> np.ndarray:
    """Return the values of a metric, float ``[seeds, boards]``."""
    return np.array([getattr(one, metric.replace(" ", "_")) for one in answers], float)


def _rates(comparison: ComparisonResult) -> Iterator[Rate]:
    policies = {comparison.start: list(comparison.before.values())}
    policies |= {name: [run.after for run in runs.values()] for name, runs in comparison.runs.items()}
    for metric in metrics(comparison):
        for name, answers in policies.items():
            for agents, weights in comparison.boards.by_agents().items():
                count = int((weights > 0).sum()) * len(answers)
                yield Rate(name, metric, agents, count, weighted_share(values(answers, metric), weights))


def _differences(comparison: ComparisonResult) -> Iterator[Difference]:
    groups = comparison.boards.by_agents()
    less = {}
    for engineer in comparison.others:
        seeds = comparison.paired_seeds(engineer)
        ours, theirs = ([comparison.runs[e][s].after for s in seeds] for e in (engineer, comparison.baseline))
        for metric in metrics(comparison) if seeds else ():
            less[engineer, metric] = values(ours, metric) - values(theirs, metric)
    for (engineer, metric), by_group in intervals(less, np.stack([*groups.values()]), comparison.boards.strata).items():
        for agents, interval in zip(groups, by_group, strict=True):
            yield Difference(engineer, metric, agents, interval)


def _designs(comparison: ComparisonResult) -> Iterator[MeanDesign]:
    for engineer, runs in comparison.runs.items():
        for index, configs in enumerate(zip(*(run.designs for run in runs.values()), strict=False)):
            labels = [kind.label for kind in configs[0].kinds]
            means = {ratio: np.mean([getattr(config, ratio) for config in configs], axis=0) for ratio in RATIOS}
            config = {ratio: dict(zip(labels, mean.tolist(), strict=True)) for ratio, mean in means.items()}
            yield MeanDesign(engineer, index, config)

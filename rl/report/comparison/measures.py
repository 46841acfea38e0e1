"""The measures by which engineers are told apart, of the validations that they design for. Draws nothing."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from rl.report.comparison.arms import Comparison
from rl.report.run import Run
from rl.statistics import Interval, ratio_interval, seed_interval

END, AREA = "end", "area"
THRESHOLDS = (0.2, 0.5)
"""Shares valid to which rounds are counted."""
ESCAPED = 0.2
"""Share valid from which on a run has left the plateau at zero."""
FLOOR, CEILING = "fixed_random", "hindsight"
"""Kinds of engineers between which there is headroom."""

Curve = tuple[float, ...]
"""Share valid after round 0 and after each round that the engineer designed."""


@dataclasses.dataclass(frozen=True)
class Headroom:
    """The share of the headroom that an engineer captures: (engineer - floor) / (ceiling - floor).

    The floor is the engineer of kind `fixed_random`, the ceiling that of kind `hindsight`; where there are several of
    a kind, the first. A ratio of means over the seeds that all three have.

    Attributes:
      seeds: how many these are.
      whole: ceiling less floor, by these seeds.
      captured: 0 for the floor, 1 for the ceiling. None where ``whole`` is not clearly above 0: there is one seed, or
        the bootstrap's interval reaches down to 0.
      low, high: 95 % interval of the paired bootstrap over seeds; None with ``captured``.
    """

    seeds: int
    whole: Interval
    captured: float | None
    low: float | None
    high: float | None


@dataclasses.dataclass(frozen=True)
class Validated:
    """An engineer by the validations of its own runs: shares of samples that are valid, on the boards it designs for.

    Everything by seed is in the order of `Comparison.arms`.

    Attributes:
      curves: by seed the share after round 0, which all engineers have in common, and after each designed round.
      measures: by name and seed the end, the share after the last round, and the area under the curve, which is the
        mean of the shares after the designed rounds 1, 2 and so on to the last; round 0 is not in it.
      rounds_to: by threshold and seed the designed rounds until a share is at or above it for the first time: 0 where
        round 0 is enough; None where none is.
      escaped: share of the seeds whose end is at or above ``ESCAPED``.
      less_baseline: by measure the difference from the baseline on the same seeds; empty without such seeds.
      headroom: by measure; empty where an engineer of kind `hindsight` or `fixed_random` is missing, or common seeds.
    """

    engineer: str
    curves: tuple[Curve, ...]
    measures: Mapping[str, tuple[float, ...]]
    rounds_to: Mapping[float, tuple[int | None, ...]]
    escaped: float
    less_baseline: Mapping[str, Interval]
    headroom: Mapping[str, Headroom]

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the seeds."""
        return float(np.mean(self.measures[measure]))


_MEASURES: Mapping[str, Callable[[Curve], float]] = {
    END: lambda curve: curve[-1],
    AREA: lambda curve: float(np.mean(curve[1:])),
}


def validated(comparison: Comparison) -> Iterable[Validated]:
    """Yield the measures of every engineer; of none if a validation was not sampled, or no round was designed."""
    curves = {name: {seed: _curve(arm.run) for seed, arm in arms.items()} for name, arms in comparison.arms.items()}
    if any(len(curve) < 2 for own in curves.values() for curve in own.values()):
        return
    bounds = [curves[name] for kind in (FLOOR, CEILING) if (name := engineer_of_kind(comparison, kind))]
    for name, own in curves.items():
        values = {measure: [of(curve) for curve in own.values()] for measure, of in _MEASURES.items()}
        yield Validated(
            engineer=name,
            curves=tuple(own.values()),
            measures={measure: tuple(by_seed) for measure, by_seed in values.items()},
            rounds_to={share: tuple(_rounds_to(curve, share) for curve in own.values()) for share in THRESHOLDS},
            escaped=float(np.mean([curve[-1] >= ESCAPED for curve in own.values()])),
            less_baseline={
                measure: seed_interval(ours - theirs)
                for measure, (ours, theirs) in _paired(own, curves[comparison.baseline]).items()
            },
            headroom={measure: _headroom(*three) for measure, three in _paired(own, *bounds).items()}
            if len(bounds) == 2
            else {},
        )


def by_area(measured: Iterable[Validated]) -> list[Validated]:
    """Return the engineers with the largest area first."""
    return sorted(measured, key=lambda one: one.mean(AREA), reverse=True)


def engineer_of_kind(comparison: Comparison, kind: str) -> str | None:
    """Return the first engineer of a kind; None if there is none."""
    return next((name for name in comparison.engineers if comparison.settings[name]["kind"] == kind), None)


def _curve(run: Run) -> Curve:
    """Return the sampled shares after the rounds; nothing where one was not sampled."""
    stages = [stage for past in run.rounds if (stage := run.stage(past.name))]
    shares = [stage.evidence.sampled_valid for stage in stages]
    return () if None in shares else tuple(shares)


def _rounds_to(curve: Curve, share: float) -> int | None:
    return next((index for index, reached in enumerate(curve) if reached >= share), None)


def _paired(*curves: Mapping[int, Curve]) -> dict[str, Sequence[np.ndarray]]:
    """Return by measure float ``[seeds]`` of each engineer, the seeds that all have; nothing if there is none."""
    seeds = [seed for seed in curves[0] if all(seed in own for own in curves)]
    return {
        measure: [np.array([of(own[seed]) for seed in seeds]) for own in curves]
        for measure, of in _MEASURES.items()
        if seeds
    }


def _headroom(ours: np.ndarray, floor: np.ndarray, ceiling: np.ndarray) -> Headroom:
    whole = seed_interval(ceiling - floor)
    known = len(ours) > 1 and whole.low > 0
    captured = ratio_interval(ours - floor, ceiling - floor) if known else (None, None, None)
    return Headroom(len(ours), whole, *captured)

"""The numbers of a report on branches: flat records for tables, pictures and ``branch.json``. Draws nothing."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import numpy as np

from jaxlake.kinds import Kind
from rl.report.branch import statistics
from rl.report.branch.gains import Branches, State
from rl.report.branch.statistics import Interval, bootstrap
from rl.statistics import spearman, t_interval

ALL, RANDOM = "all designs", "random designs"
BEST, BASELINE = "best of all", "fixed_random"
ENOUGH = 0.5
"""Rank correlation of two repeats below which the branches are too short or too few to tell designs apart."""
FEWEST = 3
"""Designs of a state below which their ranks say nothing."""
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclasses.dataclass(frozen=True)
class Retest:
    """How well gains repeat with fresh keys.

    Attributes:
      group: of designs, ``ALL`` or ``RANDOM``.
      designs: in all states.
      single: rank correlation of two single repeats.
      of_mean: that of two means over as many repeats as there are, by Spearman and Brown.
      intraclass: share of the variance of a single gain that is between designs.
    """

    group: str
    designs: int
    single: Interval | None
    of_mean: Interval | None
    intraclass: Interval | None

    @property
    def is_enough(self) -> bool:
        """Whether the repeats agree about which designs are better, as far as that was measured."""
        return self.single is not None and self.single.value >= ENOUGH


@dataclasses.dataclass(frozen=True)
class Distribution:
    """The gains of the random designs of a state.

    Attributes:
      quantiles: ``QUANTILES`` of the mean over repeats.
      between: standard deviation of that mean between designs.
      within: standard deviation of the gain of a design between its repeats; None with one.
      error: standard error of a single gain over the boards, root mean square.
    """

    state: str
    designs: int
    repeats: int
    quantiles: tuple[float, ...]
    between: float
    within: float | None
    error: float


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What training on one kind alone gained on each kind, mean over repeats and over states with such designs.

    Attributes:
      trained_on, gained_on: names of the rows and of the columns that all of these states have, ascending in
        `Kind.difficulty`.
      gains: ``[trained_on][gained_on]``.
      half_widths: ``[gained_on]``, see `repeat_half_widths`; None with one repeat.
      specialisation: what the best row gains above the mean one, see `specialisation`.
      shares: what the variance that repeats have in common is made of, "trained on", "gained on" and "interaction",
        see `variance_shares`. Intervals here are for other kinds gained on.
    """

    trained_on: tuple[str, ...]
    gained_on: tuple[str, ...]
    gains: tuple[tuple[float, ...], ...]
    half_widths: tuple[float, ...] | None
    specialisation: Interval | None
    shares: Mapping[str, Interval | None]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The rank correlation of a predictor with the gain, mean over repeats.

    Attributes:
      group: of designs, ``ALL`` or ``RANDOM``.
      designs: in all states, those whose predictor was computed.
    """

    predictor: str
    group: str
    designs: int
    correlation: Interval | None


@dataclasses.dataclass(frozen=True)
class Engineer:
    """What the designs of an engineer gained, mean over repeats and then over states.

    Attributes:
      name: `BEST` for the design that is best by the other repeats than the one it is measured in.
      states: in which it designed.
      gain: on the validation boards.
      elsewhere: mean over all kinds.
      above, above_elsewhere: by how much these are above `BASELINE`'s in the same states, with Student's 95 % interval
        over states; None without it or in fewer than two states.
    """

    name: str
    states: int
    gain: float
    elsewhere: float
    above: tuple[float, float, float] | None
    above_elsewhere: tuple[float, float, float] | None


@dataclasses.dataclass(frozen=True)
class Findings:
    """All numbers on branches."""

    engineers: tuple[Engineer, ...]
    retests: tuple[Retest, ...]
    distributions: tuple[Distribution, ...]
    transfer: Transfer | None
    predictions: tuple[Prediction, ...]


@functools.lru_cache(maxsize=1)
def findings(branches: Branches) -> Findings:
    """Compute all numbers on branches; cached, as tables and pictures ask for the same."""
    return Findings(
        engineers=tuple(_engineers(branches)),
        retests=tuple(_retests(branches)),
        distributions=tuple(_distribution(state) for state in branches.states if state.random.any()),
        transfer=_transfer(branches),
        predictions=tuple(_predictions(branches)),
    )


def _engineers(branches: Branches) -> list[Engineer]:
    """Return the engineers, those that gained most first."""
    gained: dict[str, dict[str, tuple[float, float]]] = {}
    for state in branches.states:
        elsewhere = state.kind_gains.mean(-1)
        for i, design in enumerate(state.designs):
            for name in design.engineers:
                gained.setdefault(name, {})[state.name] = (float(state.gains[i].mean()), float(elsewhere[i].mean()))
        if state.repeats > 1:
            others = state.gains.sum(1, keepdims=True) - state.gains
            best = others.argmax(0), np.arange(state.repeats)
            pair = float(state.gains[best].mean()), float(elsewhere[best].mean())
            gained.setdefault(BEST, {})[state.name] = pair
    if gained.keys() <= {BEST}:
        return []
    found = [_engineer(name, own, gained.get(BASELINE, {})) for name, own in gained.items()]
    return sorted(found, key=lambda one: -one.gain)


def _engineer(
    name: str, own: Mapping[str, tuple[float, float]], baseline: Mapping[str, tuple[float, float]]
) -> Engineer:
    values = np.array(list(own.values()))
    shared = [state for state in own if state in baseline]
    above: list[tuple[float, float, float] | None] = [None, None]
    if len(shared) > 1 and name != BASELINE:
        differences = np.array([np.subtract(own[state], baseline[state]) for state in shared])
        above = [(float(column.mean()), *t_interval(column)) for column in differences.T]
    gain, elsewhere = values.mean(0).tolist()
    return Engineer(name, len(own), gain, elsewhere, *above)


def _groups(branches: Branches) -> dict[str, dict[str, np.ndarray]]:
    """Return for each group of designs by state which are in it, bool ``[K]``; the random ones if others are there."""
    groups = {ALL: {state.name: np.ones(len(state.designs), bool) for state in branches.states}}
    random = {state.name: state.random for state in branches.states}
    mixed = any(own.any() for own in random.values()) and not all(own.all() for own in random.values())
    return groups | ({RANDOM: random} if mixed else {})


def _retests(branches: Branches) -> Iterable[Retest]:
    for group, members in _groups(branches).items():
        gains = {
            state.name: (state.gains[members[state.name]],)
            for state in branches.states
            if members[state.name].sum() >= FEWEST
        }
        yield Retest(
            group=group,
            designs=sum(int(own.sum()) for own in members.values()),
            single=bootstrap(statistics.retest_correlation, gains),
            of_mean=bootstrap(_retest_of_mean, gains),
            intraclass=bootstrap(statistics.intraclass, gains),
        )


def _retest_of_mean(gains: np.ndarray) -> np.ndarray:
    return statistics.spearman_brown(statistics.retest_correlation(gains), gains.shape[-1])


def _distribution(state: State) -> Distribution:
    gains, errors = state.gains[state.random], state.errors[state.random]
    means = gains.mean(-1)
    return Distribution(
        state=state.name,
        designs=len(gains),
        repeats=state.repeats,
        quantiles=tuple(np.quantile(means, QUANTILES).tolist()),
        between=float(means.std(ddof=1)) if len(means) > 1 else None,
        within=float(np.sqrt(gains.var(-1, ddof=1).mean())) if state.repeats > 1 else None,
        error=float(np.sqrt((errors**2).mean())),
    )


def _transfer(branches: Branches) -> Transfer | None:
    states = [state for state in branches.states if len(state.trained_kinds) > 1]
    if not states:
        return None
    trained_on, gained_on = (
        sorted(set.intersection(*(set(kinds) for kinds in by_state)), key=lambda kind: (kind.difficulty, kind))
        for by_state in ([state.trained_kinds for state in states], [state.kinds for state in states])
    )
    if len(trained_on) < 2 or not gained_on:
        return None
    gains = {state.name: _transfer_gains(state, trained_on, gained_on) for state in states}
    matrix = np.mean([one.mean(1) for one in gains.values()], axis=0).T
    half_widths = statistics.repeat_half_widths(list(gains.values()))
    samples = {name: (one,) for name, one in gains.items()}
    return Transfer(
        trained_on=tuple(map(str, trained_on)),
        gained_on=tuple(map(str, gained_on)),
        gains=tuple(map(tuple, matrix.tolist())),
        half_widths=None if half_widths is None else tuple(half_widths.tolist()),
        specialisation=bootstrap(statistics.specialisation, samples),
        shares={
            name: bootstrap(lambda one, place=place: statistics.variance_shares(one)[..., place], samples)
            for place, name in enumerate(("trained on", "gained on", "interaction"))
        },
    )


def _transfer_gains(state: State, trained_on: list[Kind], gained_on: list[Kind]) -> np.ndarray:
    """Return gains ``[gained on, repeats, trained on]``; several designs on the same kind count as their mean."""
    columns = [state.kinds.index(kind) for kind in gained_on]
    rows = [[i for i, design in enumerate(state.designs) if design.kind == kind] for kind in trained_on]
    return np.stack([state.kind_gains[own][..., columns].mean(0).T for own in rows], axis=-1)


def _predictions(branches: Branches) -> Iterable[Prediction]:
    for name in dict.fromkeys(name for state in branches.states for name in state.predictors):
        for group, members in _groups(branches).items():
            pairs = {}
            for state in branches.states:
                values = state.predictors.get(name, np.full(len(state.designs), np.nan))
                own = members[state.name] & ~np.isnan(values)
                if own.sum() >= FEWEST:
                    pairs[state.name] = (values[own], state.gains.mean(-1)[own])
            designs = sum(len(values) for values, _ in pairs.values())
            yield Prediction(name, group, designs, bootstrap(spearman, pairs))

"""The numbers of a comparison: flat records for tables, pictures and ``comparison.json``. Draws nothing."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from engineer.proposal import distance
from jaxlake.kinds import Kind
from rl.report.comparison.arms import OUTCOMES, Answers, Arm, Comparison
from rl.report.comparison.measures import Validated, validated
from rl.report.comparison.statistics import cvar, largest_drop, transitions
from rl.report.heat import entropy
from rl.report.run import RATIOS, Run
from rl.statistics import Interval, intervals

VALID, OPTIMAL, SAMPLED, GIVEN_VALID = "valid", "optimal", "sampled valid", "optimal given valid"
START = "round 0"
"""The row of the policy that all engineers begin with."""
ALPHAS = tuple(round(0.05 * i, 2) for i in range(1, 21))
"""Shares of the worst boards whose mean is reported; the last is the mean over all."""


@dataclasses.dataclass(frozen=True)
class Rate:
    """A share of an engineer's answers, mean over the seeds and over the sizes, all sizes counting the same.

    Attributes:
      agents, size, wait: of the boards; None for all.
      n: answers.
      share, low, high: with Wilson's interval for as many answers, as if no two were to the same board; it is about
        these seeds and no others.
    """

    engineer: str
    metric: str
    agents: int | None
    size: int | str | None
    wait: float | None
    n: int
    share: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Difference:
    """An engineer less the baseline on the same seeds and boards, mean over sizes ("Sum"); agents None for all."""

    engineer: str
    metric: str
    agents: int | None
    interval: Interval


@dataclasses.dataclass(frozen=True)
class Forgetting:
    """Valid share of the greedy answers on validation, mean over seeds.

    Attributes:
      checkpoints, sizes: names of the rows and of the columns, which are labels of kinds.
      valid: ``[checkpoints][sizes]``.
      drops: ``[sizes]``, the largest fall below an earlier checkpoint.
    """

    engineer: str
    checkpoints: tuple[str, ...]
    sizes: tuple[int | str, ...]
    valid: tuple[tuple[float, ...], ...]
    drops: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Tail:
    """Mean over the worst boards, for each share in ``ALPHAS``; agents None for all.

    A board counts by the share of valid answers to it over all seeds: of the samples where there are any, else of the
    greedy answers. The worst boards are chosen by the same answers, so that few answers make the tail look worse, and
    tails of unequally many seeds cannot be compared.

    Attributes:
      values: by share in ``ALPHAS``.
      never: share of the boards without any valid answer; as long as it is above a share, the mean there is 0.
    """

    engineer: str
    agents: int | None
    values: tuple[float, ...]
    never: float


@dataclasses.dataclass(frozen=True)
class Moves:
    """The outcomes of answers at the shared start and in the end, all boards counting the same.

    Attributes:
      before, after: by outcome the share of the answers.
      changes: by outcome the difference of the two.
      matrix: ``[outcomes][outcomes]`` answers from the row's outcome to the column's, over all seeds.
    """

    engineer: str
    before: dict[str, float]
    after: dict[str, float]
    changes: dict[str, Interval]
    matrix: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Design:
    """The designs of an engineer in one round, mean over seeds.

    Attributes:
      config: ``{ratio: {label of a kind: mean}}`` as requested.
      entropy: of the data ratios, in nats.
      data_step: L1 distance of the data ratios from those of the round before; None in the first.
      hole_step, wait_step: mean over kinds of the absolute change; None in the first.
      repairs: how many the projection made.
      fallbacks: in how many of the seeds the round before's configuration stayed for want of another.
      without_signal: share of the groups of training answers that were all valid or all invalid.
    """

    engineer: str
    round: int
    seeds: int
    config: dict[str, dict[int | str, float]]
    entropy: float
    data_step: float | None
    hole_step: float | None
    wait_step: float | None
    repairs: float
    fallbacks: int
    without_signal: float | None


@dataclasses.dataclass(frozen=True)
class Apart:
    """The distance of the designs of two engineers, which read different things or read differently.

    Attributes:
      one, other: the engineers.
      round: in which they designed.
      distance: `engineer.proposal.distance` of what they asked for with the same seed, mean over seeds; of an engineer
        and itself with different seeds, mean over pairs. None where it has one seed.
      equal: in how many of these cases they asked for the same, of ``cases``.
    """

    one: str
    other: str
    round: int
    distance: float | None
    equal: int
    cases: int


@dataclasses.dataclass(frozen=True)
class Findings:
    """All numbers of a comparison."""

    rates: tuple[Rate, ...]
    differences: tuple[Difference, ...]
    forgetting: tuple[Forgetting, ...]
    tails: tuple[Tail, ...]
    moves: tuple[Moves, ...]
    designs: tuple[Design, ...]
    apart: tuple[Apart, ...]
    validated: tuple[Validated, ...]


@functools.lru_cache(maxsize=1)
def findings(comparison: Comparison) -> Findings:
    """Compute all numbers of a comparison; cached, as tables and pictures ask for the same."""
    return Findings(
        rates=tuple(_rates(comparison)),
        differences=tuple(_differences(comparison)),
        forgetting=tuple(_forgetting(name, list(arms.values())) for name, arms in comparison.arms.items()),
        tails=tuple(_tails(comparison)),
        moves=tuple(_moves(comparison)),
        designs=tuple(design for name, arms in comparison.arms.items() for design in _designs(name, arms.values())),
        apart=tuple(_apart(comparison)),
        validated=tuple(validated(comparison)),
    )


def metrics(comparison: Comparison) -> tuple[str, ...]:
    """Return the metrics that every policy has."""
    answers = [one for arms in comparison.arms.values() for arm in arms.values() for one in (arm.before, arm.after)]
    sampled = all(one.sampled_valid is not None for one in answers)
    return (VALID, OPTIMAL, SAMPLED) if sampled else (VALID, OPTIMAL)


def table(answers: Iterable[Answers], metric: str) -> np.ndarray:
    """Return the values of a metric, float ``[seeds, boards]``."""
    column = {VALID: "valid", OPTIMAL: "optimal", SAMPLED: "sampled_valid"}[metric]
    return np.stack([getattr(one, column) for one in answers]).astype(float)


def _rates(comparison: Comparison) -> Iterable[Rate]:
    kinds = metrics(comparison)
    policies = {name: {kind: table(own, kind) for kind in kinds} for name, own in _policies(comparison).items()}
    for part in comparison.boards.slices():
        wait = None if part.whole else part.wait
        if wait is not None and (part.size is not None or part.agents is None):
            continue  # too few boards, or not the same wait subsets for all numbers of agents
        for name, values in policies.items():
            shares = {kind: part.share(values[kind]) for kind in kinds}
            shares[GIVEN_VALID] = part.share_given(values[OPTIMAL], values[VALID])
            n = int(part.boards.sum()) * len(values[VALID])
            for metric, share in shares.items():
                if share is not None:
                    yield Rate(name, metric, part.agents, part.size, wait, n, share.value, share.low, share.high)


def _policies(comparison: Comparison) -> dict[str, list[Answers]]:
    """Return by name the answers of each seed: of the policy that all begin with, then of each engineer's."""
    ends = {name: [arm.after for arm in arms.values()] for name, arms in comparison.arms.items()}
    return {START: list(comparison.before.values())} | ends


def _differences(comparison: Comparison) -> Iterable[Difference]:
    groups = comparison.boards.by_agents()
    weights = np.stack([group.weights for group in groups])
    for (engineer, metric), by_group in intervals(paired(comparison), weights, comparison.boards.strata).items():
        for group, interval in zip(groups, by_group, strict=True):
            yield Difference(engineer, metric, group.agents, interval)


def paired(comparison: Comparison) -> dict[tuple[str, str], np.ndarray]:
    """Return by engineer and metric its values less the baseline's, float ``[seeds, boards]``."""
    less = {}
    for engineer in comparison.others:
        seeds = comparison.paired_seeds(engineer)
        ours, theirs = ([comparison.arms[e][s].after for s in seeds] for e in (engineer, comparison.baseline))
        for metric in metrics(comparison) if seeds else ():
            less[engineer, metric] = table(ours, metric) - table(theirs, metric)
    return less


def _forgetting(engineer: str, arms: Sequence[Arm]) -> Forgetting:
    names = [stage.name for stage in arms[0].run.stages if all(arm.run.stage(stage.name) for arm in arms)]
    names = [name for name in names if name != "before"]  # nothing was learnt yet that could be forgotten
    kinds = sorted({row.kind for arm in arms for row in arm.run.stages[-1].evidence.by_kind})
    valid = np.mean([_validity(arm.run, names, kinds) for arm in arms], axis=0)
    labels = tuple(kind.label for kind in kinds)
    return Forgetting(engineer, tuple(names), labels, _nested(valid), tuple(largest_drop(valid).tolist()))


def _validity(run: Run, names: Sequence[str], kinds: Sequence[Kind]) -> np.ndarray:
    """Return the valid share of greedy answers, float ``[checkpoints, kinds]``."""
    rows = [{row.kind: row.valid / row.n for row in run.stage(name).evidence.by_kind} for name in names]
    return np.array([[row[kind] for kind in kinds] for row in rows])


def _tails(comparison: Comparison) -> Iterable[Tail]:
    metric = SAMPLED if SAMPLED in metrics(comparison) else VALID
    for name, answers in _policies(comparison).items():
        values = table(answers, metric).mean(axis=0)
        for group in comparison.boards.by_agents():
            own = values[group.boards]
            yield Tail(name, group.agents, tuple(cvar(own, alpha) for alpha in ALPHAS), float((own == 0).mean()))


def _moves(comparison: Comparison) -> Iterable[Moves]:
    boards, kinds = comparison.boards, np.arange(len(OUTCOMES))
    pairs = {
        name: [np.stack([getattr(arm, side).outcome for arm in arms.values()]) for side in ("before", "after")]
        for name, arms in comparison.arms.items()
    }
    changed = {
        (name, kind): (after == kind).astype(float) - (before == kind)
        for name, (before, after) in pairs.items()
        for kind in kinds
    }
    some = {key: change for key, change in changed.items() if change.any()}
    weights = np.full((1, len(boards.id)), 1 / len(boards.id))
    moved = intervals(some, weights, boards.strata)
    still = Interval(0.0, 0.0, 0.0, None, None, ())
    for name, (before, after) in pairs.items():
        yield Moves(
            engineer=name,
            before={OUTCOMES[kind]: float((before == kind).mean()) for kind in kinds},
            after={OUTCOMES[kind]: float((after == kind).mean()) for kind in kinds},
            changes={OUTCOMES[kind]: moved.get((name, kind), [still])[0] for kind in kinds},
            matrix=_nested(transitions(before.ravel(), after.ravel(), len(OUTCOMES))),
        )


def _designs(engineer: str, arms: Iterable[Arm]) -> Iterable[Design]:
    arms = list(arms)
    for index in range(min(len(arm.run.rounds) for arm in arms)):
        rounds = [arm.run.rounds[index] for arm in arms]
        ratios = {ratio: np.array([getattr(past.config, ratio) for past in rounds]) for ratio in RATIOS}
        steps = dict.fromkeys(RATIOS)
        if index:
            for ratio in RATIOS:
                earlier = np.array([getattr(arm.run.rounds[index - 1].config, ratio) for arm in arms])
                moved = np.abs(ratios[ratio] - earlier)
                steps[ratio] = float((moved.sum(axis=1) if ratio == "data" else moved.mean(axis=1)).mean())
        lost = [
            row["all_valid_groups"] + row["all_invalid_groups"]
            for arm, past in zip(arms, rounds, strict=True)
            for row in arm.run.steps
            if row["round"] == past.index and row.get("all_valid_groups") is not None
        ]
        labels = [kind.label for kind in rounds[0].config.kinds]
        yield Design(
            engineer=engineer,
            round=rounds[0].index,
            seeds=len(arms),
            config={ratio: dict(zip(labels, ratios[ratio].mean(axis=0).tolist(), strict=True)) for ratio in RATIOS},
            entropy=float(np.mean([entropy(past.config.data) for past in rounds])),
            data_step=steps["data"],
            hole_step=steps["hole"],
            wait_step=steps["wait"],
            repairs=float(np.mean([len(past.proposal.get("repairs", ())) for past in rounds])),
            fallbacks=sum(bool(past.proposal.get("fallback")) for past in rounds),
            without_signal=float(np.mean(lost)) if lost else None,
        )


def _apart(comparison: Comparison) -> Iterable[Apart]:
    arms = comparison.arms
    rounds = range(1, min(len(arm.run.rounds) for of_one in arms.values() for arm in of_one.values()))
    for index, (one, other) in itertools.product(rounds, itertools.combinations_with_replacement(arms, 2)):
        mine, theirs = (
            {seed: arm.run.rounds[index].config for seed, arm in arms[name].items()} for name in (one, other)
        )
        if one == other:
            pairs = list(itertools.combinations(mine.values(), 2))
        else:
            pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
        yield Apart(
            one=one,
            other=other,
            round=next(iter(arms[one].values())).run.rounds[index].index,
            distance=float(np.mean([distance(*pair) for pair in pairs])) if pairs else None,
            equal=sum(a == b for a, b in pairs),
            cases=len(pairs),
        )


def _nested(matrix: np.ndarray) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))

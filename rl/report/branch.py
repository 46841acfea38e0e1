"""The report on branches: what designs gain from saved states, and whether gains repeat. Trains nothing."""

import dataclasses
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from jaxlake.table import WIDTH, Table
from rl.judge.statistics import ENDS, spearman, t_interval
from rl.lab import designs as origins
from rl.lab.designs import Design
from rl.lab.gains import Gains, StateGains, read_gains
from rl.report import page, style
from rl.report.style import BLUE, GREEN, GREY, ORANGE

BEST, BASELINE = "best of all", "fixed_random"
ENOUGH = 0.5
"""Rank correlation of two repeats below which the branches are too short or too few to tell designs apart."""
FEWEST = 3
"""Designs of a state below which their ranks say nothing."""
RESAMPLES = 2_000
SHOWN = 4
"""Kinds of boards of a design that its row names."""
_NORMAL = 1.96
"""Standard errors to each side of a 95 % interval."""
_ORIGINS = {"random": (BLUE, "o"), "all data on one kind": (ORANGE, "s"), "an engineer's": (GREEN, "D")}

Estimate = tuple[float, float, float]
"""A value with the ends of its 95 % interval."""


@dataclasses.dataclass(frozen=True)
class EngineerGains:
    """Gains of an engineer's designs, as means over repeats and then over states.

    Attributes:
      name: the engineer, or `BEST` for the design that is best by the other repeats than the one it is measured in.
      states: number of states in which it designed.
      target, all_kinds: gain on the validation boards, and the mean over all kinds.
      target_above, all_kinds_above: difference to `BASELINE` in the same states with Student's interval over the
        states; None without it or with less than two states.
    """

    name: str
    states: int
    target: float
    all_kinds: float
    target_above: Estimate | None
    all_kinds_above: Estimate | None


class Transfer(NamedTuple):
    """Mean gains ``[trained_on][gained_on]`` on each kind of boards by training on one kind alone."""

    trained_on: list[str]
    gained_on: list[str]
    gains: list[list[float]]


def write(folder: Path, file: Path | None = None) -> Path:
    """Write the page, ``report/branch.html`` in the folder by default, pictures and numbers; return the page's path."""
    gains, file = read_gains(folder), file or folder / "report" / "branch.html"
    drawn = style.draw(PICTURES, gains)
    page.save(
        file,
        {file.parent: drawn},
        _numbers(gains),
        "tables.html",
        title=f"Branches {gains.name}",
        notes=notes(gains),
        tables=list(tables(gains)),
        pictures=drawn,
        folded={f"Designs tried from {state.name}": design_table(state) for state in gains.states},
    )
    return file


def to_text(gains: Gains) -> str:
    """Write the notes and tables for a terminal of 80 columns."""
    return "\n\n".join((*(textwrap.fill(note, WIDTH) for note in notes(gains)), *(t.to_text() for t in tables(gains))))


def notes(gains: Gains) -> Iterator[str]:
    """Say in sentences what was tried, and whether gains repeat."""
    designs, states = sum(len(state.designs) for state in gains.states), len(gains.states)
    yield (
        f"{designs} designs, {states} {'states' if states > 1 else 'state'}. Gains are in percentage points of valid "
        "plays on the validation boards, after the branch less before it. All intervals are of 95 %."
    )
    if (correlation := repeat_correlation(gains)) is None:
        single = all(state.repeats == 1 for state in gains.states)
        yield f"Test-retest: not measured ({'one repeat' if single else 'no three designs of a state differ in gain'})."
    else:
        yield (
            "Test-retest: two repeats of the same designs with fresh keys have a rank correlation of "
            "{:.2f} [{:.2f} {:.2f}].".format(*correlation)
        )
        if correlation[0] < ENOUGH:
            yield f"The correlation is below {ENOUGH:g}: the branches are too short or too few."
    if gains.left_out:
        yield f"Left out: {'; '.join(gains.left_out)}."


def tables(gains: Gains) -> Iterator[Table]:
    """Make the tables that fit a terminal; those of single designs are `design_table`."""
    header = ("state", "valid %", "designs", "repeats", "updates", "best", "worst")
    rows = [(state.name, *_state_row(state)) for state in gains.states]
    yield Table("States that designs were tried from, and the points gained by the best and worst design", header, rows)
    if designers := engineers(gains):
        yield Table(
            "Points gained by the designs of engineers, mean over repeats and states, and the difference to "
            f"{BASELINE} in the same states [Student's t over states]",
            ("engineer", "states", "target", "difference", "all kinds", "difference"),
            [
                (
                    one.name,
                    str(one.states),
                    *(_points(one.target), _interval(one.target_above)),
                    *(_points(one.all_kinds), _interval(one.all_kinds_above)),
                )
                for one in designers
            ],
            f"{BEST.capitalize()}: in each state the design that is best by the other repeats than the one it is "
            "measured in.",
        )


def design_table(state: StateGains) -> Table:
    """Make a table of the designs of a state, the one that gained most first."""
    means, numbered = state.gains.mean(-1), list(state.designs.items())
    half = _NORMAL * np.sqrt((state.errors**2).mean(-1))
    rows = [
        (
            str(numbered[i][0]),
            numbered[i][1].origin,
            _interval((means[i], means[i] - half[i], means[i] + half[i])),
            " ".join(map(_points, state.gains[i])),
            _data(numbered[i][1]),
        )
        for i in (-means).argsort(kind="stable")
    ]
    title = f"{state.name}: points gained by each design [normal interval of one repeat, for other boards]"
    return Table(title, ("design", "origin", "gain", "by repeat", "data"), rows)


def engineers(gains: Gains) -> list[EngineerGains]:
    """Return the engineers, those that gained most first; none without designs of engineers."""
    gained: dict[str, dict[str, tuple[float, float]]] = {}  # on the target and on all kinds, by engineer and state
    for state in gains.states:
        all_kinds = state.kind_gains.mean(-1)
        for i, design in enumerate(state.designs.values()):
            for name in design.engineers:
                gained.setdefault(name, {})[state.name] = float(state.gains[i].mean()), float(all_kinds[i].mean())
        if state.repeats > 1:
            others = state.gains.sum(1, keepdims=True) - state.gains
            best = others.argmax(0), np.arange(state.repeats)
            gained.setdefault(BEST, {})[state.name] = float(state.gains[best].mean()), float(all_kinds[best].mean())
    if gained.keys() <= {BEST}:
        return []
    rows = [_engineer(name, own, gained.get(BASELINE, {})) for name, own in gained.items()]
    return sorted(rows, key=lambda one: -one.target)


def _engineer(
    name: str, own: Mapping[str, tuple[float, float]], baseline: Mapping[str, tuple[float, float]]
) -> EngineerGains:
    target, all_kinds = np.mean(list(own.values()), axis=0).tolist()
    differences = np.array([np.subtract(own[state], baseline[state]) for state in own if state in baseline])
    if len(differences) < 2 or name == BASELINE:
        return EngineerGains(name, len(own), target, all_kinds, None, None)
    above = [(float(column.mean()), *t_interval(column)) for column in differences.T]
    return EngineerGains(name, len(own), target, all_kinds, *above)


def repeat_correlation(gains: Gains) -> Estimate | None:
    """Return the rank correlation of two repeats of the same designs, mean over states, by bootstrap within each.

    None where no state has two repeats of three designs that differ.
    """
    rng, usable = np.random.default_rng(0), [state.gains for state in gains.states]
    usable = [own for own in usable if len(own) >= FEWEST and own.shape[1] > 1]
    usable = [own for own in usable if not np.isnan(retest_correlation(own))]
    if not usable:
        return None
    drawn = np.stack([retest_correlation(own[rng.integers(len(own), size=(RESAMPLES, len(own)))]) for own in usable])
    means = np.nanmean(drawn[:, ~np.isnan(drawn).all(0)], axis=0)  # NaN where one design was drawn again and again
    low, high = np.percentile(means, ENDS).tolist()
    return float(np.mean([retest_correlation(own) for own in usable])), low, high


def retest_correlation(gains: np.ndarray) -> np.ndarray:
    """Return the mean over pairs of repeats of the rank correlation of gains ``[..., designs, repeats]``."""
    pairs = itertools.combinations(range(gains.shape[-1]), 2)
    return np.mean([spearman(gains[..., i], gains[..., j]) for i, j in pairs], axis=0)


def transfer(gains: Gains) -> Transfer | None:
    """Return what training on one kind alone gained on each; None without two such designs in common to the states."""
    alone = [{d.kind: i for i, d in enumerate(state.designs.values()) if d.kind} for state in gains.states]
    states = [(state, rows) for state, rows in zip(gains.states, alone, strict=True) if len(rows) > 1]
    if not states:
        return None
    trained_on, gained_on = (
        sorted(set.intersection(*map(set, kinds)), key=lambda kind: (kind.difficulty, kind))
        for kinds in ([rows for _, rows in states], [state.kinds for state, _ in states])
    )
    if len(trained_on) < 2:
        return None
    cells = [
        state.kind_gains.mean(1)[np.ix_([rows[kind] for kind in trained_on], [*map(state.kinds.index, gained_on)])]
        for state, rows in states
    ]
    return Transfer([*map(str, trained_on)], [*map(str, gained_on)], np.mean(cells, axis=0).tolist())


def _numbers(gains: Gains) -> dict[str, Any]:
    return {
        "left_out": gains.left_out,
        "engineers": list(map(dataclasses.asdict, engineers(gains))),
        "test_retest": repeat_correlation(gains),
        "transfer": matrix._asdict() if (matrix := transfer(gains)) else None,
    }


def _gains(gains: Gains) -> Figure:
    figure, grid = style.panels(
        len(gains.states), 1.9, "designs in ascending order of gain", "gain, points", sharex=False
    )
    for axes, state in zip(grid, gains.states, strict=True):
        order = state.gains.mean(-1).argsort(kind="stable")
        place = np.empty(len(order))
        place[order] = np.arange(1, len(order) + 1)
        for repeat in range(state.repeats):
            shift = 0.6 * ((repeat + 0.5) / state.repeats - 0.5)
            own, errors = (100 * values[:, repeat] for values in (state.gains, state.errors))
            look: Any = {"fmt": ".", "color": GREY, "markersize": 3, "elinewidth": 0.7, "zorder": 2}
            label = "single repeats" if repeat == 0 else None
            axes.errorbar(place + shift, own, _NORMAL * errors, label=label, **look)
        origin = np.array([_origin(design) for design in state.designs.values()])
        for name, (colour, mark) in _ORIGINS.items():
            if (of := origin == name).any():
                means = 100 * state.gains.mean(-1)[of]
                axes.plot(place[of], means, mark, color=colour, markersize=4, alpha=0.8, label=name, zorder=3)
        axes.axhline(0, color="#444444", linewidth=0.9, zorder=1)
        axes.set_title(state.name)
        axes.set_xlim(0, len(order) + 1)
        axes.set_xticks([])
    style.legend(figure, grid, len(_ORIGINS) + 1, "upper")
    return figure


def _transfer(gains: Gains) -> Figure | None:
    if (matrix := transfer(gains)) is None:
        return None
    points = 100 * np.array(matrix.gains)
    rows, columns = points.shape
    figure = Figure(figsize=(max(4.5, 0.42 * columns + 1.4), 0.3 * rows + 1.1), layout="constrained")
    axes = figure.subplots()
    shades = np.clip(points / max(points.max(), 1e-9), 0, 1)
    style.heat(axes, shades, [[f"{round(v)}" for v in row] for row in points.tolist()], 7)
    axes.set_xticks(range(columns), matrix.gained_on, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(rows), matrix.trained_on)
    axes.set(xlabel="gained on", ylabel="trained on")
    return figure


PICTURES: dict[str, style.Drawing] = {
    "gains.png": (
        _gains,
        "Gains of all designs in ascending order of their mean over repeats. Grey: single repeats, with 95 % for other "
        "boards.",
    ),
    "transfer.png": (
        _transfer,
        "Points gained on each kind of boards (across) by training on one kind alone (down), mean over repeats and "
        "states; white: nothing was gained or some was lost. Kinds are in ascending order of difficulty.",
    ),
}


def _origin(design: Design) -> str:
    random, one_kind, engineer = _ORIGINS
    return random if design.origin == origins.RANDOM else one_kind if design.kind else engineer


def _state_row(state: StateGains) -> tuple[str, ...]:
    means, named = state.gains.mean(-1), list(state.designs.items())
    ends = (f"{_points(means[i])} {_named(*named[i])}" for i in (means.argmax(), means.argmin()))
    counts = (len(state.designs), state.repeats, state.updates)
    return f"{100 * state.before:.1f}", *map(str, counts), *ends


def _named(number: int, design: Design) -> str:
    return f"{design.origin} {number}" if design.origin == origins.RANDOM else design.origin


def _data(design: Design) -> str:
    shares = sorted(zip(design.config.data, design.config.kinds, strict=True), key=lambda pair: -pair[0])
    texts = [f"{kind} {100 * share:.0f} %" for share, kind in shares if share > 0]
    return ", ".join(texts[:SHOWN] + ["..."] * (len(texts) > SHOWN))


def _points(gain: float) -> str:
    return f"{100 * gain:+.1f}"


def _interval(interval: Estimate | None) -> str:
    return "" if interval is None else "{} [{} {}]".format(*map(_points, interval))

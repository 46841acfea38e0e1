"""Boards of a configuration out of a stock that was solved beforehand, in milliseconds; generates none.

With four and five agents the generator takes tens of milliseconds a board, and minutes for a configuration that wants
many waits: too long for a learner whose whole round takes a second.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxlake.config import LakeConfig, counts
from jaxlake.fixed_sets import POOLS, Benchmark, load
from jaxlake.generate.candidates import Shape
from jaxlake.generate.dataset import Dataset, KindReport, assemble, report_kind
from jaxlake.generate.search import Account, Found, Quotas, rounded
from jaxlake.kinds import Family, Kind
from jaxlake.levels import pad
from jaxlake.record import Array
from jaxlake.solve.driver import undecided
from jaxlake.types import Status

HELD_OUT = 4
"""One board in so many of each kind and density is for validation, the others are for training."""


class _Cell(NamedTuple):
    """The boards of a kind at one density; rows are their places in the stock, int ``[n]``."""

    stock: Benchmark
    rows: np.ndarray
    density: float
    account: Account


def covers(kinds: Sequence[Kind]) -> bool:
    """Say whether the stock has boards of all these kinds."""
    return set(kinds) <= {kind for kind, _ in _cells()}


def draw(
    config: LakeConfig,
    key: Array,
    count: int,
    *,
    validation: bool = False,
    max_size: int | None = None,
    max_agents: int | None = None,
) -> Dataset:
    """Draw boards from the stock to a configuration's quotas; none is in a fixed set.

    The density is the nearest one that the stock has (0, .1 .. .5 of random boards, .1, .3 and .5 of other families).
    Of a kind and density there are up to 128 boards, a quarter of them with waits: where there are fewer with waits
    than asked for, boards without take their places, and where there are not enough different ones they are repeated.
    The report says both.

    Args:
      key: the result depends on config, key, count and what follows alone.
      validation: draw from the quarter that is kept for validation instead of the rest.
      max_size: side of the padded board, the largest of the config's kinds by default.
      max_agents: agent slots, the most of the config's kinds by default.

    Returns:
      The boards with the costs of their solutions; the plans are left empty.
    """
    max_size = max_size or max(kind.size for kind in config.kinds)
    max_agents = max_agents or max(kind.num_agents for kind in config.kinds)
    parts: list[Found] = []
    report: list[KindReport] = []
    for index, (kind, wanted) in enumerate(zip(config.kinds, counts(config, count), strict=True)):
        cell = _nearest(kind, config.hole[index])
        rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, index))))
        quotas = Quotas(wanted, rounded(config.wait[index] * wanted))
        rows, repeated = _rows(cell, quotas, validation, rng)
        found = _found(cell.stock, rows, max_size, max_agents) if wanted else None
        parts += [] if found is None else [found]
        shape = Shape(kind, cell.density, max_size, max_agents)
        report.append(report_kind(shape, quotas, found, repeated, cell.account))
    return assemble(parts, report, jax.random.fold_in(key, len(config.kinds)))


@functools.cache
def _cells() -> dict[tuple[Kind, float], _Cell]:
    found = {}
    for stock in map(load, POOLS):
        kinds, ratios = stock.kinds, np.round(stock.hole_ratio, 2)
        accounts = {
            (Kind(row.get("family", Family.RANDOM.value), row["size"], row["agents"]), row["hole_ratio"]): row
            for row in stock.account["groups"]
        }
        for (kind, ratio), account in accounts.items():
            rows = np.flatnonzero((kinds == kind) & (ratios == ratio))
            # Shuffled once for all: those with waits come first in the file, and the last quarter is for validation.
            rows = np.random.default_rng(0).permutation(rows)
            if len(rows) >= HELD_OUT:
                found[kind, ratio] = _Cell(stock, rows, ratio, Account(*(account[field] for field in Account._fields)))
    return found


def _nearest(kind: Kind, density: float) -> _Cell:
    ratios = [ratio for other, ratio in _cells() if other == kind]
    if not ratios:
        raise ValueError(f"{kind.words}: the stock has no such boards; jaxlake.generate makes them")
    return _cells()[kind, min(ratios, key=lambda ratio: (abs(ratio - density), ratio))]


def _rows(cell: _Cell, quotas: Quotas, validation: bool, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Choose places in the stock, int ``[wanted]``, and say how many of them are repeats."""
    last = len(cell.rows) - len(cell.rows) // HELD_OUT
    rows = rng.permutation(cell.rows[last:] if validation else cell.rows[:last])
    needs = cell.stock.needs_wait[rows]
    with_wait, without = rows[needs][: quotas.waits], rows[~needs]
    chosen = np.concatenate([with_wait, without[: quotas.total - len(with_wait)]])
    spare = np.setdiff1d(rows, chosen)[: quotas.total - len(chosen)]
    chosen = np.concatenate([chosen, spare])
    return np.resize(chosen, quotas.total), quotas.total - len(chosen)


def _found(stock: Benchmark, rows: np.ndarray, max_size: int, max_agents: int) -> Found:
    """Return boards of the stock as a search finds them, without their plans, on padded boards of another side."""
    solutions = undecided(len(rows), max_agents, max_steps=0).replace(
        status=np.full(len(rows), Status.SOLVED, np.int32),
        cost=stock.optimum[rows],
        lower_bound=stock.lower_bound[rows],
    )
    return Found(
        instances=pad(stock.instances[rows], max_size, max_agents),
        solutions=solutions,
        needs_wait=stock.needs_wait[rows],
    )

"""Boards of a configuration out of a stock that was solved beforehand, in milliseconds; generates none.

With four and five agents the generator takes tens of milliseconds a board, and minutes for a configuration that wants
many waits: too long for a learner whose whole round takes a second.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlake.config import LakeConfig, counts
from jaxlake.fixed_sets import POOLS, Benchmark, load
from jaxlake.generate.candidates import Shape
from jaxlake.generate.dataset import GAPS, Dataset, KindReport
from jaxlake.kinds import Family, Kind
from jaxlake.record import Array
from jaxlake.types import ABSENT, Instance, Plan, Solution, Status

HELD_OUT = 4
"""One board in so many of each kind and density is for validation, the others are for training."""


class _Cell(NamedTuple):
    """The boards of a kind at one density.

    Attributes:
      stock: that they are in.
      rows: int ``[n]``, their places in it.
      account: how they came about, as the manifest has it.
    """

    stock: Benchmark
    rows: np.ndarray
    account: dict[str, Any]


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
      config: the ratios.
      key: the result depends on config, key, count and what follows alone.
      count: boards in all.
      validation: draw from the quarter that is kept for validation instead of the rest.
      max_size: side of the padded board, the largest of the config's kinds by default.
      max_agents: agent slots, the most of the config's kinds by default.

    Returns:
      The boards with the costs of their solutions; the plans are left empty.

    Raises:
      ValueError: for a kind of which the stock has no board.
    """
    max_size = max_size or max(kind.size for kind in config.kinds)
    max_agents = max_agents or max(kind.num_agents for kind in config.kinds)
    parts, report = [], []
    for index, (kind, wanted) in enumerate(zip(config.kinds, counts(config, count), strict=True)):
        cell = _nearest(kind, config.hole[index])
        rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, index))))
        waits = math.floor(config.wait[index] * wanted + 0.5)
        rows, repeated = _rows(cell, wanted, waits, validation, rng)
        parts.append(_cut(cell.stock, rows, max_size, max_agents))
        report.append(_reported(kind, cell, parts[-1], wanted, waits, repeated))
    instances, needs_wait, cost, lower_bound = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, len(config.kinds)), count))
    empty = Plan(
        parsable=np.zeros(count, bool),
        num_named=np.zeros(count, np.int32),
        paths=np.full((count, max_agents, 1), ABSENT, np.int32),
        lengths=np.zeros((count, max_agents), np.int32),
    )
    solutions = Solution(
        status=np.full(count, Status.SOLVED, np.int32),
        plan=empty,
        cost=cost[order],
        lower_bound=lower_bound[order],
        expansions=np.zeros(count, np.int32),
    )
    kinds = np.repeat([entry.kind for entry in report], [entry.realised for entry in report])
    return Dataset(instances[order], solutions, needs_wait[order], kinds[order], tuple(report))


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
                found[kind, ratio] = _Cell(stock, rows, account)
    return found


def _nearest(kind: Kind, density: float) -> _Cell:
    ratios = [ratio for other, ratio in _cells() if other == kind]
    if not ratios:
        raise ValueError(f"{kind.words}: the stock has no such boards; jaxlake.generate makes them")
    return _cells()[kind, min(ratios, key=lambda ratio: (abs(ratio - density), ratio))]


def _rows(cell: _Cell, wanted: int, waits: int, validation: bool, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Choose places in the stock, int ``[wanted]``, and say how many of them are repeats."""
    last = len(cell.rows) - len(cell.rows) // HELD_OUT
    rows = rng.permutation(cell.rows[last:] if validation else cell.rows[:last])
    needs = cell.stock.needs_wait[rows]
    with_wait, without = rows[needs][:waits], rows[~needs]
    chosen = np.concatenate([with_wait, without[: wanted - len(with_wait)]])
    spare = np.setdiff1d(rows, chosen)[: wanted - len(chosen)]
    chosen = np.concatenate([chosen, spare])
    return np.resize(chosen, wanted), wanted - len(chosen)


def _cut(
    stock: Benchmark, rows: np.ndarray, max_size: int, max_agents: int
) -> tuple[Instance, np.ndarray, np.ndarray, np.ndarray]:
    """Return boards of the stock, padded to another side and number of slots, and what is known of them."""
    boards, side = stock.instances[rows], stock.instances.max_size
    row, column = np.divmod(np.arange(max_size * max_size), max_size)

    def cells(ends: Array) -> np.ndarray:
        padded = np.pad(ends, ((0, 0), (0, max(0, max_agents - ends.shape[1]))), constant_values=ABSENT)[:, :max_agents]
        return np.where(padded == ABSENT, ABSENT, padded // side * max_size + padded % side).astype(np.int32)

    instances = Instance(
        size=boards.size,
        num_agents=boards.num_agents,
        holes=np.asarray(boards.holes)[:, row * side + column],
        starts=cells(np.asarray(boards.starts)),
        goals=cells(np.asarray(boards.goals)),
    )
    return instances, stock.needs_wait[rows], stock.optimum[rows], stock.lower_bound[rows]


def _reported(kind: Kind, cell: _Cell, part: Any, wanted: int, waits: int, repeated: int) -> KindReport:
    instances, needs_wait, cost, lower_bound = part
    account = cell.account
    searched = account["candidates"] - account["known"]
    gaps = np.minimum(cost - lower_bound, len(GAPS) - 1)
    ratio, is_random = account["hole_ratio"], kind.family is Family.RANDOM
    free = kind.size**2 - 2 * kind.num_agents
    holes = (
        Shape(kind, ratio, 0, 0).holes if is_random else float(instances.holes.sum(axis=1).mean()) if wanted else 0.0
    )
    return KindReport(
        kind=kind,
        requested=wanted,
        realised=wanted,
        requested_waits=waits,
        realised_waits=int(needs_wait.sum()),
        requested_interacting=None,
        realised_interacting=int((needs_wait | (gaps > 0)).sum()),
        repeated=repeated,
        gaps=tuple(np.bincount(gaps, minlength=len(GAPS)).tolist()),
        holes=holes,
        hole_ratio=(holes / free if free else 0.0) if is_random else ratio,
        candidates=account["candidates"],
        known=account["known"],
        solvable=account["solved"] / searched if searched else 0.0,
        undecided=len(account["undecided"]),
    )

"""Instances to a config's quotas, each with its optimal plan; a quota that cannot be met is lowered and reported."""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.config import LakeConfig, counts
from jaxlake.solve import solve, without_waiting
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Objective, Solution, Status

_BATCH = 1024
_LARGEST_BATCH = 8192  # Large enough that the few hard instances of a batch fill the lanes of the solver's last stages.
_CANDIDATES = (4096, 100)  # At least, and per instance wanted: 0.8 % of open 10x10 boards make somebody wait.


@dataclasses.dataclass(frozen=True)
class SizeReport:
    """What was asked for and what was found for one board size.

    Attributes:
      size: board side.
      requested, realised: number of instances.
      requested_waits, realised_waits: number of them in which every optimal plan waits.
      holes: holes per board.
      hole_ratio: the same as a share of the cells that are neither start nor goal.
      candidates: random boards tried.
      solvable: share of the different candidates searched that have a plan, 0 if none was tried.
      undecided: candidates dropped because a search ran out of its budget.
    """

    size: int
    requested: int
    realised: int
    requested_waits: int
    realised_waits: int
    holes: int
    hole_ratio: float
    candidates: int
    solvable: float
    undecided: int


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Solved instances in random order; numpy arrays.

    Attributes:
      instances: ``[count]``.
      solutions: ``[count]``, all ``SOLVED``.
      needs_wait: bool ``[count]``, every optimal plan contains a wait before an arrival.
      report: one entry per size of the config.
    """

    instances: Instance
    solutions: Solution
    needs_wait: np.ndarray
    report: tuple[SizeReport, ...]

    def realised(self) -> dict[str, dict[str, float]]:
        """The config as measured, in the form of ``LakeConfig.to_dict``; 0 waits for a size without instances."""
        total = sum(entry.realised for entry in self.report)
        return {
            str(entry.size): {
                "data": entry.realised / total,
                "hole": entry.hole_ratio,
                "wait": entry.realised_waits / max(entry.realised, 1),
            }
            for entry in self.report
        }


def generate(
    config: LakeConfig,
    key: jax.Array,
    count: int,
    *,
    num_agents: int = 2,
    max_size: int | None = None,
    max_agents: int | None = None,
    max_steps: int = MAX_STEPS,
    objective: Objective = Objective.SUM_OF_COSTS,
    exclude: Instance | None = None,
) -> Dataset:
    """Draws random boards until every size has its instances, of which its share needs a wait.

    A board of side N has ``floor(hole * (N**2 - 2 * num_agents))`` holes; starts and goals are on different cells, all
    ``2 * num_agents`` of them. Boards whose agents cannot all arrive, that occurred before or that are in ``exclude``
    are dropped. If a size's candidate budget ends before its wait quota is reached, instances without a wait take the
    missing places; if it does not have enough different instances at all, those found are repeated.

    Args:
      config: the ratios.
      key: the result depends on config, key, count and the numbers below alone.
      count: instances in all.
      num_agents: agents on every board.
      max_size: side of the padded board, the largest of the config's sizes by default.
      max_agents: agent slots, ``num_agents`` by default.
      max_steps: horizon of the solver and length of the plans less one.
      objective: what the plans minimise, and with respect to which an instance needs a wait.
      exclude: ``[n]`` instances of any padding that must not occur, such as a validation set.

    Raises:
      ValueError: if the agents do not fit a board, or no solvable board is found for a size.
    """
    max_size = max(config.sizes) if max_size is None else max_size
    max_agents = num_agents if max_agents is None else max_agents
    if count < 1:
        raise ValueError(f"count is {count}: at least 1 instance is needed")
    if 2 * num_agents > config.sizes[0] ** 2:
        raise ValueError(f"{num_agents} agents do not fit a board of size {config.sizes[0]}")
    if max_size < config.sizes[-1] or max_agents < num_agents:
        raise ValueError(
            f"size {config.sizes[-1]} with {num_agents} agents exceeds max_size {max_size}, max_agents {max_agents}"
        )
    excluded = frozenset() if exclude is None else frozenset(_fingerprints(exclude))
    found: list[_Found] = []
    report: list[SizeReport] = []
    for index, (size, requested) in enumerate(zip(config.sizes, counts(config, count), strict=True)):
        shape = _Shape(size, num_agents, max_size, max_agents, max_steps, objective)
        part, entry = _fill(
            shape, jax.random.fold_in(key, size), requested, config.hole[index], config.wait[index], excluded
        )
        found.extend([part] if requested else [])
        report.append(entry)
    together = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), count))
    shuffled = jax.tree.map(lambda part: part[order], together)
    return Dataset(shuffled.instances, shuffled.solutions, shuffled.needs_wait, tuple(report))


class _Shape(NamedTuple):
    size: int
    num_agents: int
    max_size: int
    max_agents: int
    max_steps: int
    objective: Objective


class _Found(NamedTuple):
    """Solved candidates ``[n]`` in the order of their numbers."""

    instances: Instance
    solutions: Solution
    needs_wait: np.ndarray


def _fill(
    shape: _Shape, key: jax.Array, requested: int, hole: float, wait: float, excluded: frozenset[bytes]
) -> tuple[_Found | None, SizeReport]:
    free = shape.size**2 - 2 * shape.num_agents
    holes = math.floor(hole * free + 1e-6)
    waits = math.floor(wait * requested + 0.5)
    entry = SizeReport(shape.size, requested, requested, waits, 0, holes, holes / free if free else 0.0, 0, 0.0, 0)
    if not requested:
        return None, entry
    budget = _CANDIDATES[0] + _CANDIDATES[1] * requested
    seen = set(excluded)
    parts: list[_Found] = []
    searched = solvable = undecided = waiting = moving = tried = 0
    lacking = requested
    while lacking and tried < budget:
        batch = min(-(-lacking // _BATCH) * _BATCH, _LARGEST_BATCH)
        candidates = _candidates(key, tried, batch, holes, shape)
        fresh = []
        for index, fingerprint in enumerate(_fingerprints(candidates)):
            if fingerprint not in seen:
                seen.add(fingerprint)
                fresh.append(index)
        part, statuses = _solve(jax.tree.map(lambda leaf, at=fresh: leaf[at], candidates), shape)
        parts.append(part)
        tried += batch
        searched += len(fresh)
        solvable += int(np.sum(statuses == Status.SOLVED))
        undecided += int(np.sum(statuses == Status.OUT_OF_BUDGET))
        waiting += int(np.sum(part.needs_wait))
        moving += int(np.sum(~part.needs_wait))
        # At the rates so far, this many more candidates fill both quotas.
        short = ((waits - waiting, waiting), (requested - waits - moving, moving))
        lacking = max(math.ceil(max(missing, 0) * tried / (had + 1)) for missing, had in short)
    found = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    chosen = _choose(found.needs_wait, requested, waits)
    if not len(chosen):
        raise ValueError(
            f"size {shape.size} at hole ratio {hole:g} has no solvable board with {shape.num_agents} agents among "
            f"{tried} candidates"
        )
    part = jax.tree.map(lambda leaf: leaf[chosen], found)
    entry = dataclasses.replace(
        entry,
        realised_waits=int(np.sum(part.needs_wait)),
        candidates=tried,
        solvable=solvable / max(searched, 1),
        undecided=undecided,
    )
    return part, entry


def _choose(needs_wait: np.ndarray, requested: int, waits: int) -> np.ndarray:
    """Indices of the instances that are kept: the first of either kind, repeated where there are too few."""
    waiters, movers = np.flatnonzero(needs_wait), np.flatnonzero(~needs_wait)
    if not len(movers):
        return np.resize(waiters, requested if len(waiters) else 0)
    waiters = waiters[:waits]
    return np.concatenate([waiters, np.resize(movers, requested - len(waiters))])


def _solve(candidates: Instance, shape: _Shape) -> tuple[_Found, np.ndarray]:
    """The solvable ones with their plans, and every candidate's ``Status`` int32 ``[n]``."""
    solutions = solve(candidates, shape.objective, shape.max_steps)
    without = without_waiting(candidates, solutions, shape.objective)
    statuses = np.where(without == Status.OUT_OF_BUDGET, Status.OUT_OF_BUDGET, solutions.status)
    kept = np.flatnonzero(statuses == Status.SOLVED)
    instances, solutions = jax.tree.map(lambda leaf: leaf[kept], (candidates, solutions))
    return _Found(instances, solutions, without[kept] == Status.UNSOLVABLE), statuses


def _candidates(key: jax.Array, first: int, count: int, holes: int, shape: _Shape) -> Instance:
    """Candidates number ``first`` to ``first + count - 1`` of a size in numpy; ``count`` is a multiple of 1,024."""
    parts = [
        _draw(key, number + jnp.arange(_BATCH), shape.size, holes, shape.num_agents, shape.max_size, shape.max_agents)
        for number in range(first, first + count, _BATCH)
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@functools.partial(jax.jit, static_argnames=("num_agents", "max_size", "max_agents"))
def _draw(
    key: jax.Array, numbers: jax.Array, size: int, holes: int, num_agents: int, max_size: int, max_agents: int
) -> Instance:
    """One random board per number: a random order of its cells gives starts, then goals, then holes."""
    row, column = jnp.divmod(jnp.arange(max_size * max_size), max_size)
    on_board = (row < size) & (column < size)

    def one(number: jax.Array) -> Instance:
        bits = jax.random.bits(jax.random.fold_in(key, number), (max_size * max_size,), jnp.uint32)
        order = jnp.argsort(jnp.where(on_board, bits >> 1, jnp.uint32(1 << 31))).astype(jnp.int32)
        place = jnp.argsort(order)
        slot = jnp.arange(max_agents)
        return Instance(
            size=jnp.int32(size),
            num_agents=jnp.int32(num_agents),
            holes=(place >= 2 * num_agents) & (place < 2 * num_agents + holes),
            starts=jnp.where(slot < num_agents, order[:max_agents], ABSENT),
            goals=jnp.where(slot < num_agents, order[num_agents + slot], ABSENT),
        )

    return jax.vmap(one)(numbers)


def _fingerprints(instances: Instance) -> list[bytes]:
    """Equal for equal instances, however they are padded."""
    batch, max_size, max_agents = len(instances.size), instances.max_size, instances.max_agents
    holes = np.zeros((batch, MAX_SIZE, MAX_SIZE), bool)
    holes[:, :max_size, :max_size] = np.asarray(instances.holes).reshape(batch, max_size, max_size)
    ends = np.full((batch, 2, MAX_AGENTS), ABSENT, np.int8)
    for slot, cells in enumerate((instances.starts, instances.goals)):
        row, column = np.divmod(np.asarray(cells), max_size)
        ends[:, slot, :max_agents] = np.where(np.asarray(cells) == ABSENT, ABSENT, row * MAX_SIZE + column)
    head = np.asarray(instances.size).astype(np.uint8)[:, None]
    packed = np.packbits(holes.reshape(batch, -1), axis=1)
    rows = np.concatenate([head, packed, ends.reshape(batch, -1).view(np.uint8)], axis=1)
    return [row.tobytes() for row in rows]

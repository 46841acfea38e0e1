"""Costs of the best completion of a partly written plan, for every beginning of every agent's path; finds no plans.

For credit to the tokens of a plan that is written agent by agent and cell by cell: a cell after which the best
completion costs more was a mistake, and by how much. Arrays have their lanes last, a lane per plan: so a CPU
vectorises over them what shifts a board by a cell.
"""

import itertools
from typing import TypeAlias

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.flood import free_cells
from jaxlake.levels import batch_axes
from jaxlake.record import Array, Record, record, vary_alike
from jaxlake.solve.joint import INFINITE, joint_values
from jaxlake.types import OUTSIDE, STEPS, Instance, Plan

_FAR = np.uint16(60_000)
"""Above every finite cost, and far enough from the largest number to add a step's cost."""

_MOVES = STEPS[:4]
_Arrays: TypeAlias = tuple[jax.Array, ...]


def completion_costs(instances: Instance, plans: Plan) -> jax.Array:
    """Return the least sum of costs of the valid plans that begin as the given ones do, for every beginning.

    A beginning is that of a text that writes one agent after the other: agents 0 to ``a - 1`` walk exactly the paths of
    the plan, each of which must end on its goal, and rest there ever after; agent ``a``'s path begins with its first
    ``t`` written cells, start included, and goes on or ends there; the agents after it are free. Costs and conflicts
    are those of ``verify``. What is free may take as long as it needs, whatever the number of steps of the plans.

    The entry is exact

    - where at most one agent is not fixed: for the last agent, and for the whole plan;
    - for boards of one or two agents.

    Everywhere else, so with three or more agents of which two or more are not fixed, it is a lower bound: the cost of
    the fixed agents, and the larger of two numbers. One is the sum of what the others cost alone, each on its own among
    the fixed agents. The other is the largest, over the pairs of the others, of what the two cost together without any
    other agent, fixed ones included, and the rest of them alone. Where the bound is ``INFINITE`` there is no such plan;
    where it is finite there may be none either.

    Args:
      instances: ``[boards]``, up to 10x10.
      plans: ``[boards, plans]``, of any number of steps; only ``paths`` and ``lengths`` are read, those of agents from
        ``num_agents`` on are not.

    Returns:
      int32 ``[boards, plans, agents + 1, steps + 2]`` by ``a`` and ``t``. ``INFINITE`` where no valid plan begins so,
      and where the agent's path has fewer than ``t`` cells. The rows from ``num_agents`` on hold the cost of the whole
      plan at ``t = 0``, and ``INFINITE`` elsewhere.
    """
    (boards,), agents = batch_axes(instances), instances.max_agents
    chex.assert_shape([plans.paths, plans.lengths], [(boards, None, agents, None), (boards, None, agents)])
    costs: jax.Array = _completion_costs(instances, plans.paths, plans.lengths)
    return costs


@record
class _Written(Record):
    """The paths as they are walked, and what they are worth up to a time.

    Attributes:
      cells: int16 ``[steps + 1, agents, lanes]``, resting on the last cell; ``OUTSIDE`` off the padded board.
      valid: bool ``[steps + 1, agents, lanes]``, the path has broken no rule so far, among those of earlier agents.
      arrivals: int32 ``[steps + 1, agents, lanes]``, since when the agent has rested on its goal; ``_FAR`` if it is
        elsewhere.
      costs: int32 ``[agents, lanes]`` of whole paths; ``_FAR`` for one that is wrong, empty or ends elsewhere.
    """

    cells: Array
    valid: Array
    arrivals: Array
    costs: Array


@jax.jit
def _completion_costs(instances: Instance, paths: Array, lengths: Array) -> jax.Array:
    boards, plans, agents, times = paths.shape
    lanes = boards * plans
    instances, paths, lengths = vary_alike((instances, paths, lengths))
    paths = jnp.moveaxis(jnp.asarray(paths).reshape(lanes, agents, times), 0, -1).swapaxes(0, 1)
    lengths = jnp.asarray(lengths).reshape(lanes, agents).T.astype(jnp.int32)
    starts, goals = (
        jnp.repeat(jnp.asarray(ends).astype(jnp.int16).T, plans, axis=-1)
        for ends in (instances.starts, instances.goals)
    )
    num_agents = jnp.repeat(jnp.asarray(instances.num_agents).astype(jnp.int32), plans)
    free = jnp.repeat(jnp.moveaxis(free_cells(instances), 0, -1), plans, axis=-1)

    written = _written(free, starts, goals, paths, lengths)
    own, alone = _alone(free, starts, goals, written)
    together, from_starts = _together(instances, free, starts, goals, written)

    present = jnp.arange(agents, dtype=jnp.int32)[:, None] < num_agents
    paid = jnp.cumsum(jnp.where(present, written.costs, 0), axis=0, dtype=jnp.int32)
    begun = written.valid & (jnp.arange(times, dtype=jnp.int32)[:, None, None] < lengths)
    whole = jnp.full((times + 1, lanes), int(_FAR), jnp.int32).at[0].set(paid[-1])
    rows = []
    for agent in range(agents):
        # The first column is the beginning without a cell, which is at the start without having named it.
        first = jnp.concatenate([alone[agent, agent][None], jnp.where(begun[:, agent], own[:, agent], _FAR)])
        costs = {k: jnp.where(present[k], alone[agent, k], 0)[None] for k in range(agent + 1, agents)} | {agent: first}
        least = sum(costs.values())
        for i, j in itertools.combinations(range(agent, agents), 2):
            pair = from_starts[i, j][None]
            if i == agent:
                pair = jnp.concatenate([pair, together[i, j]])
            others = sum(cost for k, cost in costs.items() if k not in (i, j))
            least = jnp.maximum(least, jnp.where(present[j], pair + others, 0))
        if agent:
            least += paid[agent - 1]
        rows.append(jnp.where(present[agent], least, whole))
    found = jnp.moveaxis(jnp.stack([*rows, whole]), -1, 0)
    return jnp.where(found < _FAR, found, INFINITE).astype(jnp.int32).reshape(boards, plans, agents + 1, times + 1)


def _written(free: Array, starts: Array, goals: Array, paths: Array, lengths: Array) -> _Written:
    """Follow the written paths.

    Args:
      free: bool ``[size, size, lanes]``.
      starts, goals: int16 ``[agents, lanes]``.
      paths: ``[steps + 1, agents, lanes]``.
      lengths: int32 ``[agents, lanes]``.
    """
    size, (times, agents) = free.shape[0], paths.shape[:2]
    time = jnp.arange(times, dtype=jnp.int32)[:, None, None]
    last = jnp.take_along_axis(paths, jnp.clip(lengths - 1, 0, times - 1)[None], axis=0)
    cells = jnp.where(time < lengths, paths, last)
    cells = jnp.where((cells >= 0) & (cells < size**2), cells, OUTSIDE).astype(jnp.int16)
    at = jnp.maximum(cells, 0).astype(jnp.int32)
    on_free = jnp.take_along_axis(free.reshape(size * size, -1), at.reshape(times * agents, -1), axis=0)

    valid = (cells >= 0) & on_free.reshape(cells.shape)
    valid = valid.at[0].set(valid[0] & (cells[0] == starts))
    row, column = jnp.divmod(at, size)
    valid = valid.at[1:].set(valid[1:] & (abs(row[1:] - row[:-1]) + abs(column[1:] - column[:-1]) <= 1))
    for i, j in itertools.combinations(range(agents), 2):
        swap = (cells[1:, i] == cells[:-1, j]) & (cells[:-1, i] == cells[1:, j])
        conflict = (cells[:, i] == cells[:, j]).at[1:].max(swap)
        valid = valid.at[:, j].set(valid[:, j] & ~conflict)
    valid = jax.lax.cummin(valid.astype(jnp.int8)).astype(bool)

    away = cells != goals
    arrivals = jax.lax.cummax(jnp.where(away, time + 1, 0))
    arrivals = jnp.where(away, _FAR, arrivals).astype(jnp.int32)
    costs = jnp.where(valid[-1] & (lengths > 0) & (lengths <= times), arrivals[-1], _FAR).astype(jnp.int32)
    return _Written(cells=cells, valid=valid, arrivals=arrivals, costs=costs)


def _alone(
    free: Array, starts: Array, goals: Array, written: _Written
) -> tuple[jax.Array, dict[tuple[int, int], jax.Array]]:
    """Return what single agents cost at least that mind those written before.

    Backwards in time over a table of costs-to-go per number ``a`` of fixed agents and agent from ``a`` on. After the
    last written step all of the fixed agents rest, so there the tables are those of shortest paths around their goals.

    Returns:
      int32 ``[steps + 1, agents, lanes]``, each agent with the earlier ones fixed, and its own path up to the time; and
      int32 ``[lanes]`` by ``(a, agent)`` from the start.
    """
    size, (agents, lanes) = free.shape[0], starts.shape
    cell = jnp.arange(size * size, dtype=jnp.int16).reshape(size, size, 1, 1)
    home = cell == goals
    offsets = [down * size + right for down, right in _MOVES]

    def earlier(tables: _Arrays, may_rest: _Arrays, before: Array, after: Array) -> tuple[_Arrays, _Arrays]:
        """Return the tables a step before, with the written agents on the cells int16 ``[agents, lanes]``."""
        new_tables, new_rests = [], []
        blocked, crossed = ~free[:, :, None], [jnp.zeros((size, size, 1, lanes), bool)] * len(offsets)
        for fixed, (table, rest) in enumerate(zip(tables, may_rest, strict=True)):
            if fixed:
                there, here = before[fixed - 1], after[fixed - 1]
                blocked |= cell == there
                crossed = [
                    ban | (cell == jnp.where(there - here == offset, here, np.int16(OUTSIDE)))
                    for ban, offset in zip(crossed, offsets, strict=True)
                ]
            for other in range(fixed):
                rest &= goals[fixed:] != before[other]
            best = table
            for ban, ahead in zip(crossed, _neighbours(table, _FAR), strict=True):
                best = jnp.minimum(best, jnp.where(ban, _FAR, ahead))
            best = jnp.minimum(best + np.uint16(1), _FAR)
            best = jnp.where(home[:, :, fixed:] & rest, np.uint16(0), best)
            new_tables.append(jnp.where(blocked, _FAR, best))
            new_rests.append(rest)
        return tuple(new_tables), tuple(new_rests)

    def resting(carry: tuple[_Arrays, _Arrays, jax.Array]) -> tuple[_Arrays, _Arrays, jax.Array]:
        tables, may_rest, _ = carry
        new_tables, may_rest = earlier(tables, may_rest, written.cells[-1], written.cells[-1])
        changed = [jnp.any(new != old) for new, old in zip(new_tables, tables, strict=True)]
        return new_tables, may_rest, jnp.any(jnp.stack(changed))

    def of_path(tables: _Arrays, may_rest: _Arrays, at: Array) -> tuple[jax.Array, jax.Array]:
        own = [_at(table[:, :, 0], place) for table, place in zip(tables, at, strict=True)]
        return jnp.stack(own), jnp.stack([rest[0] for rest in may_rest])

    def step(carry: tuple[_Arrays, _Arrays], cells: tuple[Array, Array]) -> tuple[tuple[_Arrays, _Arrays], _Arrays]:
        tables, may_rest = earlier(*carry, *cells)
        return (tables, may_rest), of_path(tables, may_rest, cells[0])

    tables = tuple(jnp.full((size, size, agents - fixed, lanes), _FAR) for fixed in range(agents))
    may_rest = tuple(jnp.ones((agents - fixed, lanes), bool) for fixed in range(agents))
    _, begin = vary_alike((goals, (tables, may_rest, jnp.bool_(True))))
    tables, may_rest, _ = jax.lax.while_loop(lambda carry: carry[2], resting, begin)
    last = of_path(tables, may_rest, written.cells[-1])
    (tables, _), found = jax.lax.scan(step, (tables, may_rest), (written.cells[:-1], written.cells[1:]), reverse=True)
    values, rests = (jnp.concatenate([part, end[None]]) for part, end in zip(found, last, strict=True))
    time = jnp.arange(len(values), dtype=jnp.int32)[:, None, None]
    own = jnp.minimum(time + values.astype(jnp.int32), jnp.where(rests, written.arrivals, _FAR))
    alone = {
        (fixed, agent): _at(tables[fixed][:, :, agent - fixed], starts[agent]).astype(jnp.int32)
        for fixed in range(agents)
        for agent in range(fixed, agents)
    }
    return own, alone


def _together(
    instances: Instance, free: Array, starts: Array, goals: Array, written: _Written
) -> tuple[dict[tuple[int, int], jax.Array], dict[tuple[int, int], jax.Array]]:
    """Return a lower bound on the joint cost of two agents, with all others ignored.

    Forwards in time along the first agent's path, with the cells where the second can be by then, each at the cost of
    the time, and the cost at which it can have parked. ``joint_values`` knows what is to come.

    Returns:
      By ``(first, second)`` agent int32 ``[steps + 1, lanes]``, the first on its path up to the time; and int32
      ``[lanes]`` from their starts.
    """
    size, (agents, lanes) = free.shape[0], starts.shape
    pairs = list(itertools.combinations(range(agents), 2))
    if not pairs:
        return {}, {}
    boards, cells, count = instances.size.shape[0], size * size, len(pairs)
    first, second = np.array(pairs, np.int32).T
    of_pairs = Instance(
        size=jnp.repeat(instances.size, count),
        num_agents=jnp.full(boards * count, 2, jnp.int32),
        holes=jnp.repeat(instances.holes, count, axis=0),
        starts=jnp.asarray(instances.starts)[:, np.array(pairs)].reshape(-1, 2),
        goals=jnp.asarray(instances.goals)[:, np.array(pairs)].reshape(-1, 2),
    )
    values = joint_values(of_pairs, 2).values
    board = jnp.arange(lanes, dtype=jnp.int32) // (lanes // boards)
    table = board * count + jnp.arange(count, dtype=jnp.int32)[:, None]
    by_place = values.reshape(-1, cells + 1)

    def rows(places: Array) -> jax.Array:
        """uint16 ``[pairs, lanes, places]`` over the second agent's places, for the first one's."""
        at = jnp.clip(places.astype(jnp.int32), 0, cells)
        return jnp.take(by_place, table * (cells + 1) + at, axis=0, mode="clip")

    cell = jnp.arange(cells, dtype=jnp.int16).reshape(size, size, 1, 1)
    goal = goals[second]
    if_parked = jnp.moveaxis(rows(jnp.full((count, lanes), cells, jnp.int32))[..., :cells], -1, 0)
    if_parked = if_parked.reshape(size, size, count, lanes)

    def step(
        carry: tuple[jax.Array, jax.Array], now: tuple[Array, ...]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        reached, parked = carry
        here, there, arrival, time = now
        ahead = rows(here)
        moving = jnp.where(jnp.moveaxis(reached.reshape(cells, count, lanes), 0, -1), ahead[..., :cells], _FAR)
        alike = jnp.min(jnp.where(reached, if_parked, _FAR), axis=(0, 1)).astype(jnp.int32)
        best = 2 * time + jnp.min(moving, axis=-1).astype(jnp.int32)
        best = jnp.minimum(best, time + parked + ahead[..., cells].astype(jnp.int32))
        best = jnp.minimum(best, arrival + jnp.minimum(time + alike, parked))

        spread = reached
        for (down, right), behind in zip(_MOVES, _neighbours(reached, False), strict=True):
            crossing = here - there == np.int16(-down * size - right)
            spread |= behind & (cell != jnp.where(crossing, here, np.int16(OUTSIDE)))
        reached = spread & free[:, :, None] & (cell != there)
        at_goal = jnp.any(reached & (cell == goal), axis=(0, 1))
        parked = jnp.where(there == goal, _FAR, parked)
        return (reached, jnp.minimum(parked, jnp.where(at_goal, time + 1, _FAR)).astype(jnp.int32)), best

    reached = (cell == starts[second]) & free[:, :, None]
    parked = jnp.where(starts[second] == goal, 0, _FAR).astype(jnp.int32)
    path = written.cells[:, first]
    time = jnp.arange(len(path), dtype=jnp.int32)
    following = jnp.concatenate([path[1:], path[-1:]])
    _, found = jax.lax.scan(step, (reached, parked), (path, following, written.arrivals[:, first], time))
    initial = rows(starts[first])
    at_start = jnp.clip(starts[second], 0, cells).astype(jnp.int32)[..., None]
    initial = jnp.take_along_axis(initial, at_start, axis=-1)[..., 0].astype(jnp.int32)
    return (
        {pair: found[:, number] for number, pair in enumerate(pairs)},
        {pair: initial[number] for number, pair in enumerate(pairs)},
    )


def _neighbours(table: Array, beyond: np.uint16 | bool) -> list[jax.Array]:
    """Return the values of ``[size, size, ..., lanes]`` a cell UP, DOWN, LEFT and RIGHT of each cell."""
    size = table.shape[0]
    wide = jnp.pad(table, [(1, 1), (1, 1)] + [(0, 0)] * (table.ndim - 2), constant_values=beyond)
    return [wide[1 + down : 1 + down + size, 1 + right : 1 + right + size] for down, right in _MOVES]


def _at(table: Array, place: Array) -> jax.Array:
    """Return the values of uint16 ``[size, size, lanes]`` at cells int16 ``[lanes]``, ``_FAR`` off the board."""
    cell = jnp.arange(table.shape[0] ** 2, dtype=jnp.int16).reshape(*table.shape[:2], 1)
    return jnp.min(jnp.where(cell == place, table, _FAR), axis=(0, 1))

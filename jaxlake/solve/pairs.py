"""Exact optimal plans for two agents, a batch in lock step, without a node budget; more agents stay undecided.

Until one of them parks, both agents pay for every step. So a breadth-first search over joint positions by time finds
the cheapest way to each of them, and once an agent parks on its goal for good, what remains for the other one is a
shortest path around that goal. The optimum is the least sum of the two over all joint positions with one agent on its
goal. Sets of joint positions are bitboards (``pair_reach``), and no step of the search depends on the horizon.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, Record, record
from jaxlake.solve import pair_reach as reach
from jaxlake.types import ABSENT, STEPS, Instance, Objective, Plan, Solution, Status

_STRAGGLERS = 8
"""The search of a group stops when one in so many lanes is left; the left-overs of all groups run on together."""

_FAR = np.uint8(200)
"""A distance above every distance that ends in no path."""

_CELL_BITS = 7
_NO_CELL = np.uint16(65535)


@record
class _Problem(Record):
    """The instances lane-minor.

    Attributes:
      free: bool ``[max_size, max_size, lanes]``.
      starts, goals: int32 ``[2, lanes]``, 0 for an agent that is not there.
      num_agents, cost_bound: int32 ``[lanes]``.
      may_wait: bool ``[]``.
    """

    free: Array
    starts: Array
    goals: Array
    num_agents: Array
    cost_bound: Array
    may_wait: Array


@record
class _Parking(Record):
    """The best first parking found so far, int32 ``[lanes]``.

    Attributes:
      key: twice the cost of the whole plan, plus 1 if it is longer than the horizon.
      time: when the first agent parks.
      agent: number of the agent.
      other: the cell of the other one at that time.
    """

    key: Array
    time: Array
    agent: Array
    other: Array


@functools.partial(jax.jit, static_argnames=("max_steps", "objective"))
def search_pairs(
    instances: Instance, cost_bound: Array, may_wait: Array, max_steps: int, objective: Objective
) -> Solution:
    """Optimal plans of at most a given cost, for at most two agents.

    ``UNSOLVABLE`` is always proved. ``OUT_OF_BUDGET`` says that there is a plan within the cost bound and that every
    optimal one is longer than the horizon, or that the instance has more than two agents. ``lower_bound`` is the cost
    of the shortest paths, whatever the cost bound and the horizon; ``expansions`` counts the time steps searched, each
    over all joint positions at once and a multiple of three. A lane's result depends on that lane alone.

    Args:
      instances: ``[batch]`` of sides up to 10; one without agents is padding and solved at once.
      cost_bound: int32 ``[batch]``, ``tree.UNBOUNDED`` for none.
      may_wait: bool ``[]``, whether agents may wait before their last arrival.
    """
    batch = instances.size.shape[0]
    # Searched together: as many as have their sets, 0.6 MiB at 10x10, in a core's cache.
    lanes = min(64 if instances.max_size > 8 else 256, batch)
    lacking = -batch % lanes

    def padded(part: Array, value: int) -> jax.Array:
        return jnp.pad(part, ((0, lacking),) + ((0, 0),) * (part.ndim - 1), constant_values=value)

    def pair(ends: Array) -> jax.Array:
        return padded(jnp.pad(ends, ((0, 0), (0, 2)), constant_values=ABSENT)[:, :2], ABSENT)

    size, starts, goals = padded(instances.size, 0), pair(instances.starts), pair(instances.goals)
    counts, bounds = padded(instances.num_agents, 0), padded(jnp.broadcast_to(cost_bound, (batch,)), 0)
    asked = (size, padded(instances.holes, False), starts, goals, counts, bounds)

    def near(group: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        alone, rest = _distances(_problem(may_wait, *group))
        return alone.T, rest.reshape(-1, lanes).T

    grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, lanes, *leaf.shape[1:]), asked)
    distances = jax.lax.map(near, grouped)
    alone, rest = jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[2]), distances)
    # Instances that take about as long are searched together, and first those that have nothing to search.
    order = _argsort(jnp.where(jnp.all(alone < _FAR, axis=1), jnp.min(alone, axis=1), np.uint8(0)))
    groups = len(order) // lanes

    def next_group(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        number, done, results = carry
        first_pass = number < groups
        group = jax.lax.cond(
            first_pass,
            lambda: jax.lax.dynamic_slice(order, (number * lanes,), (lanes,)),
            lambda: _argsort(done)[:lanes],
        )
        problem = _problem(may_wait, *(jnp.take(leaf, group, axis=0) for leaf in asked))
        maps = alone[group].T, rest[group].T.reshape(2, instances.max_size, instances.max_size, lanes)
        leave = jnp.where(first_pass, np.int32(lanes // _STRAGGLERS), np.int32(0))
        decided, found = _search(problem, *maps, max_steps, objective, leave)
        results = jax.tree.map(lambda whole, part: whole.at[group].set(part), results, found)
        return number + 1, done.at[group].set(decided), results

    size = len(order)
    numbers = jnp.zeros(size, jnp.int32)
    paths = jnp.zeros((size, 2, max_steps + 1), jnp.int8)
    results = (numbers, numbers, numbers, numbers, jnp.zeros((size, 2), jnp.int32), paths)
    _, _, results = jax.lax.while_loop(
        lambda carry: ~jnp.all(carry[1]), next_group, (jnp.int32(0), jnp.zeros(size, bool), results)
    )
    status, cost, lower_bound, steps, lengths, paths = jax.tree.map(lambda leaf: leaf[:batch], results)
    missing = ((0, 0), (0, max(instances.max_agents - 2, 0)))
    lengths = jnp.pad(lengths, missing)[:, : instances.max_agents]
    paths = jnp.pad(paths, (*missing, (0, 0)))[:, : instances.max_agents]
    named = jnp.arange(max_steps + 1, dtype=jnp.int32) < lengths[..., None]
    paths = jnp.where(named, paths, np.int8(ABSENT)).astype(jnp.int32)
    solved = status == Status.SOLVED
    plan = Plan(parsable=solved, num_named=jnp.where(solved, instances.num_agents, 0), paths=paths, lengths=lengths)
    return Solution(status=status, plan=plan, cost=cost, lower_bound=lower_bound, expansions=steps)


def _problem(
    may_wait: Array, size: Array, holes: Array, starts: Array, goals: Array, num_agents: Array, cost_bound: Array
) -> _Problem:
    max_size = math.isqrt(holes.shape[1])
    axis = jnp.arange(max_size, dtype=jnp.int32)
    on_board = (axis[:, None, None] < size) & (axis[:, None] < size)
    return _Problem(
        free=on_board & ~holes.T.reshape(max_size, max_size, -1),
        starts=jnp.maximum(starts, 0).T,
        goals=jnp.maximum(goals, 0).T,
        num_agents=num_agents,
        cost_bound=cost_bound,
        may_wait=may_wait,
    )


def _search(
    problem: _Problem, alone: Array, rest: Array, max_steps: int, objective: Objective, leave: Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Search until at most ``leave`` of the lanes, with the ``_distances``, are undecided.

    Returns:
      bool ``[lanes]``, decided; and of those that are the status, cost, lower bound, steps searched, all ``[lanes]``,
      lengths ``[lanes, 2]`` and paths int8 ``[lanes, 2, max_steps + 1]``.
    """
    size, _, lanes = problem.free.shape
    there = jnp.arange(2, dtype=jnp.int32)[:, None] < problem.num_agents
    both = problem.num_agents == 2
    connected = jnp.all((alone < _FAR) | ~there, axis=0)
    alone = jnp.where(there, alone, 0).astype(jnp.int32)
    costs = 2 if objective is Objective.SUM_OF_COSTS else 1
    total = functools.partial(jnp.sum, dtype=jnp.int32) if objective is Objective.SUM_OF_COSTS else jnp.max
    cell = np.arange(size * size, dtype=np.uint16).reshape(size, size, 1)
    # Distance and cell in one number, so that one minimum finds both.
    packed = jnp.where(rest < _FAR, (rest.astype(jnp.uint16) << _CELL_BITS) | cell, _NO_CELL)
    packed = jnp.pad(packed, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=_NO_CELL)

    def park(best: _Parking, times: Sequence[Array], sets: Sequence[jax.Array]) -> tuple[_Parking, jax.Array]:
        """Add the joint positions that were reached at three times; return also how much was reached at the first."""
        rows, boards, weight = reach.views(sets, problem.goals)
        bit = np.arange(size + 1).astype(rows.dtype)[:, None]
        last = [jnp.where((rows[:, row, None] >> bit) & 1 != 0, packed[1, row], _NO_CELL) for row in range(size)]
        first = [jnp.where(boards[:, row] != 0, packed[0, row], _NO_CELL) for row in range(size)]
        nearest = jnp.concatenate([functools.reduce(jnp.minimum, parts) for parts in (last, first)])
        nearest = functools.reduce(jnp.minimum, [nearest[:, column] for column in range(size)])
        for number, time in enumerate(times):
            for agent in range(2):
                best = improve(best, time, agent, nearest[3 * agent + number])
        return best, weight

    def improve(best: _Parking, time: Array | int, agent: int, nearest: Array) -> _Parking:
        """Return the best, given that the agent can park then with the other one ``nearest`` (packed) to its goal."""
        left = (nearest >> _CELL_BITS).astype(jnp.int32)
        key = 2 * (costs * time + left) + (time + left > max_steps)
        better = (nearest != _NO_CELL) & (key < best.key)
        other = (nearest & ((1 << _CELL_BITS) - 1)).astype(jnp.int32)
        new = best.replace(key=key, time=time, agent=agent, other=other)
        improved: _Parking = jax.tree.map(lambda value, known: jnp.where(better, value, known), new, best)
        return improved

    nothing = jnp.zeros(lanes, jnp.int32)
    best = _Parking(key=2 * (problem.cost_bound + 1), time=nothing, agent=nothing, other=nothing)
    # One agent alone is like two of which the other one has parked at time 0, outside the board.
    table = packed[:, :, :-1].reshape(2, size * size, lanes)
    at_start = [jnp.where(there[agent], _pick(table[agent], problem.starts[agent]), 0) for agent in range(2)]
    arrived = ~there | (problem.starts == problem.goals)
    for agent in range(2):
        best = improve(best, 0, agent, jnp.where(arrived[agent], at_start[1 - agent], _NO_CELL))

    start = reach.single(problem.starts, size)
    rules = reach.rules(problem.free, problem.may_wait)

    def is_open(best: _Parking, time: Array | int) -> jax.Array:
        """Return whether a plan in which no agent parks before that time can be better."""
        return both & connected & (2 * total(jnp.maximum(alone, time), axis=0) < best.key)

    def three_steps(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        time, sets, spread, best, is_active, weight, steps = carry
        sets = list(sets)
        for now in range(3):
            after = (now + 1) % 3
            sets[after], spread = reach.step(sets[now], sets[now - 1], sets[after], spread, rules)
        time += 3
        best, heavier = jax.lax.cond(
            time >= earliest, lambda: park(best, (time, time - 2, time - 1), sets), lambda: (best, weight)
        )
        steps += 3 * is_active
        # Where no joint position was first reached in the last of the steps, none ever will be.
        is_active &= ((heavier > weight) | (time < earliest)) & is_open(best, time + 1)
        return time, tuple(sets), spread, best, is_active, heavier, steps

    empty = reach.empty(size, lanes)
    sets = (start, empty, empty)
    is_active = is_open(best, 1)
    # Until an agent of some lane can be on its goal there is nothing to look at.
    earliest = jnp.min(jnp.where(is_active, jnp.min(alone, axis=0), max_steps))
    carry = (jnp.int32(0), sets, reach.scratch(size, lanes), best, is_active, nothing, nothing)
    _, sets, _, best, is_active, _, steps = jax.lax.while_loop(
        lambda carry: jnp.sum(carry[4], dtype=jnp.int32) > leave, three_steps, carry
    )

    found = best.key < 2 * (problem.cost_bound + 1)
    solved = found & (best.key % 2 == 0) & ~is_active & (problem.num_agents <= 2)
    undecided = (found & (best.key % 2 == 1)) | (problem.num_agents > 2)
    status = jnp.where(undecided, Status.OUT_OF_BUDGET, jnp.where(solved, Status.SOLVED, Status.UNSOLVABLE))
    paths, arrivals = _paths(problem, best, solved, sets, rest, max_steps)
    results = (
        status.astype(jnp.int32),
        jnp.where(solved, best.key // 2, ABSENT),
        jnp.where(connected & (problem.num_agents <= 2), total(alone, axis=0), ABSENT),
        steps,
        jnp.where(there & solved, arrivals + 1, 0).T,
        jnp.transpose(paths, (2, 1, 0)),
    )
    return ~is_active, results


def _paths(
    problem: _Problem, best: _Parking, solved: Array, sets: tuple[jax.Array, ...], rest: Array, max_steps: int
) -> tuple[jax.Array, jax.Array]:
    """int8 ``[max_steps + 1, 2, lanes]``, and the times of the last arrivals, int32 ``[2, lanes]``.

    Until the first parking back through the sets, after it along the distances; meaningless unless solved.
    """
    size, _, lanes = problem.free.shape
    agent = jnp.arange(2, dtype=jnp.int32)[:, None]
    parking = solved * best.time
    cells = jnp.where(agent == best.agent, problem.goals, best.other)
    paths = jnp.broadcast_to(cells.astype(jnp.int8), (max_steps + 3, 2, lanes))

    def back(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        last, cells, paths = carry
        for ahead in range(3):
            time = last - ahead
            before = reach.predecessor(sets[2 - ahead], cells, problem.may_wait)
            cells = jnp.where(time <= parking, before, cells)
            paths = jax.lax.dynamic_update_index_in_dim(paths, cells.astype(jnp.int8), time - 1, axis=0)
        return last - 3, cells, paths

    last = (jnp.max(parking) + 2) // 3 * 3
    _, _, paths = jax.lax.while_loop(lambda carry: carry[0] > 0, back, (last, cells, paths))

    walks = jnp.where(best.agent == 0, rest[1], rest[0])
    around = jnp.pad(walks, ((1, 1), (1, 1), (0, 0)), constant_values=_FAR).reshape(-1, lanes)
    left = solved * _pick(walks.reshape(-1, lanes), best.other).astype(jnp.int32)
    end = parking + left

    def forward(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        time, at, left, paths = carry
        row, column = jnp.divmod(at, size)
        following = at
        for down, right in STEPS[:4]:
            near = _pick(around, (row + 1 + down) * (size + 2) + column + 1 + right)
            following = jnp.where(near < left, at + down * size + right, following)
        walking = (time > parking) & (left > 0)
        at, left = jnp.where(walking, following, at), left - walking
        now = jnp.where(agent == best.agent, problem.goals, at)
        cells = jnp.where(time > parking, now.astype(jnp.int8), paths[time])
        return time + 1, at, left, jax.lax.dynamic_update_index_in_dim(paths, cells, time, axis=0)

    _, _, _, paths = jax.lax.while_loop(
        lambda carry: carry[0] <= jnp.max(end), forward, (jnp.int32(1), best.other, left, paths)
    )
    return paths[: max_steps + 1], jnp.where(agent == best.agent, parking, end)


def _distances(problem: _Problem) -> tuple[jax.Array, jax.Array]:
    """uint8 ``[2, lanes]`` from start to goal, and ``[2, size, size, lanes]`` around the other's goal, or ``_FAR``."""
    size, _, lanes = problem.free.shape
    cell = np.arange(size * size, dtype=np.int32).reshape(size, size, 1)
    goals = problem.goals[:, None, None]
    others = (cell == goals[::-1]) & (problem.num_agents == 2)
    free = jnp.concatenate([jnp.broadcast_to(problem.free, others.shape), problem.free & ~others])
    near = jnp.where(free & jnp.tile(cell == goals, (2, 1, 1, 1)), np.uint8(0), _FAR)
    near = jnp.pad(near, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=_FAR)

    def spread(old: jax.Array, new: jax.Array) -> jax.Array:
        nearest = jnp.minimum(
            jnp.minimum(old[:, :-2, 1:-1], old[:, 2:, 1:-1]), jnp.minimum(old[:, 1:-1, :-2], old[:, 1:-1, 2:])
        )
        own = old[:, 1:-1, 1:-1]
        nearer = jnp.where(free, jnp.minimum(own, nearest + np.uint8(1)), _FAR)
        return jax.lax.dynamic_update_slice(new, nearer, (0, 1, 1, 0))

    def spread_on(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        first, second, _ = carry
        for _ in range(2):
            second = spread(first, second)
            first = spread(second, first)
        differ = first != second
        rows = functools.reduce(jnp.logical_or, [differ[:, row] for row in range(1, size + 1)])
        columns = functools.reduce(jnp.logical_or, [rows[:, column] for column in range(1, size + 1)])
        return first, second, jnp.any(columns)

    near, _, _ = jax.lax.while_loop(lambda carry: carry[2], spread_on, (near, near, jnp.bool_(True)))
    near = near[:, 1:-1, 1:-1]
    alone = [_pick(near[agent].reshape(size * size, lanes), problem.starts[agent]) for agent in range(2)]
    return jnp.stack(alone), near[2:]


def _argsort(keys: jax.Array) -> jax.Array:
    return jnp.argsort(keys).astype(jnp.int32)


def _pick(table: jax.Array, index: Array) -> jax.Array:
    """Per lane the entry ``index[lane]`` of ``[entries, lanes]``."""
    lanes = table.shape[1]
    return table.reshape(-1).at[index * lanes + jnp.arange(lanes, dtype=jnp.int32)].get(mode="promise_in_bounds")

"""Optimal costs-to-go from every joint position of two or three agents, by dynamic programming; finds no plans.

For advantages in training: which joint actions are optimal, and how much each of the others costs. Dense
tables, so boards are small: two agents on any board up to 10x10, three up to 6x6.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.flood import free_cells
from jaxlake.levels import batch_axes
from jaxlake.record import Array, Record, record, vary_alike
from jaxlake.types import MAX_SIZE, STEPS, Action, Instance

INFINITE = np.iinfo(np.uint16).max
"""The value where the goals cannot be reached, and of an action that is not possible."""

_FAR = np.uint16(60_000)
"""Above every finite value, and far enough from the largest number to add a step's cost."""

_LARGEST = {1: MAX_SIZE, 2: MAX_SIZE, 3: 6}
_STATES = 1 << 19
"""Joint positions, over all instances, that are updated together: about 1 MiB for a table."""


@record
class JointValues(Record):
    """Tables of costs-to-go with their instances; any leading batch axes, to be mapped over for the functions below.

    A cost-to-go is the number of steps of all agents that have not parked yet. An agent's place is its cell; or
    ``cells``, one more than the last cell, for an agent that has parked: it stays on its goal for good, at no cost and
    in the way of the others.

    Attributes:
      instances: ``[...]``.
      values: uint16 ``[..., places, ..., places]``, an axis per agent; ``INFINITE`` where the goals cannot be reached,
        and where two agents share a cell or one is not on a free cell.
    """

    instances: Instance
    values: Array


def joint_values(instances: Instance, num_agents: int) -> JointValues:
    """Optimal costs-to-go of every joint position.

    Args:
      instances: ``[batch]``, at least one, of sides up to 10, with three agents up to 6; all with ``num_agents``
        agents.
      num_agents: 1 to 3.
    """
    num_agents = whole_number("num_agents", num_agents, 1, instances.max_agents)
    batch_axes(instances)
    values: JointValues = _joint_values(instances, num_agents)
    return values


@functools.partial(jax.jit, static_argnames="num_agents")
def _joint_values(instances: Instance, num_agents: int) -> JointValues:
    size, batch = instances.max_size, instances.size.shape[0]
    if size > _LARGEST.get(num_agents, 0):
        raise ValueError(
            f"{num_agents} agents on boards with max_size {size}: 1 or 2 reach {_LARGEST[2]}, 3 reach {_LARGEST[3]}"
        )
    lanes = min(batch, max(32, _STATES // size ** (2 * num_agents)))
    groups = jnp.minimum(jnp.arange(-(-batch // lanes) * lanes, dtype=jnp.int32), batch - 1).reshape(-1, lanes)

    def tables(group: jax.Array) -> jax.Array:
        part = jax.tree.map(jnp.asarray, instances)[group]
        free, goals = jnp.moveaxis(free_cells(part), 0, -1), part.goals[:, :num_agents].T
        values = _tables(free, goals)
        return jnp.moveaxis(jnp.where(values < _FAR, values, np.uint16(INFINITE)), -1, 0)

    values = jax.lax.map(tables, groups)
    values = values.reshape(-1, *values.shape[2:])[:batch]
    return JointValues(instances=instances, values=values)


def value(joint: JointValues, places: Array) -> jax.Array:
    """Return the optimal cost-to-go, int32 ``[]``, of an instance's places int32 ``[agents]``, or ``INFINITE``."""
    return joint.values[tuple(jnp.moveaxis(jnp.asarray(places), -1, 0))].astype(jnp.int32)


def action_values(joint: JointValues, places: Array) -> jax.Array:
    """Return what each joint action costs if the agents are optimal afterwards, int32 ``[5, ..., 5]``, an axis each.

    The advantage of an action is ``value(joint, places)`` less this. ``INFINITE`` for a joint action that moves an
    agent off the board or into a hole, that conflicts, or after which the goals are out of reach. A parked agent can
    only wait, and for an agent that waits on its goal the better of parking and not parking counts.

    Args:
      joint: one instance.
      places: int32 ``[agents]``.
    """
    agents, size = joint.values.ndim, joint.instances.max_size
    cells, side = size * size, joint.instances.size
    goals = joint.instances.goals[:agents]
    before = jnp.where(places == cells, goals, places)
    row, column = (part[:, None] for part in jnp.divmod(before, size))
    down, right = np.array(STEPS, np.int32).T
    inside = (row + down >= 0) & (row + down < side) & (column + right >= 0) & (column + right < side)
    after = jnp.where(inside, before[:, None] + down * size + right, 0)
    possible = inside & ~joint.instances.holes[after] & ((places != cells)[:, None] | (np.arange(5) == Action.WAIT))

    agent = np.arange(agents, dtype=np.int32)
    action = np.stack(np.meshgrid(*[np.arange(5, dtype=np.int32)] * agents, indexing="ij"), axis=-1)
    to = after[agent, action]
    legal = jnp.all(possible[agent, action], axis=-1)
    for one, other in itertools.combinations(range(agents), 2):
        swap = (to[..., one] == before[other]) & (to[..., other] == before[one])
        legal &= (to[..., one] != to[..., other]) & ~swap

    def cost(ends: Array) -> jax.Array:
        later = value(joint, ends)
        return jnp.where(later == INFINITE, INFINITE, later + jnp.sum(ends != cells, axis=-1, dtype=jnp.int32))

    best = jnp.full(legal.shape, INFINITE)
    can_park = (action == Action.WAIT) & (before == goals)
    for parks in itertools.product((False, True), repeat=agents):
        best = jnp.minimum(best, cost(jnp.where(can_park & np.array(parks) | (places == cells), cells, to)))
    return jnp.where(legal, best, INFINITE)


def _tables(free: Array, goals: Array) -> jax.Array:
    """uint16 ``[cells + 1, ..., cells + 1, lanes]``.

    While the same agents are parked, each step costs the same, and to park costs nothing and leads to a table with one
    axis less, in which the goal is an obstacle. So the tables are found in the order of the number of agents that move.
    """
    agents, lanes = goals.shape
    cell = jnp.arange(free.shape[0] ** 2, dtype=jnp.int32)[:, None]
    tables: dict[tuple[int, ...], jax.Array] = {(): jnp.zeros(lanes, jnp.uint16)}
    for count in range(1, agents + 1):
        for moving in itertools.combinations(range(agents), count):
            parked = [agent for agent in range(agents) if agent not in moving]
            open_cells = functools.reduce(jnp.logical_and, [cell != goals[agent] for agent in parked], cell == cell)
            seed: Any = _FAR
            for axis, agent in enumerate(moving):
                table = jnp.expand_dims(tables[moving[:axis] + moving[axis + 1 :]], axis)
                seed = jnp.minimum(seed, jnp.where(_along(cell == goals[agent], axis, count), table, _FAR))
            tables[moving] = _solve(free & open_cells.reshape(*free.shape[:2], -1), seed)

    values = jnp.full((*[len(cell) + 1] * agents, lanes), _FAR)
    for moving, table in tables.items():
        place = tuple(slice(0, len(cell)) if agent in moving else len(cell) for agent in range(agents))
        values = values.at[place].set(table)
    return values


def _solve(free: Array, seed: Array) -> jax.Array:
    """Return the least of reachable seeds plus the agents' steps to them, ``[cells, ..., cells, lanes]``.

    Bellman's equation, iterated over all joint positions at once until nothing changes.

    Args:
      free: bool ``[size, size, lanes]``, or with one lane for all.
      seed: uint16 ``[cells, ..., cells, lanes]``, what it costs to be there without another step; ``_FAR`` for never.
    """
    size, agents, lanes = free.shape[0], seed.ndim - 1, seed.shape[-1]
    cell = np.arange(size * size, dtype=np.int32)
    ok: Any = [_along(free.reshape(size * size, -1), agent, agents) for agent in range(agents)]
    ok += [_pairwise(cell[:, None] != cell, pair, agents) for pair in itertools.combinations(range(agents), 2)]
    ok = _on_grid(functools.reduce(jnp.logical_and, ok), size)
    seed = jnp.where(ok, _on_grid(seed, size), _FAR)
    inner = (slice(1, -1),) * (2 * agents)

    def update(old: jax.Array, new: jax.Array) -> jax.Array:
        best = jnp.full_like(seed, _FAR)
        for moves in itertools.product(range(len(STEPS)), repeat=agents):
            ahead = tuple(slice(1 + step, 1 + step + size) for move in moves for step in STEPS[move])
            later = old[ahead]
            for one, other in itertools.combinations(range(agents), 2):
                if moves[one] == moves[other] ^ 1 and Action.WAIT not in (moves[one], moves[other]):
                    down, right = STEPS[moves[one]]
                    swap = _pairwise(cell[:, None] + down * size + right == cell, (one, other), agents)
                    later = jnp.where(_on_grid(swap, size), _FAR, later)
            best = jnp.minimum(best, later)
        best = jnp.where(ok, best + np.uint16(agents), _FAR)
        # The update is the last operation of its kernel and in place; the margin stays as it is.
        return jax.lax.dynamic_update_slice(new, jnp.minimum(old[inner], best), (1,) * 2 * agents + (0,))

    def twice(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        first, second, _ = carry
        second = update(first, second)
        first = update(second, first)
        differ = first != second
        for _ in range(2):  # unrolled, as a CPU does not vectorise a reduction over leading axes
            differ = functools.reduce(jnp.logical_or, [differ[at] for at in range(1, size + 1)])
        return first, second, jnp.any(differ)

    table = jnp.full((size + 2,) * 2 * agents + (lanes,), _FAR)
    table = jax.lax.dynamic_update_slice(table, seed, (1,) * 2 * agents + (0,))
    table, _, _ = jax.lax.while_loop(lambda carry: carry[2], twice, vary_alike((table, table, jnp.bool_(True))))
    values: jax.Array = table[inner].reshape(*[size * size] * agents, lanes)
    return values


def _along(cells: Array, axis: int, agents: int) -> Array:
    """``[cells, lanes]`` as the given agent's axis of ``[cells, ..., cells, lanes]``."""
    return cells.reshape(*[-1 if agent == axis else 1 for agent in range(agents)], cells.shape[-1])


def _pairwise(table: np.ndarray, pair: tuple[int, int], agents: int) -> np.ndarray:
    """``[cells, cells]`` as two agents' axes of ``[cells, ..., cells, lanes]``."""
    return table.reshape(*[len(table) if agent in pair else 1 for agent in range(agents)], 1)


def _on_grid(table: Array, size: int) -> Array:
    """Every agent's axis split into rows and columns."""
    return table.reshape(*[side for axis in table.shape[:-1] for side in ((size, size) if axis > 1 else (1, 1))], -1)

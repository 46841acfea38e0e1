"""Optimal costs-to-go from every joint position of two or three agents, by dynamic programming; finds no plans.

For advantages in training: which joint actions are optimal, and how much each of the others costs. Dense
tables, so boards are small: two agents on any board up to 10x10, three up to 6x6.
"""

import dataclasses
import enum
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.flood import free_cells
from jaxlake.levels import batch_axes
from jaxlake.record import Array, Record, vary_alike
from jaxlake.types import MAX_SIZE, STEPS, Action, Instance

INFINITE = np.iinfo(np.uint16).max
"""The value where the goals cannot be reached, and of an action that is not possible."""

_FAR = np.uint16(60_000)
"""Above every finite value, and far enough from the largest number to add a step's cost."""

_LARGEST = {1: MAX_SIZE, 2: MAX_SIZE, 3: 6}
_STATES = 1 << 19
"""Joint positions, over all instances, that are updated together: about 1 MiB for a table."""


class Convention(enum.StrEnum):
    """The steps that a cost-to-go counts: the second depends on the agents' cells alone, the first on who parked."""

    SUM_OF_COSTS = "sum_of_costs"
    """The steps of every agent that has not yet parked on its goal for good; the paper's optimum."""
    SUM_OF_LOSS = "sum_of_loss"
    """The steps of every agent that do not begin and end on its goal."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["instances", "values"], meta_fields=["convention"])
@dataclasses.dataclass(frozen=True)
class JointValues(Record):
    """Tables of costs-to-go with their instances; any leading batch axes, to be mapped over for the functions below.

    An agent's place is its cell; under ``SUM_OF_COSTS`` also ``cells``, one more than the last cell, for an agent that
    has parked: it stays on its goal for good, at no cost and in the way of the others.

    Attributes:
      instances: ``[...]``.
      values: uint16 ``[..., places, ..., places]``, an axis per agent; ``INFINITE`` where the goals cannot be reached,
        and where two agents share a cell or one is not on a free cell.
      convention: the steps that are counted; static.
    """

    instances: Instance
    values: jax.Array
    convention: Convention

    def __post_init__(self) -> None:
        object.__setattr__(self, "convention", Convention(self.convention))


def joint_values(instances: Instance, num_agents: int, convention: Convention | str) -> JointValues:
    """Optimal costs-to-go of every joint position.

    Args:
      instances: ``[batch]``, at least one; all with ``num_agents`` agents.
      num_agents: 1 to 3.
      convention: the steps that are counted; a ``Convention`` or its word.

    Raises:
      ValueError: for more agents, or boards larger than 10x10, with three agents 6x6, and for a word that is no
        ``Convention``.
    """
    num_agents = whole_number("num_agents", num_agents, 1, instances.max_agents)
    batch_axes(instances)
    values: JointValues = _joint_values(instances, num_agents, Convention(convention))
    return values


@functools.partial(jax.jit, static_argnames=("num_agents", "convention"))
def _joint_values(instances: Instance, num_agents: int, convention: Convention) -> JointValues:
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
        values = (_with_parking if convention is Convention.SUM_OF_COSTS else _without_parking)(free, goals)
        return jnp.moveaxis(jnp.where(values < _FAR, values, np.uint16(INFINITE)), -1, 0)

    values = jax.lax.map(tables, groups)
    values = values.reshape(-1, *values.shape[2:])[:batch]
    return JointValues(instances=instances, values=values, convention=convention)


def value(joint: JointValues, places: Array) -> jax.Array:
    """Return the optimal cost-to-go, int32 ``[]``, of an instance's places int32 ``[agents]``, or ``INFINITE``."""
    return joint.values[tuple(jnp.moveaxis(jnp.asarray(places), -1, 0))].astype(jnp.int32)


def action_values(joint: JointValues, places: Array) -> jax.Array:
    """Return what each joint action costs if the agents are optimal afterwards, int32 ``[5, ..., 5]``, an axis each.

    The advantage of an action is ``value(joint, places)`` less this. ``INFINITE`` for a joint action that moves an
    agent off the board or into a hole, that conflicts, or after which the goals are out of reach. Under
    ``SUM_OF_COSTS`` a parked agent can only wait, and for an agent that waits on its goal the better of parking and
    not parking counts.

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
        return jnp.where(later == INFINITE, INFINITE, _step_cost(joint, places, ends) + later)

    best = cost(jnp.where(places == cells, cells, to))
    if joint.convention is Convention.SUM_OF_COSTS:
        can_park = (action == Action.WAIT) & (before == goals)
        for parks in itertools.product((False, True), repeat=agents):
            best = jnp.minimum(best, cost(jnp.where(can_park & (np.array(parks) | (places == cells)), cells, to)))
    return jnp.where(legal, best, INFINITE)


def _step_cost(joint: JointValues, before: Array, after: Array) -> jax.Array:
    """int32 ``[...]`` for places ``[..., agents]``."""
    if joint.convention is Convention.SUM_OF_COSTS:
        return jnp.sum(after != joint.instances.holes.shape[-1], axis=-1, dtype=jnp.int32)
    goals = joint.instances.goals[: joint.values.ndim]
    return jnp.sum((before != goals) | (after != goals), axis=-1, dtype=jnp.int32)


def _without_parking(free: Array, goals: Array) -> jax.Array:
    """uint16 ``[cells, ..., cells, lanes]`` for free cells ``[size, size, lanes]`` and goals ``[agents, lanes]``."""
    agents, cells = goals.shape[0], free.shape[0] ** 2
    cell = jnp.arange(cells, dtype=jnp.int32)[:, None]
    home = [_along(cell == goals[agent], agent, agents) for agent in range(agents)]
    seed = jnp.where(functools.reduce(jnp.logical_and, home), np.uint16(0), _FAR)
    return _solve(free, seed, agents, [at.astype(jnp.uint16) for at in home])


def _with_parking(free: Array, goals: Array) -> jax.Array:
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
            tables[moving] = _solve(free & open_cells.reshape(*free.shape[:2], -1), seed, count, [])

    values = jnp.full((*[len(cell) + 1] * agents, lanes), _FAR)
    for moving, table in tables.items():
        place = tuple(slice(0, len(cell)) if agent in moving else len(cell) for agent in range(agents))
        values = values.at[place].set(table)
    return values


def _solve(free: Array, seed: Array, cost: int, home: Sequence[Array]) -> jax.Array:
    """Return the least of reachable seeds plus the cost of the steps to them, ``[cells, ..., cells, lanes]``.

    Bellman's equation, iterated over all joint positions at once until nothing changes.

    Args:
      free: bool ``[size, size, lanes]``, or with one lane for all.
      seed: uint16 ``[cells, ..., cells, lanes]``, what it costs to be there without another step; ``_FAR`` for never.
      cost: the cost of a step.
      home: per agent uint16, 1 at its goal, where its waiting takes 1 off the step's cost; empty for no such thing.
    """
    size, agents, lanes = free.shape[0], seed.ndim - 1, seed.shape[-1]
    cell = np.arange(size * size, dtype=np.int32)
    ok: Any = [_along(free.reshape(size * size, -1), agent, agents) for agent in range(agents)]
    ok += [_pairwise(cell[:, None] != cell, pair, agents) for pair in itertools.combinations(range(agents), 2)]
    ok = _on_grid(functools.reduce(jnp.logical_and, ok), size)
    seed = jnp.where(ok, _on_grid(seed, size), _FAR)
    home = [_on_grid(part, size) for part in home]
    inner = (slice(1, -1),) * (2 * agents)

    def update(old: jax.Array, new: jax.Array) -> jax.Array:
        by_waiting: dict[tuple[int, ...], jax.Array] = {}
        for moves in itertools.product(range(len(STEPS)), repeat=agents):
            ahead = tuple(slice(1 + step, 1 + step + size) for move in moves for step in STEPS[move])
            found = old[ahead]
            for one, other in itertools.combinations(range(agents), 2):
                if moves[one] == moves[other] ^ 1 and Action.WAIT not in (moves[one], moves[other]):
                    down, right = STEPS[moves[one]]
                    swap = _pairwise(cell[:, None] + down * size + right == cell, (one, other), agents)
                    found = jnp.where(_on_grid(swap, size), _FAR, found)
            waiting = tuple(agent for agent in range(agents) if moves[agent] == Action.WAIT) if home else ()
            by_waiting[waiting] = jnp.minimum(found, by_waiting.get(waiting, found))
        best = [part + (np.uint16(cost) - sum(home[at] for at in waiting)) for waiting, part in by_waiting.items()]
        best = jnp.where(ok, functools.reduce(jnp.minimum, best), _FAR)
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

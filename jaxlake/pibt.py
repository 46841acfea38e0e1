"""Priority inheritance with backtracking (PIBT): a policy and a planner for many agents. Its plans are not optimal.

Okumura, Machida, Défago, Tamura: Priority Inheritance with Backtracking for Iterative Multi-agent Path Finding,
Artificial Intelligence 2022, Algorithm 1. Where a board is biconnected, every agent is on its goal at some time.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import levels
from jaxlake.arguments import threefry_key, whole_number
from jaxlake.env import MOST_STEPS, Lake
from jaxlake.record import Array, vary_alike
from jaxlake.rewards import reached
from jaxlake.rules import GoalRule
from jaxlake.state import Params
from jaxlake.types import ABSENT, STEPS, Action, Instance, LifelongInstance, Plan

_UNDECIDED = -2
_NEVER = np.iinfo(np.int32).max
_BYTES = 1 << 28  # Of paths and distances that one program holds.


def step(instance: Instance, positions: Array, priorities: Array, fields: Array, ties: Array) -> jax.Array:
    """Return a joint action of PIBT, int32 ``[max_agents]`` of ``Action``, for ``Lake.step``; no batch axes.

    An agent takes the cell nearest to its goal. An agent that stands there moves first and inherits the priority; if it
    cannot move, the first takes its next best cell. No two agents share or swap cells.

    Args:
      positions: int32 ``[max_agents]`` different cells, ``ABSENT`` for absent agents.
      priorities: int32 ``[max_agents]``, different ones; the highest decides first. An episode begins with a
        permutation of ``arange(max_agents)`` and goes on with `next_priorities`.
      fields: int16 ``[max_agents, cells]``, of ``distance_fields``.
      ties: int32 ``[max_agents, 5]`` from 0 to 255 by ``Action``: of cells equally near, one where nobody stands comes
        first, then the one with the lowest number here, then the first action.
    """
    side, agents = instance.max_size, instance.max_agents
    positions, priorities, ties = (jnp.asarray(part, jnp.int32) for part in (positions, priorities, ties))
    instance, positions, priorities, fields, ties = vary_alike((instance, positions, priorities, fields, ties))
    agent = jnp.arange(agents, dtype=jnp.int32)
    row, column = jnp.divmod(positions[:, None], side)
    moves = jnp.array(STEPS, jnp.int32)
    row, column = row + moves[:, 0], column + moves[:, 1]
    inside = (jnp.minimum(row, column) >= 0) & (jnp.maximum(row, column) < instance.size)
    cells = jnp.where(inside, row * side + column, 0)
    enterable = inside & ~jnp.asarray(instance.holes)[cells]
    cost = fields[agent[:, None], cells].astype(jnp.int32)
    cost = jnp.where(cost == ABSENT, np.int32(1 << 15), cost)
    stands = jnp.any((cells[:, :, None] == positions) & (agent[:, None, None] != agent), axis=2)
    cost = jnp.where(enterable, cost << 9 | stands.astype(jnp.int32) << 8 | ties, _NEVER)
    # Sorting five numbers of each agent takes longer than all their comparisons.
    action = jnp.arange(len(STEPS), dtype=jnp.int32)
    before = (cost[:, None] < cost[..., None]) | ((cost[:, None] == cost[..., None]) & (action < action[:, None]))
    rank = jnp.sum(before, axis=2, dtype=jnp.int32)
    order = jnp.sum(jnp.where(rank[:, None] == action[:, None], action, 0), axis=2, dtype=jnp.int32)
    targets = jnp.take_along_axis(cells, order, axis=1)
    options = jnp.sum(enterable, axis=1, dtype=jnp.int32)

    def decide(state: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        """Try one cell of one agent: the one that was pushed last, or the undecided one of the highest priority."""
        following, tried, pusher, current = state
        undecided = following == _UNDECIDED
        current = jnp.where(current < 0, jnp.argmax(jnp.where(undecided, priorities, -1)).astype(jnp.int32), current)
        own, place = positions[current], tried[current]
        exhausted = place >= options[current]
        target = jnp.where(exhausted, own, targets[current, jnp.minimum(place, len(STEPS) - 1)])
        there = positions == target
        moves_in = ~exhausted & ~jnp.any(following == target) & ~jnp.any(there & (following == own))
        pushed = there & undecided & (agent != current)
        pushes = moves_in & jnp.any(pushed)
        itself = agent == current
        following = jnp.where(itself & (exhausted | moves_in), target, following)
        pusher = jnp.where(pushed & pushes, current, pusher)
        tried = tried + itself
        # Success ends the whole chain of pushes; failure lets the pusher try its next cell.
        further = jnp.where(moves_in, ABSENT, current)
        further = jnp.where(pushes, jnp.argmax(pushed).astype(jnp.int32), further)
        return following, tried, pusher, jnp.where(exhausted, pusher[current], further)

    following = jnp.where(positions == ABSENT, ABSENT, _UNDECIDED).astype(jnp.int32)
    nobody = jnp.full_like(following, ABSENT)
    begin = (following, jnp.zeros_like(following), nobody, jnp.full_like(following, ABSENT, shape=()))
    following, *_ = jax.lax.while_loop(lambda state: (state[3] >= 0) | jnp.any(state[0] == _UNDECIDED), decide, begin)
    chosen = jnp.argmax((cells == following[:, None]) & enterable, axis=1).astype(jnp.int32)
    return jnp.where(positions == ABSENT, np.int32(Action.WAIT), chosen)


def next_priorities(priorities: Array, arrived: Array) -> jax.Array:
    """Return the priorities of the next step; they grow until an agent is on its goal, bool ``[agents]`` `arrived`."""
    agents = priorities.shape[-1]
    return jnp.where(arrived, priorities % agents, priorities + agents)


def plan(instances: Instance, key: Array, *, orders: int = 1, max_steps: int = 512) -> Plan:
    """Plan by PIBT from several orders of priority side by side, and keep the best plan.

    The best plan takes all agents to their goals at the least sum of costs, else as many agents as possible. In the
    first order agents far from their goals decide first; the others are random, and so are choices among equal cells.

    Args:
      instances: ``[n]``. They may have more agents than the solver takes, and agents that cannot reach their goals.
      orders: how many orders are tried on each board.
      max_steps: horizon, at most 16,384; a plan without success has all of it.

    Returns:
      Plans ``[n]``, numpy arrays, for ``verify``. An agent's path ends with its last arrival.
    """
    key = threefry_key(key)  # Each board draws by its own, whatever others are planned beside it.
    max_steps = whole_number("max_steps", max_steps, 1, 1 << 14)
    levels.validate(instances)
    board = instances.max_agents * (2 * instances.max_size**2 + 4 * orders * (max_steps + 1))
    plans: Plan = _in_parts(lambda *part: _planned(*part, orders, max_steps), instances, key, board)
    return plans


def play(instances: Instance, key: Array, steps: int, goals: GoalRule | str = GoalRule.DRAWN) -> np.ndarray:
    """Play lifelong episodes by PIBT, and return the goals that agents reached, int32 ``[n, max_agents]``.

    Boards whose table of ``distance_tables`` takes at most 256 MiB, as up to 107 x 107, keep one. Larger ones are
    played one after another, and a step in which an agent arrives floods the board.

    Args:
      instances: ``[n]``, of ``lifelong.board``.
      steps: of each episode, 1 to 32,767.
      goals: ``DRAWN`` or ``LISTED``.
    """
    steps, goals = whole_number("steps", steps, 1, MOST_STEPS), GoalRule(goals)
    lake = Lake(reward=reached, goals=goals)
    levels.validate(instances, lifelong=True)
    board = 2 * instances.max_size**4  # of the finished table: the flood that makes it holds more
    counts: np.ndarray = _in_parts(
        lambda *part: _played(*part, steps, lake, board <= _BYTES), instances, threefry_key(key), board
    )
    return counts


def _in_parts(run: Callable[[Any, Array], Any], instances: Instance, key: Array, board: int) -> Any:
    """Return what ``run`` makes of boards and keys, in numpy: of as many at once as fit, at so many bytes a board."""
    count = len(instances)
    together = 1 << max(min(_BYTES // board, count).bit_length() - 1, 0)
    parts = []
    for first in range(0, count, together):
        # The last part ends with the last board again, so that one program serves all.
        numbers = np.minimum(np.arange(first, first + together), count - 1)
        boards = jax.tree.map(lambda leaf, numbers=numbers: jnp.asarray(leaf)[numbers], instances)
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.asarray(numbers, jnp.int32))
        part = run(boards, keys)
        parts.append(jax.tree.map(lambda leaf, first=first: np.asarray(leaf)[: count - first], part))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@functools.partial(jax.jit, static_argnames=("lake", "tables"))
def _played(instances: LifelongInstance, keys: Array, steps: Array, lake: Lake, tables: bool) -> jax.Array:
    def one(board: LifelongInstance, key: Array, distances: Array) -> jax.Array:
        def advance(time: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, priorities = carry
            tie_key, goal_key = jax.random.split(jax.random.fold_in(key, time))
            ties = jax.random.bits(tie_key, (board.max_agents, len(STEPS)), jnp.uint8)
            fields = distances[0, jnp.maximum(state.instance.goals, 0)] if tables else state.distances
            actions = step(board, state.positions, priorities, fields, ties)
            state, seen = lake.step(state, actions, goal_key)
            return state, next_priorities(priorities, seen.info.arrived)

        state, _ = lake.reset(board, Params(max_steps=steps), None if tables else distances)
        first = jnp.arange(board.max_agents, dtype=jnp.int32)
        played: jax.Array = jax.lax.fori_loop(0, steps, advance, (state, first))[0].goals_reached
        return played

    if tables:
        return jax.vmap(one)(instances, keys, levels.distance_tables(instances))
    # A part is one board here. A map over it, where vmap would flood in every step, floods when an agent arrives.
    parts = (instances, keys, levels.distance_fields(instances))
    counts: jax.Array = jax.lax.map(lambda part: one(*part), parts)
    return counts


@functools.partial(jax.jit, static_argnames=("orders", "max_steps"))
def _planned(instances: Instance, keys: Array, orders: int, max_steps: int) -> Plan:
    fields = levels.distance_fields(instances)
    boards, agents = instances.starts.shape
    goals = instances.goals[:, None]
    moves = jnp.array([down * instances.max_size + right for down, right in STEPS], jnp.int32)
    far = jnp.take_along_axis(fields, jnp.maximum(instances.starts, 0)[..., None], axis=2)[..., 0]
    shuffled = jax.vmap(lambda own: jax.random.uniform(own, (orders, agents), jnp.float32))(keys)
    ranks = jnp.argsort(jnp.argsort(shuffled.at[:, 0].set(far.astype(jnp.float32)))).astype(jnp.int32)

    def one(instance: Instance, fields: Array, key: Array, positions: Array, priorities: Array) -> jax.Array:
        ties = jax.random.bits(key, (orders, agents, len(STEPS)), jnp.uint8).astype(jnp.int32)
        return jax.vmap(lambda *each: step(instance, each[0], each[1], fields, each[2]))(positions, priorities, ties)

    def advance(state: tuple[Any, Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        paths, positions, priorities, arrivals, time = state
        own = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
        actions = jax.vmap(one)(instances, fields, own, positions, priorities)
        positions = positions + moves[actions]
        arrived = positions == goals
        arrivals = jnp.where(arrived, arrivals, time + 1)
        paths = jax.lax.dynamic_update_index_in_dim(paths, positions, time, 0)
        return paths, positions, next_priorities(priorities, arrived), arrivals, time + 1

    def goes_on(state: tuple[Any, Any, Any, Any, Any]) -> jax.Array:
        unfinished: jax.Array = (state[4] <= max_steps) & jnp.any(state[1] != goals)
        return unfinished

    starts = jnp.broadcast_to(instances.starts[:, None], (boards, orders, agents))
    paths = jnp.full((max_steps + 1, *starts.shape), ABSENT, jnp.int32).at[0].set(starts)
    priorities = jnp.where(starts == goals, ranks, ranks + agents)
    begin = (paths, starts, priorities, jnp.where(starts == goals, 0, 1), jnp.int32(1))
    paths, positions, _, arrivals, _ = jax.lax.while_loop(goes_on, advance, begin)
    away = positions != goals
    missing = jnp.sum(away, axis=2, dtype=jnp.int32)
    cost = jnp.sum(jnp.where(away, 0, arrivals), axis=2, dtype=jnp.int32)
    # One number for both passes 2 ** 31 from 2,049 agents and 512 steps on.
    best = jnp.argmin(jnp.where(missing == jnp.min(missing, axis=1, keepdims=True), cost, _NEVER), axis=1)
    board = jnp.arange(boards)
    lengths = jnp.where(away, max_steps + 1, arrivals + 1)[board, best]
    paths = jnp.moveaxis(paths[:, board, best], 0, 2)
    there = instances.goals != ABSENT
    lengths = jnp.where(there, lengths, 0).astype(jnp.int32)
    return Plan(
        parsable=jnp.ones(boards, bool),
        num_named=instances.num_agents,
        paths=jnp.where(jnp.arange(max_steps + 1) < lengths[..., None], paths, ABSENT),
        lengths=lengths,
    )

"""Conflict-Based Search over a batch of instances in lock step: the constraint tree, one expansion per iteration.

Sharon et al. 2015: a node is a set of constraints with a shortest path per agent under them; the cheapest node is
expanded by forbidding its first conflict to the one and to the other agent. Everything has an explicit batch dimension
and the loop a scalar condition: ``vmap`` of a ``while_loop`` would copy the whole node store in every iteration. Lanes
expand in step, so all write their children to the same two slots, which is a slice update and no scatter.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solve.paths import ALL_MOVES, Query, move_between, shortest_paths
from jaxlake.types import ABSENT, Instance, Objective, Plan, Solution, Status

MAX_HORIZON = 127
UNBOUNDED = 1 << 12
"""A cost bound above every cost: five agents with 127 steps each cost less."""

_CLOSED = np.iinfo(np.int32).max
_CONFLICT_BITS = 12


@chex.dataclass(frozen=True)
class _Problem:
    """The instances lane-minor, and what is asked of them.

    Attributes:
      free: bool ``[max_size, max_size, lanes]``.
      starts, goals: int32 ``[agents, lanes]``, ``ABSENT`` for an agent that is not there.
      cost_bound: int32 ``[lanes]``.
      may_wait: bool ``[]``.
    """

    free: chex.Array
    starts: chex.Array
    goals: chex.Array
    cost_bound: chex.Array
    may_wait: chex.Array


@chex.dataclass(frozen=True)
class _Nodes:
    """Nodes of the constraint tree, ``[nodes, ..., lanes]``.

    Attributes:
      key: int32 ``[nodes, lanes]``, cost and then number of conflicts; ``_CLOSED`` unless waiting to be expanded.
      parent: int32 ``[nodes, lanes]``, 0 for the root.
      agent, time, cell, moves: int32 ``[nodes, lanes]``, the node's own constraint: the agent must not enter the cell
        at that time by any of the moves (a bit each).
      conflict: int32 ``[nodes, lanes]``, the first conflict of the paths as ``_conflicts`` numbers it.
      arrivals: int32 ``[nodes, agents, lanes]``, 0 for an agent that is not there.
      paths: int8 ``[nodes, steps + 1, agents, lanes]``.
    """

    key: chex.Array
    parent: chex.Array
    agent: chex.Array
    time: chex.Array
    cell: chex.Array
    moves: chex.Array
    conflict: chex.Array
    arrivals: chex.Array
    paths: chex.Array


@functools.partial(jax.jit, static_argnames=("max_steps", "expansions", "objective"))
def search(
    instances: Instance,
    cost_bound: jax.Array,
    may_wait: jax.Array,
    max_steps: int,
    expansions: int,
    objective: Objective,
) -> Solution:
    """Optimal plans of at most a given cost.

    Args:
      instances: ``[batch]``; one without agents is padding and solved at once.
      cost_bound: int32 ``[batch]``, ``UNBOUNDED`` for none.
      may_wait: bool ``[]``, whether agents may wait before their arrival.
      max_steps: the horizon; where a plan might need more steps the search ends undecided.
      expansions: nodes that may be expanded per instance; 0 gives the independent shortest paths alone.
      objective: what is minimised.
    """
    max_size, batch = instances.max_size, instances.size.shape[0]
    cells = jnp.arange(max_size)
    on_board = (cells[:, None, None] < instances.size) & (cells[None, :, None] < instances.size)
    problem = _Problem(
        free=on_board & ~instances.holes.T.reshape(max_size, max_size, batch),
        starts=instances.starts.T,
        goals=instances.goals.T,
        cost_bound=cost_bound,
        may_wait=may_wait,
    )
    root, lower_bound, cut = _root(problem, max_steps, objective)
    nodes = jax.tree.map(lambda part: jnp.zeros((1 + 2 * expansions, *part.shape[1:]), part.dtype), root)
    nodes = nodes.replace(key=jnp.full_like(nodes.key, _CLOSED))
    nodes = jax.tree.map(lambda store, part: jax.lax.dynamic_update_slice_in_dim(store, part, 0, axis=0), nodes, root)

    def undecided(key: jax.Array, cut: jax.Array) -> jax.Array:
        return (key != _CLOSED) & (_num_conflicts(key) > 0) & (_cost(key) <= cut)

    def expand(carry):
        iteration, nodes, cut, best, expanded = carry
        active = undecided(_pick(nodes.key, best), cut)
        children, child_cut = _children(problem, nodes, best, active, max_steps, objective)
        key = nodes.key.at[best, jnp.arange(batch)].set(jnp.where(active, _CLOSED, _pick(nodes.key, best)))
        slot = 1 + 2 * iteration
        nodes = jax.tree.map(
            lambda store, part: jax.lax.dynamic_update_slice_in_dim(store, part, slot, axis=0),
            nodes.replace(key=key),
            children,
        )
        best = jnp.argmin(nodes.key, axis=0).astype(jnp.int32)
        return iteration + 1, nodes, jnp.minimum(cut, child_cut), best, expanded + active

    def goes_on(carry):
        iteration, nodes, cut, best, _ = carry
        return (iteration < expansions) & jnp.any(undecided(_pick(nodes.key, best), cut))

    carry = (jnp.int32(0), nodes, cut, jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.int32))
    if expansions:
        carry = jax.lax.while_loop(goes_on, expand, carry)
    _, nodes, cut, best, expanded = carry

    key = _pick(nodes.key, best)
    is_open = key != _CLOSED
    solved = is_open & (_num_conflicts(key) == 0) & (_cost(key) <= cut)
    refuted = ~is_open & (cut > cost_bound)
    status = jnp.where(solved, Status.SOLVED, jnp.where(refuted, Status.UNSOLVABLE, Status.OUT_OF_BUDGET))
    return Solution(
        status=status.astype(jnp.int32),
        plan=_plan(problem, _pick(nodes.paths, best), _pick(nodes.arrivals, best), solved),
        cost=jnp.where(solved, _cost(key), ABSENT),
        lower_bound=lower_bound,
        expansions=expanded,
    )


def _root(problem: _Problem, max_steps: int, objective: Objective) -> tuple[_Nodes, jax.Array, jax.Array]:
    """The node without constraints ``[1, ..., lanes]``, the lower bound and the cost from which on it is cut off."""
    max_agents, lanes = problem.starts.shape
    cells = problem.free.shape[0] ** 2
    there = problem.starts != ABSENT
    deadline = jnp.minimum(problem.cost_bound, max_steps)
    nothing = jnp.zeros(lanes, jnp.int32)

    def add_agent(paths, agent):
        query = Query(
            start=problem.starts[agent],
            goal=problem.goals[agent],
            others=paths,
            forbidden=jnp.zeros((max_steps + 1, cells, lanes), jnp.uint8),
            not_before=nothing,
            free_from=nothing,
            deadline=jnp.where(there[agent], deadline, -1),
        )
        found = shortest_paths(problem.free, query, problem.may_wait)
        path = jnp.where(there[agent], found.path, ABSENT).astype(jnp.int8)
        return paths.at[:, agent].set(path), (found.arrival, found.possible)

    paths = jnp.full((max_steps + 1, max_agents, lanes), ABSENT, jnp.int8)
    paths, (arrivals, possible) = jax.lax.scan(add_agent, paths, jnp.arange(max_agents))
    missing = there & (arrivals == ABSENT)
    complete = ~jnp.any(missing, axis=0)
    cost = _total(jnp.maximum(arrivals, 0), objective)
    # A path that ends only beyond the deadline costs at least one step more; one that does not exist cuts nothing off.
    cut = jnp.where(complete | jnp.any(missing & ~possible, axis=0), UNBOUNDED + 1, deadline + 1)
    count, first = _conflicts(paths)
    root = _Nodes(
        key=jnp.where(complete & (cost <= problem.cost_bound), _key(cost, count), _CLOSED),
        parent=nothing,
        agent=nothing,
        time=nothing,
        cell=nothing,
        moves=nothing,
        conflict=first,
        arrivals=jnp.maximum(arrivals, 0),
        paths=paths,
    )
    return jax.tree.map(lambda part: part[None], root), jnp.where(complete, cost, ABSENT), cut


def _children(
    problem: _Problem, nodes: _Nodes, best: jax.Array, active: jax.Array, max_steps: int, objective: Objective
) -> tuple[_Nodes, jax.Array]:
    """The two children ``[2, ..., lanes]`` of node ``best`` per lane, and the cost from which on one is cut off."""
    max_agents, lanes = problem.starts.shape
    max_size = problem.free.shape[0]
    paths, arrivals = _pick(nodes.paths, best), _pick(nodes.arrivals, best)
    agent, time, cell, moves = _constraints(paths, _pick(nodes.conflict, best), max_size)

    twice = functools.partial(jnp.concatenate, axis=-1)
    slot = jnp.arange(max_agents)[:, None]
    paths, arrivals, bound = twice([paths, paths]), twice([arrivals, arrivals]), twice([problem.cost_bound] * 2)
    agent, time, cell, moves = (part.reshape(2 * lanes) for part in (agent, time, cell, moves))
    own = slot == agent
    goal = _pick(twice([problem.goals] * 2), agent)
    deadline = jnp.minimum(bound, max_steps)
    if objective is Objective.SUM_OF_COSTS:
        deadline = jnp.minimum(bound - jnp.sum(jnp.where(own, 0, arrivals), axis=0), max_steps)

    forbidden = jnp.zeros((max_steps + 1, max_size**2, 2 * lanes), jnp.uint8)
    lane = jnp.arange(2 * lanes)

    def add_constraint(forbidden, not_before, free_from, time, cell, moves):
        forbidden = forbidden.at[time, cell, lane].set(forbidden[time, cell, lane] | moves.astype(jnp.uint8))
        blocks_goal = (moves == ALL_MOVES) & (cell == goal)
        not_before = jnp.maximum(not_before, jnp.where(blocks_goal, time + 1, 0))
        return forbidden, not_before, jnp.maximum(free_from, time)

    def climb(carry):
        node, *tables = carry
        column = lane % lanes
        relevant = (node > 0) & (nodes.agent[node, column] == agent)
        time, cell, moves = (
            jnp.where(relevant, part[node, column], 0) for part in (nodes.time, nodes.cell, nodes.moves)
        )
        return nodes.parent[node, column], *add_constraint(*tables, time, cell, moves)

    nothing = jnp.zeros(2 * lanes, jnp.int32)
    tables = add_constraint(forbidden, nothing, nothing, time, cell, moves)
    node = jnp.where(active, best, 0)
    carry = (twice([node, node]), *tables)
    _, forbidden, not_before, free_from = jax.lax.while_loop(lambda carry: jnp.any(carry[0] > 0), climb, carry)

    query = Query(
        start=_pick(twice([problem.starts] * 2), agent),
        goal=goal,
        others=jnp.where(own, ABSENT, paths).astype(jnp.int8),
        forbidden=forbidden,
        not_before=not_before,
        free_from=free_from,
        deadline=jnp.where(twice([active, active]), deadline, -1),
    )
    found = shortest_paths(twice([problem.free] * 2), query, problem.may_wait)
    paths = jnp.where(own, found.path[:, None], paths)
    arrives = found.arrival != ABSENT
    late = jnp.where(own, deadline + 1, arrivals)
    cut = jnp.where(~arrives & found.possible, _total(late, objective), UNBOUNDED + 1)
    arrivals = jnp.where(own & arrives, found.arrival, arrivals)
    count, first = _conflicts(paths)
    children = _Nodes(
        key=jnp.where(arrives, _key(_total(arrivals, objective), count), _CLOSED),
        parent=twice([best, best]),
        agent=agent,
        time=time,
        cell=cell,
        moves=moves,
        conflict=first,
        arrivals=arrivals,
        paths=paths,
    )
    split = jax.tree.map(lambda part: jnp.moveaxis(part.reshape(*part.shape[:-1], 2, lanes), -2, 0), children)
    return split, jnp.min(cut.reshape(2, lanes), axis=0)


def _conflicts(paths: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Number of conflicts and the first one, int32 ``[lanes]``, in int8 ``[steps + 1, agents, lanes]``.

    A conflict has the number ``time * pairs + pair``; a swap happens at the time at which it is complete.
    """
    ours, theirs = (paths[:, agents] for agents in np.triu_indices(paths.shape[1], 1))
    same = (ours == theirs) & (ours != ABSENT)
    swap = (ours[1:] == theirs[:-1]) & (ours[:-1] == theirs[1:]) & (ours[1:] != ABSENT)
    conflict = same.at[1:].set(same[1:] | swap)
    number = jnp.arange(conflict.shape[0] * conflict.shape[1], dtype=jnp.int32).reshape(*conflict.shape[:2], 1)
    count = jnp.sum(conflict, axis=(0, 1), dtype=jnp.int32)
    return count, jnp.min(jnp.where(conflict, number, number.size), axis=(0, 1), initial=number.size)


def _constraints(paths: jax.Array, conflict: jax.Array, max_size: int) -> tuple[jax.Array, ...]:
    """Agent, time, cell and moves, int32 ``[2, lanes]`` each, that resolve a conflict for the one or the other."""
    pairs = np.stack(np.triu_indices(paths.shape[1], 1)).astype(np.int32)
    lane = jnp.arange(paths.shape[-1])
    num_pairs = max(pairs.shape[1], 1)
    agent = jnp.asarray(pairs)[:, conflict % num_pairs]
    time = jnp.broadcast_to(jnp.minimum(conflict // num_pairs, paths.shape[0] - 1), agent.shape)
    cell = paths[time, agent, lane].astype(jnp.int32)
    before = paths[jnp.maximum(time - 1, 0), agent, lane].astype(jnp.int32)
    moves = jnp.where(cell[0] == cell[1], ALL_MOVES, 1 << move_between(before, cell, max_size))
    return agent, time, cell, moves


def _plan(problem: _Problem, paths: jax.Array, arrivals: jax.Array, solved: jax.Array) -> Plan:
    """Batch-major plans from paths ``[steps + 1, agents, lanes]``, each cut at its arrival; empty unless solved."""
    there = (problem.starts != ABSENT) & solved
    lengths = jnp.where(there, arrivals + 1, 0)
    steps = jnp.arange(paths.shape[0])[:, None, None]
    cells = jnp.where(steps < lengths, paths, ABSENT).astype(jnp.int32)
    return Plan(
        parsable=solved,
        num_named=jnp.sum(there, axis=0, dtype=jnp.int32),
        paths=jnp.moveaxis(cells, -1, 0).swapaxes(1, 2),
        lengths=lengths.T,
    )


def _total(arrivals: jax.Array, objective: Objective) -> jax.Array:
    total = jnp.sum if objective is Objective.SUM_OF_COSTS else jnp.max
    return total(arrivals, axis=0)


def _key(cost: jax.Array, count: jax.Array) -> jax.Array:
    return (cost << _CONFLICT_BITS) + count


def _cost(key: jax.Array) -> jax.Array:
    return key >> _CONFLICT_BITS


def _num_conflicts(key: jax.Array) -> jax.Array:
    return key & ((1 << _CONFLICT_BITS) - 1)


def _pick(store: jax.Array, index: jax.Array) -> jax.Array:
    """Per lane the entry ``index[lane]`` of the leading axis: ``[nodes, ..., lanes]`` to ``[..., lanes]``."""
    return jax.vmap(lambda column, at: column[at], in_axes=-1, out_axes=-1)(store, index)

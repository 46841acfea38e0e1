"""Conflict-Based Search over a batch of instances in lock step: the constraint tree, searched depth first.

A node is a set of constraints with a shortest path per agent under them; a conflict of these paths is resolved in
every possible way, one child each (Sharon et al. 2015). As in iterative-deepening CBS (Boyarski et al. 2020) the tree
is searched depth first up to a cost limit, which then grows: a lane then needs one node and a stack of what to undo
instead of a store of nodes, so that all lanes together stay in the cache and each may search for as long as it likes.
Cardinal conflicts come first, and a child as cheap as its parent with fewer conflicts takes the parent's place
(Boyarski et al. 2015, ICBS); children exclude each other (Li et al. 2019, disjoint splitting); an agent that passes
another's goal splits on that agent's arrival (Li et al. 2020, target reasoning); the cardinal conflicts of a node give
a lower bound on its cost (Felner et al. 2018, CBSH).

One iteration replans one agent in each lane. What a lane finds does not depend on its neighbours.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, Record, record
from jaxlake.solve.bitboard import NOWHERE, is_empty, one_hot, unguarded
from jaxlake.solve.bounds import num_pairs, sum_of_gaps
from jaxlake.solve.constraints import (
    Branch,
    Change,
    Level,
    branch_on,
    change,
    child,
    find_conflicts,
    fixing,
    forbidding,
)
from jaxlake.solve.lanes import fold, materialize, pick, put
from jaxlake.solve.node import DEPTH, RUNNING, Node, Problem, begin, total
from jaxlake.solve.paths import NARROW, Query, obstacles, shortest_paths, swaps
from jaxlake.types import ABSENT, Instance, Objective, Plan, Solution, Status

MAX_HORIZON = 127
UNBOUNDED = 1 << 12
"""A cost bound above every cost: five agents with 127 steps each cost less."""


@record
class Search(Record):
    """A search in every lane; opaque to others but for ``is_running`` and ``results``."""

    problem: Problem
    node: Node


def idle(instances: Instance, steps: int, objective: Objective) -> Search:
    """Lanes that do not search yet, in the shapes for instances ``[lanes]``."""
    bound = np.zeros(len(instances.size), np.int32)
    costs = np.zeros((len(bound), num_pairs(instances.max_agents)), np.int32)
    shapes = jax.eval_shape(lambda a, b, c: begin(a, b, c, steps, objective), instances, bound, costs)
    problem, node = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return Search(problem=problem, node=node)


@functools.partial(jax.jit, static_argnames=("objective",), donate_argnames=("search",))
def advance(
    search: Search,
    instances: Instance,
    cost_bound: Array,
    pair_costs: Array,
    renewed: Array,
    may_wait: Array,
    iterations: Array,
    enough: Array,
    objective: Objective,
) -> Search:
    """Start some lanes anew and search until few are left.

    Args:
      search: state of all lanes; consumed.
      instances: ``[lanes]``, read where renewed; one without agents is solved at once.
      cost_bound: int32 ``[lanes]``, ``UNBOUNDED`` for none.
      pair_costs: int32 ``[lanes, pairs]``, what each two agents cost at least together; 0 where unknown.
      renewed: bool ``[lanes]``.
      may_wait: bool ``[]``, whether agents may wait before their last arrival.
      iterations: int32 ``[]``, after how many a lane gives up.
      enough: int32 ``[]``, how many lanes may still be searching when this ends.
    """
    steps = search.node.paths.shape[1] - 1
    fresh = begin(instances, cost_bound, pair_costs, steps, objective)
    problem, node = jax.tree.map(lambda new, old: jnp.where(renewed, new, old), fresh, (search.problem, search.node))

    def iterate(carry: tuple[Node, jax.Array]) -> tuple[Node, jax.Array]:
        node, _ = carry
        node = _iterate(problem, node, may_wait, iterations, instances.max_size, objective)
        return node, jnp.sum(is_running(node, iterations), dtype=jnp.int32)

    many = jnp.sum(is_running(node, iterations), dtype=jnp.int32)
    node, _ = jax.lax.while_loop(lambda carry: carry[1] > enough, iterate, (node, many))
    return Search(problem=problem, node=node)


def is_running(node: Node, iterations: Array) -> jax.Array:
    """Return which lanes still search, bool ``[lanes]``: not decided and not given up."""
    return (node.status == RUNNING) & (node.iterations < iterations)


def _iterate(problem: Problem, node: Node, may_wait: Array, budget: Array, max_size: int, objective: Objective) -> Node:
    """Backtracks or branches, and then replans one agent, in every lane."""
    on = node.iterations[0] >= 0
    turn = materialize(on, functools.partial(_decide, objective=objective), problem, node, budget)
    node = node.replace(
        forbidden=forbidding(node.forbidden, turn.undone.forbidden, turn.done.forbidden),
        fixed=fixing(node.fixed, turn.undone.fixed, turn.done.fixed),
        park_min=turn.park_min,
        park_max=turn.park_max,
        paths=put(node.paths, turn.left.replanned, turn.left.path, turn.undo),
        arrivals=turn.arrivals,
        stack=write(node.stack, turn.at, turn.level, turn.enter),
    )
    agent = turn.level.replanned
    query = materialize(on, functools.partial(_query, max_size=max_size), problem, node, agent, turn.deadline, may_wait)
    found = shortest_paths(query, max_size, earliest=objective is Objective.SUM_OF_COSTS)
    got, failed = turn.asks & found.found, turn.asks & ~found.found
    steps = node.paths.shape[1] - 1
    park_max = pick(turn.park_max, agent)
    over_budget = failed & (turn.budget_left < park_max) & (turn.budget_left <= steps)
    over_horizon = failed & (turn.budget_left > steps) & (park_max > steps)
    paths = put(node.paths, agent, found.path, got)
    count, key, edges = find_conflicts(paths, on)
    return node.replace(
        status=turn.status,
        planned=turn.planned,
        cost_limit=turn.limit,
        cut=turn.cut | over_budget,
        beyond=node.beyond | over_horizon,
        failed=failed | turn.failed,
        fresh=turn.push,
        paths=paths,
        arrivals=put(node.arrivals, agent, found.arrival, got),
        depth=turn.depth,
        count=count,
        key=key,
        edges=edges,
        iterations=node.iterations + turn.running,
        expansions=node.expansions + turn.push,
    )


@record
class _Turn(Record):
    """Work of a lane in one iteration, ``[lanes]`` unless said otherwise.

    Attributes:
      running, undo, enter, push, asks: bool; searches at all, leaves a child, enters a child, of a new level, replans.
      left, level: the levels left and entered.
      undone, done: the changes that leaving takes back and entering makes.
      at, depth: int32, where the level entered goes in the stack, and its new depth.
      park_min, park_max, arrivals: int32 ``[agents, lanes]``.
      deadline, budget_left: int32, for the agent replanned, and what the cost limit alone leaves it.
      status, planned, limit, cut, failed: as in ``Node``.
    """

    running: Array
    undo: Array
    enter: Array
    push: Array
    asks: Array
    left: Level
    level: Level
    undone: Change
    done: Change
    at: Array
    depth: Array
    park_min: Array
    park_max: Array
    arrivals: Array
    deadline: Array
    budget_left: Array
    status: Array
    planned: Array
    limit: Array
    cut: Array
    failed: Array


def _decide(problem: Problem, node: Node, budget: Array, objective: Objective) -> _Turn:
    on = node.iterations[0] >= 0
    words = problem.free.shape[0]
    running = (node.status == RUNNING) & (node.iterations < budget)
    planning = running & (node.planned < problem.num_agents)
    left = materialize(on, read, node.stack, jnp.maximum(node.depth - 1, 0))

    clean = running & ~planning & ~node.failed
    solved = clean & (node.count == 0)
    least = total(node.arrivals, objective)
    if objective is Objective.SUM_OF_COSTS:
        least += sum_of_gaps(node.arrivals, node.edges, problem.pair_costs)
    hopeless = clean & ~solved & (least > node.cost_limit)
    back = running & ~planning & (node.failed | hopeless)
    forth = clean & ~solved & ~hopeless
    cheap = pick(node.arrivals, left.replanned) == left.arrival
    bypass = forth & node.fresh & (left.child == 0) & cheap & (node.count < left.count)

    # The tree below the cost limit is exhausted.
    exhausted = back & (node.depth == 0)
    cut = node.cut | hopeless
    limit = jnp.where(exhausted, jnp.maximum(node.cost_limit + 1, jnp.where(hopeless, least, 0)), node.cost_limit)
    refuted = exhausted & ~node.beyond & (~cut | (limit > problem.cost_bound))
    status = jnp.where(solved, Status.SOLVED, node.status)
    status = jnp.where(refuted, Status.UNSOLVABLE, status)
    status = jnp.where(exhausted & node.beyond, Status.OUT_OF_BUDGET, status)

    # Undo the constraint of the child that ended, and unless it takes its parent's place, its path.
    up = back & ~exhausted
    undo = up | bypass
    undone, park_min, park_max = change(
        node.park_min, node.park_max, left, jnp.where(undo, child(left.split, left.child), Branch.NONE), words, True
    )
    arrivals = put(node.arrivals, left.replanned, left.arrival, up)
    # A path that takes the place of its parent's is narrow where that one was: it was planned under more constraints.
    kept = (pick(node.paths, left.replanned) & np.uint8(NARROW - 1)) | (left.path & np.uint8(NARROW))
    left = left.replace(path=jnp.where(bypass, kept, left.path))
    sibling = up & (child(left.split, left.child + 1) != Branch.NONE)
    depth = node.depth - (undo & ~sibling)

    # The next child: of the same conflict, or of a new one.
    full = forth & (depth >= DEPTH)
    status = jnp.where(full, Status.OUT_OF_BUDGET, status)
    push = forth & ~full
    enter = push | sibling
    new = materialize(
        on, branch_on, node.key, node.count, node.paths, node.arrivals, node.fixed, undone, park_min, park_max
    )
    level = jax.tree.map(lambda a, b: jnp.where(sibling, a, b), left.replace(child=left.child + 1), new)
    branch = jnp.where(enter, child(level.split, level.child), Branch.NONE)
    replans_first = (branch == Branch.FREE) | (branch == Branch.NOT_ARRIVED) | (branch == Branch.FIX_AFTER)
    agent = jnp.where(replans_first, level.first, level.second)
    agent = jnp.where(planning, node.planned, agent)
    level = level.replace(
        replanned=agent,
        arrival=pick(arrivals, agent),
        path=jnp.where(undo & (agent == left.replanned), left.path, pick(node.paths, agent)),
        count=jnp.where(push, node.count, left.count),
    )
    done, park_min, park_max = change(park_min, park_max, level, branch, words, False)

    asks = enter | planning
    budget_left = limit
    if objective is Objective.SUM_OF_COSTS:
        budget_left = limit - total(arrivals, objective) + level.arrival
    steps = node.paths.shape[1] - 1
    deadline = jnp.minimum(jnp.minimum(budget_left, pick(park_max, agent)), steps)
    restart = exhausted & (objective is Objective.MAKESPAN)
    return _Turn(
        running=running,
        undo=undo,
        enter=enter,
        push=push,
        asks=asks,
        left=left,
        level=level,
        undone=undone,
        done=done,
        at=jnp.where(sibling, node.depth - 1, depth),
        depth=depth + push,
        park_min=park_min,
        park_max=park_max,
        arrivals=arrivals,
        deadline=jnp.where(asks, deadline, -1),
        budget_left=budget_left,
        status=status,
        planned=jnp.where(restart, 0, node.planned + planning),
        limit=limit,
        cut=cut & ~exhausted,
        failed=(node.failed & ~running) | (up & ~sibling),
    )


def _query(problem: Problem, node: Node, agent: Array, deadline: Array, may_wait: Array, max_size: int) -> Query:
    """Return one agent's moves per lane under the constraints, and the places of the others."""
    agents, length, words, _ = node.forbidden.shape
    mine = jnp.arange(agents, dtype=jnp.int32)[:, None] == agent
    times = jnp.arange(length, dtype=jnp.int32)[:, None]
    on = node.iterations[0] >= 0
    others_fixed = jnp.where(mine[:, None], jnp.uint8(NOWHERE), node.fixed)
    others = jnp.where(mine[:, None], jnp.uint8(NOWHERE), node.paths & np.uint8(NARROW - 1))
    goal = pick(problem.goals, agent)

    def allow(node: Node, others_fixed: Array, agent: Array) -> Array:
        must = pick(node.fixed, agent)
        parked = (times >= node.park_max[:, None]) & (jnp.arange(agents, dtype=jnp.int32)[:, None] != agent)[:, None]
        parked_on = jnp.where(parked, problem.goals[:, None], jnp.uint8(NOWHERE))
        banned = pick(node.forbidden, agent) | obstacles(others_fixed, words) | obstacles(parked_on, words)
        only = jnp.where((must == NOWHERE)[:, None], jnp.uint32(0xFFFFFFFF), one_hot(must, words))
        allowed: Array = problem.free & ~banned & only
        return allowed

    def latest(allowed: Array, goal: Array) -> jax.Array:
        return fold(jnp.maximum, jnp.where(is_empty(allowed & one_hot(goal, words)), times + 1, 0))

    others_fixed, others, goal = materialize(on, lambda *a: a, others_fixed, others, goal)
    allowed = materialize(on, allow, node, others_fixed, agent)
    return Query(
        start=pick(problem.starts, agent),
        goal=goal,
        allowed=allowed,
        occupied=obstacles(others, words),
        crossed=swaps(others, max_size, words),
        park_from=jnp.maximum(materialize(on, latest, allowed, goal), pick(node.park_min, agent)),
        deadline=deadline,
        may_wait=may_wait,
    )


def results(search: Search, lanes: np.ndarray, max_size: int, max_steps: int, objective: Objective) -> Solution:
    """Return what some lanes found, in numpy; each path is cut at its arrival and the plan empty unless solved."""
    node, problem = search.node, search.problem

    def of(part: Array) -> np.ndarray:
        return np.asarray(part)[..., lanes]

    status = of(node.status)
    status = np.where(status == RUNNING, Status.OUT_OF_BUDGET, status)
    solved = status == Status.SOLVED
    there = (of(problem.starts) != NOWHERE) & solved
    arrivals, distances = of(node.arrivals), of(problem.distances)
    lengths = np.where(there, arrivals + 1, 0)
    cells = np.asarray(unguarded(of(node.paths) & np.uint8(NARROW - 1), max_size))
    cells = np.where(np.arange(cells.shape[1])[:, None] < lengths[:, None], cells, ABSENT)
    paths = np.full((len(lanes), cells.shape[0], max_steps + 1), ABSENT, np.int32)
    paths[:, :, : cells.shape[1]] = np.moveaxis(cells, -1, 0)
    total = np.sum if objective is Objective.SUM_OF_COSTS else np.max
    return Solution(
        status=status.astype(np.int32),
        plan=Plan(
            parsable=solved,
            num_named=np.asarray(np.sum(there, axis=0, dtype=np.int32)),
            paths=paths,
            lengths=lengths.T.astype(np.int32),
        ),
        cost=np.where(solved, total(arrivals, axis=0), ABSENT).astype(np.int32),
        lower_bound=np.where(of(problem.reachable), total(distances, axis=0), ABSENT).astype(np.int32),
        expansions=of(node.expansions).astype(np.int32),
    )


def read(stack: Level, at: Array) -> Level:
    """Return the level at ``at`` of each lane's stack."""
    lane = jnp.arange(at.shape[0], dtype=jnp.int32)

    def read(rows: Array) -> Array:
        if rows.ndim == 2:
            return rows[at, lane]
        return rows[at, :, lane].T

    level: Level = jax.tree.map(read, stack)
    return level


def write(stack: Level, at: Array, level: Level, where: Array) -> Level:
    """Return the stack with ``level`` at ``at`` in the lanes of ``where``."""
    written: Level = jax.tree.map(lambda rows, row: put(rows, at, row, where), stack, level)
    return written

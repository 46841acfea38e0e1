"""State of a lane of Conflict-Based Search: its instance and its node of the constraint tree. Takes no step.

Everything is lane-minor, ``[..., lanes]``.
"""

import itertools

import jax
import jax.numpy as jnp

from jaxlake.flood import free_cells, shortest_paths
from jaxlake.record import Array, Record, record
from jaxlake.solve.bitboard import NOWHERE, guarded, num_words, pack
from jaxlake.solve.bounds import sum_of_gaps
from jaxlake.solve.constraints import Level
from jaxlake.types import ABSENT, Instance, Objective, Status

RUNNING = -1
"""The status of a lane that is not decided yet."""
NEVER = 255
"""The bound on an arrival that nothing limits."""
DEPTH = 48
"""Most branchings between the root and a node; a search that would go deeper gives up."""


@record
class Problem(Record):
    """The instances lane-minor, and what is asked of them.

    Attributes:
      free: uint32 ``[words, lanes]``.
      starts, goals: uint8 ``[agents, lanes]``, ``NOWHERE`` for an agent that is not there.
      distances: int32 ``[agents, lanes]`` from start to goal, 0 for an agent that is not there.
      reachable: bool ``[lanes]``, every agent has some path, and no two share their starts or goals.
      num_agents: int32 ``[lanes]``.
      cost_bound: int32 ``[lanes]``.
      pair_costs: int32 ``[pairs, lanes]``, what two agents cost at least.
    """

    free: Array
    starts: Array
    goals: Array
    distances: Array
    reachable: Array
    num_agents: Array
    cost_bound: Array
    pair_costs: Array


@record
class Node(Record):
    """The node at which each lane's search is.

    Attributes:
      status: int32 ``[lanes]``, a ``Status`` or ``RUNNING``.
      planned: int32 ``[lanes]``, how many paths of the root have been planned.
      cost_limit: int32 ``[lanes]``, no plan is cheaper.
      cut, beyond: bool ``[lanes]``, something was left out that costs more, or that needs more steps than there are.
      failed: bool ``[lanes]``, the last replanning found no path.
      fresh: bool ``[lanes]``, the last iteration entered a child.
      paths: uint8 ``[agents, steps + 1, lanes]`` with the flag ``NARROW``.
      arrivals: int32 ``[agents, lanes]``.
      forbidden: uint32 ``[agents, steps + 1, words, lanes]``.
      fixed: uint8 ``[agents, steps + 1, lanes]``, cells on which the agents must be; ``NOWHERE`` for none.
      park_min, park_max: int32 ``[agents, lanes]``, bounds on the last arrival.
      depth: int32 ``[lanes]``.
      stack: ``[depth, ..., lanes]``.
      count, key, edges: int32 ``[lanes]`` as ``find_conflicts`` gives them.
      iterations, expansions: int32 ``[lanes]``.
    """

    status: Array
    planned: Array
    cost_limit: Array
    cut: Array
    beyond: Array
    failed: Array
    fresh: Array
    paths: Array
    arrivals: Array
    forbidden: Array
    fixed: Array
    park_min: Array
    park_max: Array
    depth: Array
    stack: Level
    count: Array
    key: Array
    edges: Array
    iterations: Array
    expansions: Array


def begin(
    instances: Instance, cost_bound: Array, pair_costs: Array, steps: int, objective: Objective
) -> tuple[Problem, Node]:
    """Return the lanes of instances before their first iteration; arguments as in ``tree.advance``, and the horizon."""
    max_size, agents, lanes = instances.max_size, instances.max_agents, instances.size.shape[0]
    words = num_words(max_size)
    free = pack(jnp.moveaxis(free_cells(instances), 0, -1))
    starts, goals = guarded(instances.starts.T, max_size), guarded(instances.goals.T, max_size)
    there = starts != NOWHERE
    lengths = shortest_paths(instances).T
    reachable = jnp.all((lengths != ABSENT) | ~there, axis=0)
    for ends in (starts, goals):
        for one, other in itertools.combinations(range(agents), 2):
            reachable &= (ends[one] != ends[other]) | ~there[one]
    distances = jnp.maximum(lengths, 0)
    problem = Problem(
        free=free,
        starts=starts,
        goals=goals,
        distances=distances,
        reachable=reachable,
        num_agents=jnp.sum(there, axis=0, dtype=jnp.int32),
        cost_bound=jnp.asarray(cost_bound, jnp.int32),
        pair_costs=jnp.asarray(pair_costs, jnp.int32).T,
    )
    none, never = jnp.zeros(lanes, jnp.int32), jnp.zeros(lanes, bool)
    limit = total(distances, objective)
    if objective is Objective.SUM_OF_COSTS:
        limit += sum_of_gaps(distances, jnp.zeros(lanes, jnp.int32), jnp.asarray(pair_costs).T)
    else:
        limit = jnp.maximum(limit, jnp.max(pair_costs, axis=1, initial=0))
    status = jnp.where(~reachable | (limit > cost_bound), Status.UNSOLVABLE, RUNNING)
    status = jnp.where(reachable & jnp.any(distances > steps, axis=0), Status.OUT_OF_BUDGET, status)
    rows = jnp.zeros((DEPTH, lanes), jnp.int32)
    node = Node(
        status=status.astype(jnp.int32),
        planned=none,
        cost_limit=limit,
        cut=never,
        beyond=never,
        failed=never,
        fresh=never,
        paths=jnp.full((agents, steps + 1, lanes), NOWHERE, jnp.uint8),
        arrivals=distances,
        forbidden=jnp.zeros((agents, steps + 1, words, lanes), jnp.uint32),
        fixed=jnp.full((agents, steps + 1, lanes), NOWHERE, jnp.uint8),
        park_min=jnp.zeros((agents, lanes), jnp.int32),
        park_max=jnp.full((agents, lanes), NEVER, jnp.int32),
        depth=none,
        stack=Level(
            **dict.fromkeys(set(Level.__dataclass_fields__) - {"path"}, rows),
            path=jnp.full((DEPTH, steps + 1, lanes), NOWHERE, jnp.uint8),
        ),
        count=none,
        key=none,
        edges=none,
        iterations=none,
        expansions=none,
    )
    return problem, node


def total(arrivals: Array, objective: Objective) -> jax.Array:
    """Return the cost int32 ``[lanes]`` of arrivals ``[agents, lanes]``."""
    if objective is Objective.SUM_OF_COSTS:
        return jnp.sum(arrivals, axis=0, dtype=jnp.int32)
    return jnp.max(arrivals, axis=0)

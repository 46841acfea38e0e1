"""Exact solving on the host: hands instances to the batched searches and puts what they find in order."""

import concurrent.futures
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.levels import validate
from jaxlake.solve.bounds import num_pairs
from jaxlake.solve.exhaustive import search_exhaustively
from jaxlake.solve.pairs import search_pairs
from jaxlake.solve.tree import MAX_HORIZON, UNBOUNDED, Search, advance, idle, is_running, results
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Objective, Plan, Solution, Status

_PAIRS = 1024
"""Two-agent instances per batch."""


class _Stage(NamedTuple):
    """A stage of the search of constraint trees: instances at a time, horizon, and iterations per instance."""

    lanes: int
    steps: int
    iterations: int


_STAGES = (_Stage(lanes=256, steps=32, iterations=512), _Stage(lanes=32, steps=MAX_HORIZON, iterations=4096))
"""Fixed sizes, so that two programs serve every call. At 10x10 with 5 agents and a hole ratio of 0.2, 15 of 8,000
instances are left to the second stage. An iteration costs a lane 4 us in the first and 10 in the second, where fewer of
them wait for the hardest."""

_REFILL = 4
"""Lanes take new instances when one in so many is done."""

_THREADS = 2
"""Queues that are searched at once, since XLA hardly uses more than one core for operations as small as these: 21,000
instances/s against 17,000 at 10x10 with 5 agents and a hole ratio of 0.1."""


def solve(
    instances: Instance, objective: Objective | str = Objective.SUM_OF_COSTS, max_steps: int = MAX_STEPS
) -> Solution:
    """Optimal plans for one instance or a batch, in its order; numpy arrays. What is found depends on that one alone.

    Up to two agents are searched exhaustively (``search_pairs``), and always decided within the horizon. More are
    searched by Conflict-Based Search up to a budget, and what that leaves, all joint positions of (``exhaustive``), up
    to a budget again. So crowded and small boards are decided, whether there is a plan or not; on larger ones an
    instance without a plan is ``UNSOLVABLE`` where an agent or two of them have none even alone, and otherwise mostly
    ``OUT_OF_BUDGET``.

    Args:
      instances: ``[batch]``, any size of batch, or without batch axes, as the solution then is.
      objective: the cost that an optimal plan minimises; an ``Objective`` or its word, as wherever one is asked for.
      max_steps: the horizon, from 1 on. An instance whose optimum may need more steps is ``OUT_OF_BUDGET``.
    """
    objective, max_steps = Objective(objective), whole_number("max_steps", max_steps, 1, MAX_HORIZON)
    validate(instances)
    if np.ndim(instances.size) == 0:
        return solve(_batch_of(instances), objective, max_steps)[0]
    bounds = np.full(len(instances), UNBOUNDED, np.int32)
    return _search(instances, bounds, True, objective, max_steps)


def needs_wait(
    instances: Instance, solutions: Solution, objective: Objective | str = Objective.SUM_OF_COSTS
) -> np.ndarray:
    """Return bool ``[batch]`` or ``[]``: every optimal plan contains a wait before an agent's (last) arrival.

    Meaningful where the solution is ``SOLVED``; False where that search ran out of its budget, which
    ``without_waiting`` tells apart.
    """
    without = without_waiting(instances, solutions, objective)
    needed: np.ndarray = (np.asarray(solutions.status) == Status.SOLVED) & (without == Status.UNSOLVABLE)
    return needed


def waits(solutions: Solution) -> np.ndarray:
    """Return bool ``[...]``: the plan found contains a wait before an agent's (last) arrival, needed or not."""
    paths, lengths = np.asarray(solutions.plan.paths), np.asarray(solutions.plan.lengths)
    moved_to = np.arange(1, paths.shape[-1]) < lengths[..., None]
    waiting: np.ndarray = np.any(moved_to & (paths[..., 1:] == paths[..., :-1]), axis=(-2, -1))
    return waiting


def without_waiting(
    instances: Instance, solutions: Solution, objective: Objective | str = Objective.SUM_OF_COSTS
) -> np.ndarray:
    """Look for plans as cheap as the optimum without a wait; return the ``Status``, int32 ``[batch]`` or ``[]``.

    Args:
      instances: ``[batch]``, or one without batch axes.
      solutions: result of ``solve`` for them under the same objective. Where it is not ``SOLVED`` its own status is
        repeated.
    """
    objective = Objective(objective)
    validate(instances)
    chex.assert_equal_shape([solutions.status, instances.size])
    if np.ndim(instances.size) == 0:
        statuses: np.ndarray = without_waiting(_batch_of(instances), _batch_of(solutions), objective)[0]
        return statuses
    status = np.array(solutions.status)
    asked = (status == Status.SOLVED) & waits(solutions)
    indices = np.flatnonzero(asked)
    some = jax.tree.map(np.asarray, instances)[indices]
    max_steps = solutions.plan.paths.shape[-1] - 1
    status[indices] = _search(some, np.asarray(solutions.cost)[indices], False, objective, max_steps).status
    return status


def _search(
    instances: Instance, cost_bound: np.ndarray, may_wait: bool, objective: Objective, max_steps: int
) -> Solution:
    if instances.max_size > MAX_SIZE or instances.max_agents > MAX_AGENTS or max_steps > MAX_HORIZON:
        raise ValueError(
            f"max_size {instances.max_size}, max_agents {instances.max_agents} and max_steps {max_steps} must be at "
            f"most {MAX_SIZE}, {MAX_AGENTS} and {MAX_HORIZON}; jaxlake.pibt plans on larger boards"
        )
    task = _Task(
        instances=_with_nobody(instances),
        bounds=np.append(cost_bound, 0).astype(np.int32),
        pair_costs=np.zeros((len(cost_bound) + 1, num_pairs(instances.max_agents)), np.int32),
        may_wait=np.asarray(may_wait),
        objective=objective,
        result=undecided(len(cost_bound), instances.max_agents, max_steps),
    )
    few = np.asarray(instances.num_agents) <= 2
    pairs, pending = np.flatnonzero(few), np.flatnonzero(~few)
    found = _in_batches(
        lambda chunk: search_pairs(*task.take(chunk), task.may_wait, max_steps, objective), pairs, _PAIRS
    )
    if found is not None:
        task.keep(pairs, found)
    for number, stage in enumerate(_STAGES):
        if number:
            pending = _solve_pairs(task, pending)
        pending = _run(task, pending, stage)
    for index in pending.tolist():
        _exhaust(task, index)
    return task.result


@dataclasses.dataclass(frozen=True)
class _Task:
    """The work of all stages.

    Attributes:
      instances: ``[batch + 1]``; the last one, which index -1 names, has no agents.
      bounds: int32 ``[batch + 1]``, the greatest cost of interest.
      pair_costs: int32 ``[batch + 1, pairs]``, what each two agents cost at least, filled in for the hard ones.
      may_wait: bool ``[]``.
      result: ``[batch]`` in numpy, filled in by and by.
    """

    instances: Instance
    bounds: np.ndarray
    pair_costs: np.ndarray
    may_wait: np.ndarray
    objective: Objective
    result: Solution

    @property
    def max_steps(self) -> int:
        return self.result.plan.paths.shape[-1] - 1

    def take(self, indices: np.ndarray | int) -> tuple[Instance, np.ndarray]:
        return self.instances[indices], self.bounds[indices]

    def keep(self, indices: np.ndarray, found: Solution) -> None:
        for kept, part in zip(jax.tree.leaves(self.result), jax.tree.leaves(found), strict=True):
            kept[indices] = part


def _solve_pairs(task: _Task, pending: np.ndarray) -> np.ndarray:
    """Find what each two agents cost alone together, and return the indices of the instances not refuted by that."""
    if not len(pending):
        return pending
    agents = task.instances.max_agents
    couples = np.array(list(itertools.combinations(range(agents), 2)))
    which, couple = (part.reshape(-1) for part in np.meshgrid(pending, np.arange(len(couples)), indexing="ij"))
    there = couples[couple].max(axis=1) < task.instances.num_agents[which]
    which, couple = which[there], couple[there]

    def search(chunk: np.ndarray) -> Solution:
        instances, bounds = task.take(np.where(chunk < 0, -1, which[chunk]))
        at = np.arange(len(chunk))[:, None], couples[couple[chunk]]
        two = instances.replace(
            num_agents=np.where(chunk < 0, 0, 2).astype(np.int32),
            starts=instances.starts[at],
            goals=instances.goals[at],
        )
        solution: Solution = search_pairs(two, bounds, task.may_wait, task.max_steps, task.objective)
        return solution

    found = _in_batches(search, np.arange(len(which)), _PAIRS)
    task.pair_costs[which, couple] = np.maximum(found.cost, 0)
    task.result.status[which[found.status == Status.UNSOLVABLE]] = Status.UNSOLVABLE
    undecided: np.ndarray = pending[task.result.status[pending] == Status.OUT_OF_BUDGET]
    return undecided


def _run(task: _Task, pending: np.ndarray, stage: _Stage) -> np.ndarray:
    """Search the pending instances, write the results, and return the indices of those still undecided."""
    if not len(pending):
        return pending
    any_board = np.zeros(stage.lanes, int)
    lanes = idle(task.take(any_board)[0], min(stage.steps, task.max_steps), task.objective)
    # Compiled here, or every thread would compile.
    _advance(task, stage, _copy(lanes), any_board, np.zeros(stage.lanes, bool), 0)

    shares = [pending[thread::_THREADS] for thread in range(_THREADS)]
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda share: _queue(task, share, stage, lanes), shares))
    undecided: np.ndarray = pending[task.result.status[pending] == Status.OUT_OF_BUDGET]
    return undecided


def _queue(task: _Task, waiting: np.ndarray, stage: _Stage, search: Search) -> None:
    """Search the instances in a fixed number of lanes; a lane that is done takes the next one."""
    search = _copy(search)
    held, done, started = np.full(stage.lanes, -1), np.ones(stage.lanes, bool), 0
    while True:
        ready = np.flatnonzero(done & (held >= 0))
        if len(ready):
            found = results(search, ready, task.instances.max_size, task.max_steps, task.objective)
            task.keep(held[ready], found)
        free = np.flatnonzero(done)
        following = waiting[started : started + len(free)]
        started += len(following)
        held[free] = -1
        held[free[: len(following)]] = following
        if np.all(held < 0):
            return
        enough = stage.lanes - stage.lanes // _REFILL if started < len(waiting) else 0
        search = _advance(task, stage, search, held, done, enough)
        done = ~np.asarray(is_running(search.node, np.asarray(stage.iterations, np.int32)))


def _advance(task: _Task, stage: _Stage, search: Search, held: np.ndarray, renewed: np.ndarray, enough: int) -> Search:
    instances, bounds = task.take(held)
    budget, searching = np.asarray(stage.iterations, np.int32), np.asarray(enough, np.int32)
    costs = task.pair_costs[held]
    advanced: Search = advance(
        search, instances, bounds, costs, renewed, task.may_wait, budget, searching, task.objective
    )
    return advanced


def _exhaust(task: _Task, index: int) -> None:
    """Search all joint positions of one instance, and overwrite the verdict of the stages."""
    instance, bound = task.take(index)
    status, path = search_exhaustively(instance, int(bound), bool(task.may_wait), task.objective)
    if status is Status.UNSOLVABLE:
        task.result.status[index] = status
    if path is None or len(path) > task.max_steps + 1:
        return
    steps, agents = np.arange(len(path)), path.shape[1]
    away = path != instance.goals[:agents]
    arrivals = np.max(np.where(away, steps[:, None] + 1, 0), axis=0)
    plan = task.result.plan
    plan.parsable[index], plan.num_named[index] = True, agents
    plan.paths[index, :agents, : len(path)] = np.where(steps <= arrivals[:, None], path.T, ABSENT)
    plan.lengths[index, :agents] = arrivals + 1
    task.result.cost[index] = np.sum(arrivals) if task.objective is Objective.SUM_OF_COSTS else np.max(arrivals)
    task.result.status[index] = Status.SOLVED


def _batch_of(part: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], part)


def _copy(search: Search) -> Search:
    copied: Search = jax.tree.map(lambda part: part.copy(), search)
    return copied


def _in_batches(function: Callable[[np.ndarray], Any], indices: np.ndarray, lanes: int) -> Any:
    """Return the function's results for the indices, in numpy; None for no index. Index -1 fills up batches."""
    if not len(indices):
        return None
    filled = np.concatenate([indices, np.full(-len(indices) % lanes, -1, indices.dtype)])
    parts = [function(chunk) for chunk in filled.reshape(-1, lanes)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(indices)], *parts)


def _with_nobody(instances: Instance) -> Instance:
    """Return the instances in numpy and behind them one without agents, which costs the search nothing."""
    nobody = np.full((1, instances.max_agents), ABSENT, np.int32)
    zero = np.zeros(1, np.int32)
    no_holes = np.zeros((1, instances.max_size**2), bool)
    last = Instance(size=zero, num_agents=zero, holes=no_holes, starts=nobody, goals=nobody)
    extended: Instance = jax.tree.map(lambda part, end: np.concatenate([np.asarray(part), end]), instances, last)
    return extended


def undecided(batch: int, max_agents: int, max_steps: int) -> Solution:
    """Return what is known of instances before a search, numpy arrays ``[batch]``: no plan, and no cost."""
    plan = Plan(
        parsable=np.zeros(batch, bool),
        num_named=np.zeros(batch, np.int32),
        paths=np.full((batch, max_agents, max_steps + 1), ABSENT, np.int32),
        lengths=np.zeros((batch, max_agents), np.int32),
    )
    return Solution(
        status=np.full(batch, Status.OUT_OF_BUDGET, np.int32),
        plan=plan,
        cost=np.full(batch, ABSENT, np.int32),
        lower_bound=np.full(batch, ABSENT, np.int32),
        expansions=np.zeros(batch, np.int32),
    )

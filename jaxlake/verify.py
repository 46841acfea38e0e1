"""The eight validity checks and the costs of a whole plan, batched and jitted. Reads no text and searches nothing.

On a CPU, XLA is fast over small integers in plain loops and slow once it fuses much into one. So three programs follow
one another: where the agents are at each step, what that costs, and what it breaks. 65,536 plans of five agents and 64
steps take 59 ms of CPU time that way, 159 under an outer ``jit``, which joins them, and 450 in one program over int32.
They take seconds to compile, so whatever the batch is, they see a power of two of plans: a trainer whose last batch is
shorter does not wait for them again.
"""

import functools
import itertools
import math
import operator
from collections.abc import Iterable

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import levels
from jaxlake.flood import pack
from jaxlake.record import Array
from jaxlake.types import ABSENT, MAX_AGENTS, OUTSIDE, Costs, Instance, Objective, Plan, Verdict

_WORD = 32
Asked = tuple[Instance, Plan, Array]


def verify(
    instances: Instance, plans: Plan, optimum: Array, objective: Objective | str = Objective.SUM_OF_COSTS
) -> Verdict:
    """Judges plans on their instances; all arguments share their leading batch axes.

    Each check is evaluated on what the plan holds and passes where nothing is held: an agent that is not named breaks
    ``AGENT_COUNT`` alone, a cell off the board ``IN_BOUNDS`` alone. After the end of its path an agent stays on its
    last cell. Agents must not share a cell nor swap cells; following one another and rotations of three or more are
    allowed (Stern et al. 2019). An agent's cost is the time of its last arrival at its goal: staying there is free,
    leaving and coming back is charged until the return. The verdict's ``costs`` has the other conventions too.

    Args:
      instances: ``[...]``.
      plans: ``[...]``; agents from ``num_agents`` on count for ``num_named`` only.
      optimum: int32 ``[...]``, or ``[]`` for all, the least cost; ``ABSENT`` where unknown: nothing is optimal then.
    """
    objective, axes = Objective(objective), _check(instances, plans, optimum)
    asked: Asked = (instances, plans, optimum)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(asked)):
        return _verdicts(instances, plans, optimum, objective)
    count = math.prod(axes)
    room = 1 << max(count - 1, 0).bit_length()
    if axes == (room,):
        return _verdicts(instances, plans, optimum, objective)
    on_device = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(asked))
    instances, plans, optimum = (_padded_on_device if on_device else _padded)(asked, axes, room)
    verdicts: Verdict = _cut(_verdicts(instances, plans, optimum, objective), axes)
    return verdicts


def _verdicts(instances: Instance, plans: Plan, optimum: Array, objective: Objective) -> Verdict:
    cells, goals = _staying(instances, plans)
    verdicts: Verdict = _judge(instances, plans, optimum, cells, goals, _costs(cells, goals), objective)
    return verdicts


def first_failure(checks: Array) -> jax.Array:
    """Index of the first failing ``Check``, int32 ``[...]``; ``ABSENT`` where all of bool ``[..., 8]`` pass."""
    checks = jnp.asarray(checks)
    return jnp.where(jnp.all(checks, axis=-1), ABSENT, jnp.argmin(checks, axis=-1)).astype(jnp.int32)


def _check(instances: Instance, plans: Plan, optimum: Array) -> tuple[int, ...]:
    """Return the leading batch axes; AssertionError where something does not fit the instances."""
    axes, agents = levels.batch_axes(instances), instances.max_agents
    chex.assert_shape([plans.parsable, plans.num_named, plans.lengths], [axes, axes, (*axes, agents)])
    chex.assert_shape(plans.paths, (*axes, agents, None))
    if np.ndim(optimum):
        chex.assert_shape(optimum, axes)
    return axes


def _padded(asked: Asked, axes: tuple[int, ...], room: int) -> Asked:
    """Return the arrays with one batch axis of length ``room``, zeros from their own end on."""

    def padded(leaf: Array) -> Array:
        xp = jnp if isinstance(leaf, jax.Array) else np
        rest = np.shape(leaf)[len(axes) :]
        flat = xp.reshape(leaf, (math.prod(axes), *rest))
        longer: Array = xp.concatenate([flat, xp.zeros((room - len(flat), *rest), flat.dtype)])
        return longer

    instances, plans, optimum = asked
    xp = jnp if isinstance(optimum, jax.Array) else np
    filled: Asked = jax.tree.map(padded, (instances, plans, xp.broadcast_to(optimum, axes)))
    return filled


_padded_on_device = jax.jit(_padded, static_argnums=(1, 2))


@functools.partial(jax.jit, static_argnums=1)
def _cut(verdicts: Verdict, axes: tuple[int, ...]) -> Verdict:
    """Invert ``_padded`` for the results. One program: a slice each would compile three."""
    cut: Verdict = jax.tree.map(lambda leaf: leaf[: math.prod(axes)].reshape(*axes, *leaf.shape[1:]), verdicts)
    return cut


def _named(instances: Instance, plans: Plan) -> tuple[jax.Array, jax.Array]:
    """bool ``[..., agents]``: which agents a plan should name, and which of those it does."""
    expected = jnp.arange(instances.max_agents, dtype=jnp.int32) < instances.num_agents[..., None]
    return expected, expected & (plans.lengths > 0)


@jax.jit
def _staying(instances: Instance, plans: Plan) -> tuple[jax.Array, jax.Array]:
    """Return the cells of the named agents ``[..., agents, steps]`` and their goals ``[..., agents]``, else ``ABSENT``.

    Both are small integers. What a path names off the padded board is ``OUTSIDE``, whichever number it has.
    """
    top, steps = instances.max_size**2, jnp.arange(plans.paths.shape[-1], dtype=jnp.int32)
    last = jnp.take_along_axis(plans.paths, jnp.maximum(plans.lengths - 1, 0)[..., None], axis=-1)
    cells = jnp.where(steps < plans.lengths[..., None], plans.paths, last)
    cells = jnp.where((cells >= 0) & (cells < top), cells, OUTSIDE)
    _, named = _named(instances, plans)
    small = np.min_scalar_type(-top)
    return (
        jnp.where(named[..., None], cells, ABSENT).astype(small),
        jnp.where(named, instances.goals, ABSENT).astype(small),
    )


@functools.partial(jax.jit, static_argnames="objective")
def _judge(
    instances: Instance, plans: Plan, optimum: Array, cells: Array, goals: Array, costs: Costs, objective: Objective
) -> Verdict:
    expected, named = _named(instances, plans)
    breaks = _breaks_of_few if instances.max_agents <= MAX_AGENTS else _breaks_of_many
    outside, hole, jump, conflict = breaks(instances, cells)
    checks = jnp.stack(
        [
            plans.parsable,
            (plans.num_named == instances.num_agents) & jnp.all(named == expected, axis=-1),
            jnp.all(~named | (cells[..., 0] == instances.starts), axis=-1),
            ~outside,
            ~hole,
            ~jump,
            ~conflict,
            jnp.all(cells[..., -1] == goals, axis=-1),
        ],
        axis=-1,
    )
    valid = jnp.all(checks, axis=-1)
    costs = jax.tree.map(lambda cost: jnp.where(valid, cost, ABSENT), costs)
    cost = costs.sum_of_costs if objective is Objective.SUM_OF_COSTS else costs.makespan
    return Verdict(checks=checks, valid=valid, cost=cost, costs=costs, optimal=valid & (cost == optimum))


def _breaks_of_few(instances: Instance, cells: Array) -> tuple[jax.Array, ...]:
    """Whether a path leaves the board, enters a hole, jumps, and is in conflict with another, bool ``[...]`` each."""
    paths = jnp.unstack(cells, axis=-2)
    pairs = list(itertools.combinations(paths, 2))
    ever = functools.partial(_ever, shape=cells.shape[:-2])
    line = np.arange(instances.max_size) >= np.arange(instances.max_size + 1)[:, None]
    beyond = pack(jnp.asarray((line[:, :, None] | line[:, None, :]).reshape(len(line), -1)))[instances.size]
    holes = pack(instances.holes)
    return (
        ever((path == OUTSIDE) | _within(path, beyond) for path in paths),
        ever(_within(path, holes) for path in paths),
        ever(_jumps(path, instances.max_size) for path in paths),
        ever(itertools.starmap(_share, pairs)) | ever(itertools.starmap(_swap, pairs)),
    )


def _breaks_of_many(instances: Instance, cells: Array) -> tuple[jax.Array, ...]:
    """Return the same by loops of the program: 8,128 pairs of 128 agents, unrolled in it, would not compile."""
    axes, agents = cells.shape[:-2], cells.shape[-2]
    places = jnp.maximum(cells, 0).astype(jnp.int32)
    furthest = jnp.maximum(*jnp.divmod(places, np.int32(instances.max_size)))
    size = jnp.asarray(instances.size)[..., None, None]
    hole = jnp.take_along_axis(jnp.asarray(instances.holes), places.reshape(*axes, -1), axis=-1).reshape(cells.shape)

    def meet(distance: jax.Array, conflict: jax.Array) -> jax.Array:
        others = jnp.roll(cells, distance, axis=-2)
        return conflict | jnp.any(_share(cells, others), axis=(-2, -1)) | jnp.any(_swap(cells, others), axis=(-2, -1))

    return (
        jnp.any((cells == OUTSIDE) | (cells >= 0) & (furthest >= size), axis=(-2, -1)),
        jnp.any((cells >= 0) & hole, axis=(-2, -1)),
        jnp.any(_jumps(cells, instances.max_size), axis=(-2, -1)),
        jax.lax.fori_loop(1, agents // 2 + 1, meet, jnp.zeros_like(cells[..., 0, 0], bool)),
    )


def _within(path: Array, words: Array) -> Array:
    """bool ``[..., steps]``: the path is in the packed set. Selecting words is vectorised, a gather is not."""
    cell = path.astype(jnp.uint32)
    word = jnp.zeros_like(cell)
    for index in range(words.shape[-1]):
        word = jnp.where(cell // _WORD == index, words[..., index, None], word)
    return (path >= 0) & ((word >> (cell % _WORD)) & 1).astype(bool)


def _jumps(path: Array, max_size: int) -> Array:
    before, after = path[..., :-1].astype(jnp.int32), path[..., 1:].astype(jnp.int32)
    down = jax.lax.div(after, np.int32(max_size)) - jax.lax.div(before, np.int32(max_size))
    right = after - before - max_size * down
    return (before >= 0) & (after >= 0) & (jnp.abs(down) + jnp.abs(right) > 1)


def _share(ours: Array, theirs: Array) -> Array:
    return (ours >= 0) & (ours == theirs)


def _swap(ours: Array, theirs: Array) -> Array:
    on_board = (ours[..., :-1] >= 0) & (ours[..., 1:] >= 0)
    return on_board & (ours[..., :-1] == theirs[..., 1:]) & (ours[..., 1:] == theirs[..., :-1])


@jax.jit
def _costs(cells: Array, goals: Array) -> Costs:
    """Costs ``[...]`` of valid plans; ``cells`` is ``[..., agents, steps]`` and ``goals`` ``[..., agents]``."""
    agents, steps = cells.shape[-2:]
    time = np.min_scalar_type(steps)
    away = jnp.where(cells != goals[..., None], jnp.arange(1, steps + 1, dtype=jnp.int32), 0).astype(time)
    arrivals = jnp.max(jax.lax.optimization_barrier(away), axis=-1).astype(jnp.int32)

    count = np.min_scalar_type(agents * steps)
    lost = jnp.zeros((*cells.shape[:-2], 1), count)
    for agent in range(agents):
        away = cells[..., agent, :] != goals[..., agent, None]
        lost += (away[..., :-1] | away[..., 1:]).astype(count)
    return Costs(
        sum_of_costs=jnp.sum(arrivals, axis=-1, dtype=jnp.int32),
        sum_of_loss=jnp.sum(jax.lax.optimization_barrier(lost), axis=-1, dtype=count).astype(jnp.int32),
        makespan=jnp.max(arrivals, axis=-1),
    )


def _ever(flags: Iterable[Array], shape: tuple[int, ...]) -> jax.Array:
    """bool ``[...]`` of that shape: one of several bool ``[..., steps]``, possibly none, is True at some step."""
    return jnp.any(functools.reduce(operator.or_, flags, jnp.zeros((*shape, 1), bool)), axis=-1)

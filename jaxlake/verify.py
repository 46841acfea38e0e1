"""The eight validity checks and the cost of a whole plan, batched and jitted. Reads no text and searches nothing."""

import functools

import chex
import jax
import jax.numpy as jnp

from jaxlake.types import ABSENT, Instance, Objective, Plan, Verdict


@functools.partial(jax.jit, static_argnames="objective")
def verify(
    instances: Instance, plans: Plan, optimum: chex.Array, objective: Objective = Objective.SUM_OF_COSTS
) -> Verdict:
    """Judges plans on their instances; all arguments share their leading batch axes.

    Each check is evaluated on what the plan holds and passes where nothing is held: an agent that is not named breaks
    ``AGENT_COUNT`` alone, a cell off the board ``IN_BOUNDS`` alone. After the end of its path an agent stays on its
    last cell. Agents must not share a cell nor swap cells; following one another and rotations of three or more are
    allowed (Stern et al. 2019). An agent's cost is the time of its last arrival at its goal: staying there is free,
    leaving and coming back is charged until the return.

    Args:
      instances: ``[...]``.
      plans: ``[...]``; agents from ``num_agents`` on count for ``num_named`` only.
      optimum: int32 ``[...]``, the least cost; ``ABSENT`` where unknown, and then nothing is optimal.
      objective: what the cost is.
    """
    steps = jnp.arange(plans.paths.shape[-1])
    expected = jnp.arange(instances.max_agents) < instances.num_agents[..., None]
    named = expected & (plans.lengths > 0)
    held = named[..., None] & (steps < plans.lengths[..., None])
    row, column = jnp.divmod(plans.paths, instances.max_size)
    size = instances.size[..., None, None]
    inside = (plans.paths >= 0) & (row < size) & (column < size)

    first = plans.paths[..., 0]
    last_step = jnp.maximum(plans.lengths - 1, 0)[..., None]
    last = jnp.take_along_axis(plans.paths, last_step, axis=-1)
    staying = jnp.where(steps < plans.lengths[..., None], plans.paths, last)
    flat = staying.reshape(*staying.shape[:-2], -1)
    in_hole = jnp.take_along_axis(instances.holes, jnp.maximum(flat, 0), axis=-1).reshape(staying.shape)

    distance = jnp.abs(jnp.diff(row, axis=-1)) + jnp.abs(jnp.diff(column, axis=-1))
    on_board = plans.paths >= 0
    both_held = held[..., 1:] & on_board[..., :-1] & on_board[..., 1:]

    checks = jnp.stack(
        [
            plans.parsable,
            (plans.num_named == instances.num_agents) & jnp.all(named == expected, axis=-1),
            jnp.all(~named | (first == instances.starts), axis=-1),
            jnp.all(~held | inside, axis=(-2, -1)),
            jnp.all(~held | ~on_board | ~in_hole, axis=(-2, -1)),
            jnp.all(~both_held | (distance <= 1), axis=(-2, -1)),
            _conflict_free(staying, named),
            jnp.all(~named | (last[..., 0] == instances.goals), axis=-1),
        ],
        axis=-1,
    )
    valid = jnp.all(checks, axis=-1)
    away = held & (plans.paths != instances.goals[..., None])
    arrivals = jnp.max(jnp.where(away, steps + 1, 0), axis=-1)
    cost = jnp.sum(arrivals, axis=-1) if objective is Objective.SUM_OF_COSTS else jnp.max(arrivals, axis=-1)
    cost = jnp.where(valid, cost, ABSENT).astype(jnp.int32)
    return Verdict(checks=checks, valid=valid, cost=cost, optimal=valid & (cost == optimum))


def first_failure(checks: chex.Array) -> jax.Array:
    """Index of the first failing ``Check``, int32 ``[...]``; ``ABSENT`` where all of bool ``[..., 8]`` pass."""
    checks = jnp.asarray(checks)
    return jnp.where(jnp.all(checks, axis=-1), ABSENT, jnp.argmin(checks, axis=-1)).astype(jnp.int32)


def _conflict_free(staying: jax.Array, named: jax.Array) -> jax.Array:
    """bool ``[...]``: no two of the named agents on int32 paths ``[..., agents, steps]`` share or swap cells."""
    ours, theirs = staying[..., :, None, :], staying[..., None, :, :]
    on_board = (ours >= 0) & (theirs >= 0)
    same = on_board & (ours == theirs)
    crossed = on_board[..., :-1] & on_board[..., 1:] & (ours[..., :-1] == theirs[..., 1:])
    swap = crossed & (ours[..., 1:] == theirs[..., :-1])
    agents = jnp.arange(staying.shape[-2])
    pair = named[..., :, None] & named[..., None, :] & (agents[:, None] < agents)
    return ~jnp.any(pair & (jnp.any(same, axis=-1) | jnp.any(swap, axis=-1)), axis=(-2, -1))

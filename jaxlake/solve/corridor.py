"""A proof that two agents can never pass each other; what it does not prove says nothing. No search for a plan."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.types import ABSENT, Instance


@jax.jit
def deadlocked(instances: Instance) -> jax.Array:
    """bool ``[batch]``: two agents live on one corridor without a bay and would have to change their order.

    Two agents in a connected region with a cycle or with a cell of three neighbours can always exchange places, so
    for two agents whose shortest paths exist this decides solvability; for more it is one sufficient reason.

    Args:
      instances: ``[batch]``.
    """
    max_size, batch = instances.max_size, instances.size.shape[0]
    axis = jnp.arange(max_size)
    on_board = (axis[:, None] < instances.size[:, None, None]) & (axis < instances.size[:, None, None])
    free = (on_board & ~instances.holes.reshape(batch, max_size, max_size))[:, None]
    goals = instances.goals[..., None, None]
    cell = axis[:, None] * max_size + axis
    far = max_size**2

    def neighbours(board, outside):
        padded = jnp.pad(board, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=outside)
        return [padded[..., 1:-1, :-2], padded[..., 1:-1, 2:], padded[..., :-2, 1:-1], padded[..., 2:, 1:-1]]

    def spread(carry):
        distance, _ = carry
        nearest = jnp.stack(neighbours(distance, far)).min(axis=0) + 1
        shorter = jnp.where(free, jnp.minimum(distance, nearest), far)
        return shorter, jnp.any(shorter != distance)

    distance = jnp.where(free & (cell == goals), 0, far)
    distance, _ = jax.lax.while_loop(lambda carry: carry[1], spread, (distance, jnp.bool_(True)))

    region = distance < far
    degree = sum(part.astype(jnp.int32) for part in neighbours(free, False))
    straight = ~jnp.any(region & (degree > 2), axis=(-2, -1)) & jnp.any(region & (degree < 2), axis=(-2, -1))

    # Along a corridor with agent i's goal at 0 and agent j's at c > 0, a cell x has d_i = |x| and d_j = |x - c|, so
    # d_i^2 - d_j^2 = 2cx - c^2 grows with x.
    flat = distance.reshape(batch, -1, far)
    result = jnp.zeros(batch, bool)
    for i, j in zip(*np.triu_indices(instances.max_agents, 1), strict=True):
        start_i, start_j, goal_j = (
            at[:, None] for at in (instances.starts[:, i], instances.starts[:, j], instances.goals[:, j])
        )
        there = (instances.starts[:, i] != ABSENT) & (instances.starts[:, j] != ABSENT)

        def along(cell, i=i, j=j):
            d_i, d_j = (jnp.take_along_axis(flat[:, k], cell, axis=1)[:, 0] for k in (i, j))
            return d_i**2 - d_j**2, d_i

        (x_i, near_i), (x_j, near_j), (_, near_goal) = along(start_i), along(start_j), along(goal_j)
        together = (near_i < far) & (near_j < far) & (near_goal < far)
        result |= there & straight[:, i] & together & (x_i >= x_j)
    return result

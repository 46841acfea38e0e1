"""What PPO and GRPO share: a player's parameters with their optimizer, passes over a rollout, and sums over chunks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlake.record import Array, Record, record
from rl.students.player.actor import Actor


@record
class Learner(Record):
    """The trained parameters of an actor and their optimizer, each array with a leading axis of lanes.

    Lanes are actors that learn beside each other, each on boards and with a key of its own, as of several seeds or of
    several designs from one state. A lane's numbers do not depend on the lanes beside it.
    """

    parameters: Any
    optimizer: optax.OptState


def make_passes(
    gradient: Callable[[Any, Any], tuple[Any, dict[str, Array]]],
    optimizer: optax.GradientTransformation,
    learner: Learner,
    rows: Any,
    key: Array,
    passes: int,
    minibatches: int,
) -> tuple[Learner, dict[str, Array]]:
    """Pass over the steps of a rollout, each time in other parts, with an optimizer step for each part; one lane.

    Args:
      gradient: function from parameters and a part of the rows to the gradient of its loss and its metrics.
      rows: arrays ``[time, environments, ...]``.

    Returns:
      The learner, and the means of the metrics and of the gradient's norm.
    """
    steps = np.prod(jax.tree.leaves(rows)[0].shape[:2])
    rows = jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), rows)

    def minibatch(learner: Learner, chosen: Array) -> tuple[Learner, dict[str, Array]]:
        found, metrics = gradient(learner.parameters, jax.tree.map(lambda x: x[chosen], rows))
        updates, state = optimizer.update(found, learner.optimizer, learner.parameters)
        metrics["gradient_norm"] = optax.global_norm(found)
        return Learner(parameters=optax.apply_updates(learner.parameters, updates), optimizer=state), metrics

    def one_pass(learner: Learner, key: Array) -> tuple[Learner, dict[str, Array]]:
        return jax.lax.scan(minibatch, learner, jax.random.permutation(key, steps).reshape(minibatches, -1))

    learner, metrics = jax.lax.scan(one_pass, learner, jax.random.split(key, passes))
    return learner, jax.tree.map(jnp.mean, metrics)


def over_chunks(actor: Actor, function: Callable[[Any], Any], rows: Any, wanted: Array) -> Any:
    """Return the sum of what a function makes of the rows that are wanted; of an actor without chunks, of all of them.

    Args:
      rows: arrays with the axes of `wanted` first; its `weight` is 0 where nothing is wanted.
    """
    if actor.chunk is None:
        return function(rows)
    count, size = wanted.size, actor.chunk
    flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[wanted.ndim :]), rows)
    place = jnp.nonzero(wanted.reshape(-1), size=-(-count // size) * size, fill_value=count)[0]

    def some(number: Array, sums: Any) -> Any:
        chosen = jax.lax.dynamic_slice_in_dim(place, number * size, size)
        part = jax.tree.map(lambda x: x.at[chosen].get(mode="clip"), flat)
        part = part.replace(weight=jnp.where(chosen < count, part.weight, 0.0))
        return jax.tree.map(jnp.add, sums, function(part))

    shapes = jax.eval_shape(function, flat[:size])
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.fori_loop(0, -(-jnp.sum(wanted) // size), some, zeros)

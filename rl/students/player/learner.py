"""What the learners of a player weight: its parameters with their optimizer, and what a round of training gives."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from engineer.evidence import KindEvidence
from jaxlake.generate import Dataset
from jaxlake.levels import LevelBank
from jaxlake.record import Array, Record, record
from rl.config import StudentSection
from rl.students.base import Program
from rl.students.player.actor import Actor


@record
class Learner(Record):
    """The trained parameters of an actor and their optimizer, each array with a leading axis of lanes.

    Lanes are actors that learn beside each other, each on boards and with a key of its own, as of several seeds or of
    several designs from one state. A lane's numbers do not depend on the lanes beside it.
    """

    parameters: Any
    optimizer: optax.OptState


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a round of training gives.

    Attributes:
      learner: ``[lanes]``.
      metrics: float ``[lanes, updates]`` each.
      steps: environment steps of a lane, absent and finished boards left out.
      evidence: function from a lane to the rows of its kinds.
    """

    learner: Learner
    metrics: dict[str, np.ndarray]
    steps: float
    evidence: Callable[[int], tuple[KindEvidence, ...]]


class Trainer(Protocol):
    """Trains a player: `ppo.PPO` or `grpo.GRPO`.

    Attributes:
      name: in the words of a report.
      rate: the setting of the learning rate.
      student: the settings of the playing; replaced where a branch is to have another number of updates.
      optimizer: of the actor's parameters.
      summary: the settings in words, for an engineer.
    """

    name: str
    rate: str
    student: StudentSection
    summary: str

    @property
    def optimizer(self) -> optax.GradientTransformation: ...

    def programs(
        self, frozen: Any, learner: Learner, reference: Any, bank: LevelBank, optima: Array, mesh: Mesh
    ) -> list[Program]:
        """List the programs of an update of one lane, from abstract arrays."""
        ...

    def train_round(
        self,
        frozen: Any,
        learner: Learner,
        reference: Any,
        boards: Sequence[Dataset],
        keys: Array,
        check: Callable[[int], None] | None = None,
    ) -> Trained:
        """Train every lane's actor on its boards for `student.updates` updates.

        Args:
          frozen: parameters that all lanes weight and nobody trains.
          learner: ``[lanes]``, donated.
          reference: parameters of one lane that the divergence is measured from, where the settings ask for it.
          boards: of each lane, equally many.
          keys: ``[lanes]``.
          check: called between updates with the number of those made; may raise.
        """
        ...


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

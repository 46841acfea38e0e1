"""The trainer of turns: boards are played side by side, each move gets an advantage, and the clipped loss descends.

The baseline of an advantage is a setting. `value` learns a value: independent PPO (Schulman et al. 2017). `group`
compares the plays of a board: the GRPO of Shao et al. 2024. `fitted` fits a linear value of what a team sees to every
rollout: a policy gradient with a least-squares baseline (Duan et al. 2016).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from jaxlake.record import Array, Record, record
from rl.config import PlaySection
from rl.learn.loss import LossInputs, describe, token_losses
from rl.students.turns import rollout as rollouts
from rl.students.turns.actor import Actor, chunks, decide, lake_of, log_probabilities, of_action
from rl.students.turns.rollout import Boards, Ended, Environments, Rollout

DISCOUNT = 0.97
"""Discount of a reward one step later."""
RIDGE = 1.0
"""Weight of the square of a fitted baseline's coefficients, against one decision's error."""


@record
class Learner(Record):
    """The trained parameters of an actor and their optimizer, each array with a leading axis of lanes.

    Lanes are actors that learn beside each other, each on boards and with a key of its own, as of several seeds or of
    several designs from one state. A lane's numbers do not depend on the lanes beside it.
    """

    parameters: Any
    optimizer: optax.OptState


@record
class Decisions(Record):
    """What the loss reads of decisions ``[...]``."""

    view: Any
    legal: Array
    action: Array
    log_probability: Array
    reference: Array
    advantage: Array
    returns: Array
    weight: Array


@dataclasses.dataclass(frozen=True)
class TurnTrainer:
    """The static half of a player's training: hashable, so that equal trainers share their programs.

    Attributes:
      student: the settings of the student, its plays and its learning.
      optimizer: as the learner's state is of.
    """

    actor: Actor
    student: PlaySection
    optimizer: optax.GradientTransformation

    def train(
        self,
        frozen: Any,
        reference: Any,
        learner: Learner,
        boards: Boards,
        keys: Array,
        check: Callable[[int], None] | None = None,
    ) -> tuple[Learner, Ended, Mapping[str, Array]]:
        """Make a round's updates in every lane; see `update`.

        Args:
          check: called after each update with their number; may raise.

        Returns:
          The learner, the plays, and metrics float32, ``[lanes, updates, ...]`` on the host.
        """
        *each, first = jax.vmap(lambda key: jax.random.split(key, self.student.updates + 1), out_axes=1)(keys)
        playing, results = None, []
        if self.continues:
            playing = self.begin(boards, first)
            where = jax.tree.leaves(learner)[0].sharding
            if isinstance(where, NamedSharding):  # as the results of an update lie, lest the second compiles anew
                playing = jax.device_put(playing, NamedSharding(where.mesh, PartitionSpec()))
        for number, update_keys in enumerate(each):
            learner, playing, *result = self.update(frozen, reference, learner, playing, boards, update_keys)
            results.append(result)
            if check is not None:
                jax.block_until_ready(result)
                check(number + 1)
        ended, metrics = jax.tree.map(lambda *x: np.stack(x, axis=1), *jax.device_get(results))
        return learner, ended, metrics

    @functools.partial(jax.jit, static_argnums=0)
    def begin(self, boards: Boards, keys: Array) -> Environments:
        """Return every lane's environments ``[lanes, environments]`` at the beginning of plays."""
        return jax.vmap(self._begin)(boards, keys)

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=(3, 4))
    def update(
        self,
        frozen: Any,
        reference: Any,
        learner: Learner,
        playing: Environments | None,
        boards: Boards,
        keys: Array,
    ) -> tuple[Learner, Environments | None, Ended, dict[str, Array]]:
        """Play, compare the plays and learn from them once in every lane.

        Args:
          frozen: parameters that all lanes share and no update changes.
          reference: parameters of one lane that the divergence is measured from; None without a divergence.
          learner: ``[lanes]``, donated.
          playing: ``[lanes, environments]``, donated, where plays go on from update to update; else None.
          boards: ``[lanes, boards]``.
          keys: ``[lanes]``.
        """

        def one(learner: Learner, playing: Environments | None, boards: Boards, key: Array) -> Any:
            play_key, order_key = jax.random.split(key)
            rollout, last_value, playing = self.collect(learner.parameters, frozen, playing, boards, play_key)
            advantage, returns = self.advantages(rollout, last_value)
            rows = self.decisions(frozen, reference, rollout, advantage, returns)
            learner, metrics = self.learn(learner, frozen, rows, order_key)
            idle = jnp.sum(rollout.present & (advantage == 0)) / jnp.maximum(jnp.sum(rollout.present), 1)
            metrics |= rollouts.describe(rollout) | {"zero_advantage": idle}
            return learner, playing, rollouts.ended(rollout, advantage), metrics

        return jax.vmap(one)(learner, playing, boards, keys)

    @property
    def continues(self) -> bool:
        """Whether plays go on from one update to the next, with a value in place of the rewards still to come."""
        return self.student.learn.baseline == "value"

    @property
    def samples(self) -> int:
        """Plays of a board side by side; with a learned value each environment draws boards of its own."""
        return 1 if self.continues else self.student.learn.samples

    def collect(
        self, parameters: Any, frozen: Any, playing: Environments | None, boards: Boards, key: Array
    ) -> tuple[Rollout, Array, Environments | None]:
        """Play boards in one lane.

        With a learned value all environments play on for `student.rollout_steps` steps. Otherwise no play begins after
        these, and all are played to their end, after which `present` is False: were they cut off there, the short
        plays, most of them failures, would be more among those that count than among those that are played.

        Returns:
          The rollout, the values after its last step, float32 ``[environments, agents]``, and the plays that go on.
        """
        student, lake = self.student, lake_of(self.actor, self.student.reward)
        level_key, play_key = jax.random.split(key)
        policy = functools.partial(decide, self.actor, parameters, frozen)

        def step(environments: Environments, now: tuple[Array, Array]) -> tuple[Environments, Rollout]:
            time, key = now
            after, row = rollouts.advance(lake, policy, student.learn.temperature, boards.optima, environments, key)
            begins = row.done & (self.continues | (time + 1 < student.rollout_steps))
            number = environments.number + begins
            level = jnp.where(begins, self._draw(boards, level_key, number), environments.level)
            fresh = rollouts.begin(lake, self.actor, boards.bank, level)
            states = jax.tree.map(
                lambda new, old: jnp.where(begins.reshape(-1, *[1] * (new.ndim - 1)), new, old), fresh, after
            )
            playing = environments.playing & (begins | ~row.done)
            return Environments(states=states, level=level, number=number, playing=playing), row

        if playing is None:
            first, steps = self._begin(boards, level_key), student.rollout_steps + self.actor.episode_steps - 1
        else:
            first, steps = playing.replace(number=jnp.zeros_like(playing.number)), student.rollout_steps
        last, rollout = jax.lax.scan(step, first, (jnp.arange(steps), jax.random.split(play_key, steps)))
        if playing is None:
            return rollout, jnp.zeros_like(rollout.value[0]), None
        return rollout, policy(*rollouts.look(lake, last))[1], last

    def _begin(self, boards: Boards, key: Array) -> Environments:
        """Return a lane's environments at the beginning of plays."""
        number = jnp.zeros(self.student.environments, jnp.int32)
        level, lake = self._draw(boards, key, number), lake_of(self.actor, self.student.reward)
        states = rollouts.begin(lake, self.actor, boards.bank, level)
        return Environments(states=states, level=level, number=number, playing=number == 0)

    def _draw(self, boards: Boards, key: Array, number: Array) -> Array:
        """Draw the boards of the plays of these numbers ``[environments]``, the same for a group's environments."""

        def one(group: Array, number: Array) -> Array:
            return jax.random.randint(
                jax.random.fold_in(jax.random.fold_in(key, number), group), (), 0, len(boards.optima), jnp.int32
            )

        return jax.vmap(one)(jnp.arange(len(number)) // self.samples, number)

    def advantages(self, rollout: Rollout, last_value: Array) -> tuple[Array, Array]:
        """Return advantages and the returns that a value learns, float32 ``[time, environments, agents]``.

        Those against a value, learned or fitted, have a mean of 0 and a deviation of 1 over the decisions.
        """
        learn = self.student.learn
        match learn.baseline:
            case "group":
                return self._against_group(rollout), jnp.zeros_like(rollout.value)
            case "fitted":
                value = self._fit(rollout)
            case "value":
                value = rollout.value
        advantage = estimate_advantages(rollout, value, last_value, learn.gae_lambda)
        returns = advantage + value
        count = jnp.maximum(jnp.sum(rollout.present), 1)
        advantage = (advantage - jnp.sum(advantage * rollout.present) / count) * rollout.present
        return advantage / (jnp.sqrt(jnp.sum(advantage**2) / count) + 1e-5), returns

    def _groups(self, rollout: Rollout) -> tuple[Array, Array]:
        """Return the sum of an agent's rewards in each play, and whether it was played.

        Both are float32 ``[plays, groups, samples, agents]``. A group may lack plays, as each environment goes at its
        own pace.
        """
        present = rollout.present.astype(jnp.float32)
        worth = rollouts.sum_by_play(rollout, rollout.reward * present)
        played = rollouts.sum_by_play(rollout, present) > 0
        shape = len(worth), -1, self.samples, worth.shape[-1]
        return worth.reshape(shape), played.reshape(shape).astype(jnp.float32)

    def _against_group(self, rollout: Rollout) -> Array:
        """Return advantages of a play over its group, in the group's standard deviations (Shao et al. 2024).

        With `gae_lambda` below 1 they fade with the steps from a move to the play's end. That is generalised advantage
        estimation (Schulman et al. 2016) where every state of a play is worth its group's mean.
        """
        worth, played = self._groups(rollout)
        count = jnp.maximum(jnp.sum(played, axis=2, keepdims=True), 1)
        centred = (worth - jnp.sum(worth, axis=2, keepdims=True) / count) * played
        scaled = centred / (jnp.sqrt(jnp.sum(centred**2, axis=2, keepdims=True) / count) + 1e-4)
        advantage = rollouts.of_play(rollout, scaled.reshape(len(worth), -1, worth.shape[-1])) * rollout.present
        last = rollouts.of_play(rollout, rollouts.sum_by_play(rollout, jnp.where(rollout.done, rollout.length, 0)))
        return advantage * self.student.learn.gae_lambda ** (last - rollout.length)[..., None]

    def _fit(self, rollout: Rollout) -> Array:
        """Return values that least squares fits to the rewards to come, made anew from every rollout.

        They are linear in the features of what an agent sees, in their mean over its team, and in what the group's
        other plays are worth.
        """
        present = rollout.present[..., None].astype(jnp.float32)
        features = self.actor.features(rollout.view) * present
        team = jnp.sum(features, axis=2, keepdims=True) / jnp.maximum(jnp.sum(present, axis=2, keepdims=True), 1)
        worth, played = self._groups(rollout)
        size = (jnp.sum(played, axis=2, keepdims=True) - 1) * played
        total = (jnp.sum(worth, axis=2, keepdims=True) - worth) * played
        beside = jnp.stack([total / jnp.maximum(size, 1), size > 0], axis=-1)
        beside = rollouts.of_play(rollout, beside.reshape(len(worth), -1, *beside.shape[-2:]))
        rows = jnp.concatenate([features, jnp.broadcast_to(team, features.shape), beside, present], axis=-1) * present
        zero = jnp.zeros_like(rollout.value)
        to_come = estimate_advantages(rollout, zero, zero[0], 1.0) * rollout.present
        flat = rows.reshape(-1, rows.shape[-1])
        gram = flat.T @ flat + RIDGE * jnp.eye(flat.shape[1])
        return rows @ jnp.linalg.solve(gram, flat.T @ to_come.reshape(-1))

    def decisions(self, frozen: Any, reference: Any, rollout: Rollout, advantage: Array, returns: Array) -> Decisions:
        """Return what the loss reads of a rollout; the weights of the decisions add up to 1."""
        learn, wanted = self.student.learn, rollout.present
        weight = wanted / jnp.maximum(jnp.sum(wanted), 1)
        if learn.baseline == "group" and not (learn.kl_coefficient or learn.entropy_coefficient):
            weight = jnp.where(advantage == 0, 0, weight)  # nothing has a gradient there
        against = jnp.zeros_like(advantage)
        if learn.kl_coefficient > 0:
            logits, _ = decide(self.actor, reference, frozen, rollout.view, rollout.legal, wanted)
            against = of_action(log_probabilities(logits / learn.temperature, rollout.legal), rollout.action)
        return Decisions(
            view=rollout.view,
            legal=rollout.legal,
            action=rollout.action,
            log_probability=rollout.log_probability,
            reference=against,
            advantage=advantage,
            returns=returns,
            weight=weight,
        )

    def learn(self, learner: Learner, frozen: Any, rows: Decisions, key: Array) -> tuple[Learner, dict[str, Array]]:
        """Pass over the steps `learn.iterations` times in random order, in `learn.minibatches` updates each.

        Returns:
          The learner, and the means of the metrics and of the gradient's norm.
        """
        learn, (time, environments, _) = self.student.learn, rows.weight.shape
        steps, size = time * environments, -(-time * environments // self.student.learn.minibatches)
        rows = jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), rows)

        def minibatch(learner: Learner, wanted: Array) -> tuple[Learner, dict[str, Array]]:
            place = jnp.nonzero(wanted, size=size, fill_value=steps)[0]
            part = jax.tree.map(lambda x: x.at[place].get(mode="clip"), rows)
            part = part.replace(weight=jnp.where((place < steps)[:, None], part.weight, 0))
            gradient, metrics = self._gradient(learner.parameters, frozen, part)
            updates, state = self.optimizer.update(gradient, learner.optimizer, learner.parameters)
            metrics["gradient_norm"] = optax.global_norm(gradient)
            return Learner(parameters=optax.apply_updates(learner.parameters, updates), optimizer=state), metrics

        def one_pass(learner: Learner, key: Array) -> tuple[Learner, dict[str, Array]]:
            part = jax.random.permutation(key, steps) % learn.minibatches
            return jax.lax.scan(minibatch, learner, part == jnp.arange(learn.minibatches)[:, None])

        learner, metrics = jax.lax.scan(one_pass, learner, jax.random.split(key, learn.iterations))
        return learner, jax.tree.map(jnp.mean, metrics)

    def _gradient(self, parameters: Any, frozen: Any, rows: Decisions) -> tuple[Any, dict[str, Array]]:
        """Return the gradient of the loss of the decisions that have a weight, and its metrics."""
        gradient, wanted = functools.partial(jax.grad(self._loss, has_aux=True), parameters, frozen), rows.weight > 0

        def add(sums: Any, part: Decisions, numbers: Array) -> Any:
            part = part.replace(weight=jnp.where(numbers < wanted.size, part.weight, 0))
            return jax.tree.map(jnp.add, sums, gradient(part))

        one = jax.tree.map(lambda x: x[0, :1], rows)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, one))
        total, sums = chunks(self.actor.chunk, wanted, rows, add, zeros)
        count, loss = jnp.maximum(sums.pop("decisions"), 1), sums.pop("loss")
        return total, {"loss": loss} | {name: x / count for name, x in sums.items()}

    def _loss(self, parameters: Any, frozen: Any, rows: Decisions) -> tuple[Array, dict[str, Array]]:
        """Return the clipped loss of decisions ``[n]``, with a squared error where a value is learned."""
        learn, mask = self.student.learn, rows.weight > 0
        logits, value = self.actor.forward(parameters, frozen, rows.view, rows.legal)
        logits = log_probabilities(logits / learn.temperature, rows.legal)
        entropy = -jnp.sum(jnp.exp(logits) * logits * rows.legal, axis=-1)
        inputs = LossInputs(
            log_probability=of_action(logits, rows.action),
            old=rows.log_probability,
            sampler=rows.log_probability,
            advantage=rows.advantage,
            entropy=entropy,
            mask=mask,
            reference=rows.reference,
            clip_low=learn.clip_low,
            clip_high=learn.clip_high,
        )
        losses, metrics = token_losses(inputs, learn)
        metrics = {name: x for name, x in metrics.items() if not name.endswith("_max")}
        if learn.baseline == "value":
            metrics["value_loss"] = 0.5 * (value - rows.returns) ** 2
            losses += metrics["value_loss"]
        loss = learn.minibatches * jnp.sum(jnp.where(mask, losses, 0) * rows.weight)  # a part stands for the whole
        decisions = jnp.sum(mask).astype(jnp.float32)
        return loss, {**describe(metrics, mask), "loss": loss, "decisions": decisions}


def estimate_advantages(rollout: Rollout, value: Array, last_value: Array, gae_lambda: float) -> Array:
    """Return generalised advantage estimates (Schulman et al. 2016), float32 ``[time, environments, agents]``.

    A play that runs out of steps is over like any other: the actor sees how much of it is left.

    Args:
      last_value: what a play that goes on is worth after the last step, ``[environments, agents]``.
    """

    def back(carry: tuple[Array, Array], step: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        (advantage, next_value), (reward, done, value) = carry, step
        goes_on = 1.0 - done.astype(jnp.float32)[:, None]
        error = reward + DISCOUNT * next_value * goes_on - value
        advantage = error + DISCOUNT * gae_lambda * goes_on * advantage
        return (advantage, value), advantage

    first = jnp.zeros_like(last_value), last_value
    return jax.lax.scan(back, first, (rollout.reward, rollout.done, value), reverse=True)[1]

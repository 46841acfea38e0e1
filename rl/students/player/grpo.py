"""GRPO of a player: plays of one board are a group, and a play's worth against its group's is each move's advantage.

In each update `student.environments` boards are played side by side, `learn.samples` of them the same one, for
`student.rollout_steps` steps and on to the end of each play. No value is learned. Advantages, loss and optimizer are
those of plans (`rl.learn`), with a decision in a token's place.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from jaxlake.arguments import seed_key
from jaxlake.levels import LevelBank
from jaxlake.record import Array, Record, record
from jaxlake.types import ABSENT, Instance
from rl.config import PlaySection, TurnLearnSection
from rl.config.choices import Advantage, Baseline
from rl.learn import optimizer as optimizers
from rl.learn.advantages import advantages
from rl.learn.loss import LossInputs, describe, token_losses
from rl.model import sharding
from rl.students.base import Program
from rl.students.player import ppo
from rl.students.player import rollout as rollouts
from rl.students.player.actor import Actor, decide, lake_of, log_probabilities, of_action
from rl.students.player.learner import Learner, make_passes, over_chunks
from rl.students.player.rollout import Played, Rollout

RIDGE = 1.0
"""Weight of the square of a fitted baseline's coefficients, against one decision's error."""


def summary(student: PlaySection, boards: int, who: str) -> str:
    """Return the learning as the settings have it, in words for an engineer."""
    settings = student.learn
    return (
        f"GRPO of {who}, {student.updates} updates a round of {student.environments} boards and "
        f"{student.rollout_steps} steps each, {settings.samples} plays of a board side by side, temperature "
        f"{settings.temperature:g}, learning rate {settings.learning_rate:g} ({settings.schedule}), baseline "
        f"{settings.baseline}, clip {settings.clip_low:g} and {settings.clip_high:g}, "
        f"{rollouts.in_words(student, boards)}"
    )


@functools.cache
def make_optimizer(actor: Actor, settings: TurnLearnSection, updates: int) -> optax.GradientTransformation:
    """Return the optimizer that plans have, as the actor takes it; one object for equal arguments."""
    return actor.adapt(optimizers.make_optimizer(settings, updates))


def programs(
    actor: Actor,
    student: PlaySection,
    settings: TurnLearnSection,
    optimizer: optax.GradientTransformation,
    frozen: Any,
    reference: Any,
    learner: Learner,
    bank: LevelBank,
    optima: Array,
    mesh: Mesh,
) -> list[Program]:
    """List the programs of an update of one lane, from abstract arrays."""
    keys = jax.random.split(seed_key(0), 1)
    plays = student, settings, frozen, learner.parameters, bank, optima, keys
    rollout = jax.eval_shape(functools.partial(collect, actor, *plays[:2]), *plays[2:])
    played = jax.eval_shape(lambda: jax.vmap(lambda _: rollouts.no_plays(len(bank)))(keys))
    rollout, played = sharding.abstract((rollout, played), mesh)
    learns = frozen, reference, learner, played, rollout, rollout.value, rollout.value, keys
    return [
        Program("rollout", functools.partial(collect.lower, actor, *plays), plays[2:4], (learner.optimizer, reference)),
        Program("update", functools.partial(update.lower, actor, settings, optimizer, *learns), learns[:5]),
    ]


def train_round(
    actor: Actor,
    student: PlaySection,
    settings: TurnLearnSection,
    optimizer: optax.GradientTransformation,
    frozen: Any,
    reference: Any,
    learner: Learner,
    levels: Instance,
    optima: Array,
    keys: Array,
    check: Callable[[int], None] | None = None,
) -> tuple[Learner, Played, Mapping[str, Array]]:
    """Train every lane's actor on its levels for `student.updates` updates; see `ppo.train_round`.

    Args:
      optimizer: as the learner's state is of.
      reference: parameters of one lane that the divergence is measured from; None where it is not.
      check: called after each update, with their number; may raise.
    """
    bank, rows = rollouts.make_bank(student, levels), list[dict[str, Array]]()
    played = jax.vmap(lambda _: rollouts.no_plays(optima.shape[1]))(keys)
    for number in range(student.updates):
        both = jax.vmap(lambda key, number=number: jax.random.split(jax.random.fold_in(key, number)))(keys)
        play_keys, order_keys = jnp.moveaxis(both, 1, 0)
        rollout = collect(actor, student, settings, frozen, learner.parameters, bank, optima, play_keys)
        facts = zip(*jax.device_get((rollout.reward, rollout.done, rollout.present)), strict=True)
        found = [compare(settings, *of_lane) for of_lane in facts]
        advantage, others, weight = (np.stack(part) for part in zip(*found, strict=True))
        if settings.baseline is Baseline.FITTED:
            advantage = fit(actor, settings, rollout, others)
        learner, played, metrics = update(
            actor, settings, optimizer, frozen, reference, learner, played, rollout, advantage, weight, order_keys
        )
        rows.append(jax.device_get(metrics))
        if check is not None:
            check(number + 1)
    return learner, played, jax.tree.map(lambda *x: np.stack(x, axis=1), *rows)


def compare(
    settings: TurnLearnSection, reward: np.ndarray, done: np.ndarray, present: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare the plays of groups, and return what follows for each decision of a rollout.

    A play is worth the sum of an agent's rewards, and is compared with what the same agent got in the other plays of
    its group: those of the same number in the `learn.samples` environments side by side. A group may lack plays, as
    each environment goes at its own pace. What a rollout cuts off is worth nothing that is known, and has no weight.

    With `learn.gae_lambda` below 1 a play's advantage fades with the steps from a move to the play's end. That is
    generalised advantage estimation (Schulman et al. 2016) where every state of a play is worth its group's mean.

    Args:
      reward: float ``[time, environments, agents]``.
      done: bool ``[time, environments]``, whether a play ended with the step.
      present: bool ``[time, environments, agents]``, whether it is a decision at all.

    Returns:
      The advantages, float32 ``[time, environments, agents]``, 0 if they are `fit`. The mean worth of the group's other
      plays, 0 without any, and whether there are some, float32 ``[..., 2]``. And the weights in the loss, float32
      ``[time, environments, agents]``; those of all decisions that count add up to 1.
    """
    steps, environments, agents = present.shape
    number = np.cumsum(done, axis=0) - done  # of a play in its environment
    play = number * environments + np.arange(environments)  # [time, environments]
    plays = (int(number.max()) + 1) * environments
    ended = np.zeros(plays, bool)
    ended[play[done]] = True
    mask = present & ended[play][..., None]

    each = play[..., None] * agents + np.arange(agents)  # of a play and an agent
    worth = np.bincount(each.ravel(), np.where(mask, reward, 0).ravel(), plays * agents)
    counts = np.flatnonzero(np.bincount(each[mask], minlength=plays * agents))
    group = np.arange(plays) // environments * environments + np.arange(plays) % environments // settings.samples
    group = (group[:, None] * agents + np.arange(agents)).ravel()
    size = np.bincount(group[counts], minlength=len(group))[group] - 1
    total = np.bincount(group[counts], worth[counts], len(group))[group] - worth
    others = np.stack([np.where(size > 0, total / np.maximum(size, 1), 0), size > 0], axis=-1)[each]

    of_play = np.zeros(plays * agents, np.float32)
    if settings.baseline is not Baseline.FITTED:
        of_play[counts] = advantages(worth[counts].astype(np.float32), group[counts], Advantage.GROUP_STD)
    left, to_end = np.zeros(done.shape, np.int32), np.zeros(environments, np.int32)
    for time in reversed(range(steps)):
        left[time] = to_end = np.where(done[time], 0, to_end + 1)
    advantage = np.where(mask, of_play[each] * np.float32(settings.gae_lambda) ** left[..., None], 0)

    weight = mask / max(int(mask.sum()), 1)
    return advantage.astype(np.float32), others.astype(np.float32), weight.astype(np.float32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def fit(actor: Actor, settings: TurnLearnSection, rollout: Rollout, others: Array) -> Array:
    """Return advantages against a baseline that is fitted to each lane's rollout by least squares.

    The baseline is linear in the features of what an agent sees, in their mean over its team, and in what the group's
    other plays are worth. It is made anew from every rollout, so that nothing is learned beside the policy.

    Args:
      others: see `compare`.

    Returns:
      float32 ``[lanes, time, environments, agents]`` with a mean of 0 and a deviation of 1 over the decisions.
    """

    def one(rollout: Rollout, others: Array) -> Array:
        present = rollout.present[..., None].astype(jnp.float32)
        own = actor.features(rollout.view) * present
        team = jnp.sum(own, axis=2, keepdims=True) / jnp.maximum(jnp.sum(present, axis=2, keepdims=True), 1)
        rows = jnp.concatenate([own, jnp.broadcast_to(team, own.shape), others, present], axis=-1) * present

        def back(follows: jax.Array, step: Rollout) -> tuple[jax.Array, jax.Array]:
            follows = jnp.asarray(step.reward + ppo.DISCOUNT * follows * ~step.done[:, None])
            return follows, follows

        to_come = jax.lax.scan(back, jnp.zeros_like(rollout.reward[0]), rollout, reverse=True)[1] * present[..., 0]
        flat = rows.reshape(-1, rows.shape[-1])
        gram = flat.T @ flat + RIDGE * jnp.eye(flat.shape[1])
        value = rows @ jnp.linalg.solve(gram, flat.T @ to_come.reshape(-1))
        advantage = ppo.estimate_advantages(rollout.replace(value=value), jnp.zeros_like(value[0]), settings.gae_lambda)
        count = jnp.maximum(jnp.sum(present), 1)
        centred = (advantage - jnp.sum(advantage * present[..., 0]) / count) * present[..., 0]
        return centred / (jnp.sqrt(jnp.sum(centred**2) / count) + 1e-5)

    return jax.vmap(one)(rollout, others)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def collect(
    actor: Actor,
    student: PlaySection,
    settings: TurnLearnSection,
    frozen: Any,
    parameters: Any,
    bank: LevelBank,
    optima: Array,
    keys: Array,
) -> Rollout:
    """Play boards in all lanes; `present` is False once an environment has no play any more.

    The environments of a group begin the same boards in the same order. No play begins after `student.rollout_steps`
    steps, and all are played to their end: were they cut off there, the short plays, most of them failures, would be
    more among those that count than among those that are played.
    """
    lake, count = lake_of(actor, student.reward), student.environments
    group = jnp.arange(count) // settings.samples

    def one(parameters: Any, bank: LevelBank, optima: Array, key: Array) -> Rollout:
        level_key, play_key = jax.random.split(key)

        def draw(number: Array) -> Array:
            """Draw the levels of the plays of these numbers ``[environments]``."""

            def one(group: Array, number: Array) -> Array:
                at = jax.random.fold_in(jax.random.fold_in(level_key, number), group)
                return jax.random.randint(at, (), 0, len(bank), jnp.int32)

            return jax.vmap(one)(group, number)

        def step(carry: Any, at: tuple[Array, Array]) -> tuple[Any, Rollout]:
            environments, number, plays = carry
            time, key = at
            states, place, *_ = environments
            wanted = (states.positions != ABSENT) & plays[:, None]
            after, rollout = rollouts.advance(
                lake, actor, settings.temperature, optima, parameters, frozen, environments, wanted, key
            )
            done = rollout.done & plays
            begins = done & (time + 1 < student.rollout_steps)
            number = number + begins
            place = jnp.where(begins, draw(number), place)
            carry = rollouts.restart(lake, actor, bank, after, begins, place), number, plays & (begins | ~done)
            return carry, rollout.replace(done=done, outcome=jnp.where(done, rollout.outcome, ABSENT))

        number = jnp.zeros(count, jnp.int32)
        first = rollouts.begin(lake, actor, bank, draw(number)), number, jnp.ones(count, bool)
        return jax.lax.scan(step, first, (jnp.arange(student.steps), jax.random.split(play_key, student.steps)))[1]

    return jax.vmap(one)(parameters, bank, optima, keys)


@record
class _Decisions(Record):
    """What the loss needs of decisions ``[...]``."""

    view: Any
    legal: Array
    action: Array
    log_probability: Array
    reference: Array
    advantage: Array
    weight: Array


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(5, 6))
def update(
    actor: Actor,
    settings: TurnLearnSection,
    optimizer: optax.GradientTransformation,
    frozen: Any,
    reference: Any,
    learner: Learner,
    played: Played,
    rollout: Rollout,
    advantage: Array,
    weight: Array,
    keys: Array,
) -> tuple[Learner, Played, dict[str, Array]]:
    """Pass over the rollout of each lane `learn.iterations` times, and add its plays to those of the round."""

    def tempered(logits: Array, legal: Array) -> Array:
        return log_probabilities(logits / settings.temperature, legal)

    def loss(parameters: Any, rows: _Decisions) -> tuple[jax.Array, dict[str, jax.Array]]:
        logits = tempered(actor.forward(parameters, frozen, rows.view, rows.legal)[0], rows.legal)
        mask = rows.weight > 0
        inputs = LossInputs(
            log_probability=of_action(logits, rows.action),
            old=rows.log_probability,
            sampler=rows.log_probability,
            advantage=rows.advantage,
            entropy=-jnp.sum(jnp.exp(logits) * logits * rows.legal, axis=-1),
            mask=mask,
            reference=rows.reference,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
        )
        losses, described = token_losses(inputs, settings)
        # A pass goes in parts, each of which stands for the whole.
        value = settings.minibatches * jnp.sum(jnp.where(mask, losses, 0) * rows.weight)
        sums = describe({name: x for name, x in described.items() if not name.endswith("_max")}, mask)
        return value, sums | {"loss": value, "decisions": jnp.sum(mask).astype(jnp.float32)}

    def gradient(parameters: Any, rows: _Decisions) -> tuple[Any, dict[str, Array]]:
        part = functools.partial(jax.grad(loss, has_aux=True), parameters)
        found, sums = over_chunks(actor, part, rows, rows.weight > 0)
        count, value = jnp.maximum(sums.pop("decisions"), 1), sums.pop("loss")
        return found, {"loss": value} | {name: total / count for name, total in sums.items()}

    def one(learner: Learner, played: Played, rollout: Rollout, advantage: Array, weight: Array, key: Array) -> Any:
        if settings.needs_advantage:  # else nothing has a gradient
            weight = jnp.where(advantage != 0, weight, 0)
        against = jnp.zeros_like(advantage)
        if settings.kl_coefficient > 0:

            def at(step: tuple[Any, Array, Array, Array]) -> Array:
                view, legal, action, weight = step
                logits, _ = decide(actor, reference, frozen, view, legal, weight > 0)
                return of_action(tempered(logits, legal), action)

            against = jax.lax.map(at, (rollout.view, rollout.legal, rollout.action, weight))
        rows = _Decisions(
            view=rollout.view,
            legal=rollout.legal,
            action=rollout.action,
            log_probability=rollout.log_probability,
            reference=against,
            advantage=advantage,
            weight=weight,
        )
        learner, metrics = make_passes(
            gradient, optimizer, learner, rows, key, settings.iterations, settings.minibatches
        )
        idle = jnp.sum(rollout.present & (advantage == 0)) / jnp.maximum(jnp.sum(rollout.present), 1)
        metrics |= rollouts.describe(rollout) | {"zero_advantage": idle}
        return learner, rollouts.count(played, rollout, advantage), metrics

    return jax.vmap(one)(learner, played, rollout, advantage, weight, keys)

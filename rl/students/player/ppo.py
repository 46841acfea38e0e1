"""Independent PPO with one actor for all agents: the programs of a round of training."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxlake.arguments import seed_key
from jaxlake.levels import LevelBank
from jaxlake.record import Array, Record, record
from jaxlake.types import ABSENT, Instance
from rl.config import PlaySection, TurnLearnSection
from rl.model import sharding
from rl.students.base import Program
from rl.students.player import rollout as rollouts
from rl.students.player.actor import Actor, decide, lake_of, of_action
from rl.students.player.learner import Learner, make_passes, over_chunks
from rl.students.player.rollout import Played, Rollout

DISCOUNT = 0.97
"""Discount of a reward one step later."""
MAX_NORM = 0.5
"""Largest norm of a gradient."""


@record
class _Decisions(Record):
    """What the loss needs of decisions ``[...]``: views, legal actions, what was done, and what it was worth."""

    view: Any
    legal: Array
    action: Array
    log_probability: Array
    advantage: Array
    returns: Array
    weight: Array


def summary(student: PlaySection, boards: int, who: str) -> str:
    """Return the learning as the settings have it, in words for an engineer."""
    return (
        f"PPO of {who}, {student.updates} updates a round of {student.environments} boards and "
        f"{student.rollout_steps} steps each, learning rate {student.learn.learning_rate:g}, "
        f"{rollouts.in_words(student, boards)}"
    )


def programs(
    actor: Actor, student: PlaySection, frozen: Any, learner: Learner, bank: LevelBank, optima: Array, mesh: Mesh
) -> list[Program]:
    """List the program of an update of one lane, from abstract arrays."""
    keys = jax.random.split(seed_key(0), (1, 1))
    playing = jax.eval_shape(functools.partial(begin_round, actor, student), bank, keys[0])
    arguments = frozen, learner, sharding.abstract(playing, mesh)
    return [
        Program("update", functools.partial(update.lower, actor, student, *arguments, bank, optima, keys), arguments)
    ]


def train_round(
    actor: Actor,
    student: PlaySection,
    frozen: Any,
    learner: Learner,
    levels: Instance,
    optima: Array,
    keys: Array,
    check: Callable[[int], None] | None = None,
) -> tuple[Learner, Played, Mapping[str, Array]]:
    """Train every lane's actor on its levels for `student.updates` updates.

    Args:
      frozen: parameters that all lanes share and no update changes.
      learner: ``[lanes]``, donated.
      levels: ``[lanes, levels]``, from which every episode draws one.
      optima: int32 ``[lanes, levels]``, least sums of costs.
      keys: ``[lanes]``.
      check: called after each update of an actor with chunks, with their number; may raise. The updates of others, of
        a fraction of a second, are one program.

    Returns:
      The learner, the outcomes of its episodes, and metrics float32 ``[lanes, updates]``.
    """
    first, rest = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    update_keys = jax.vmap(lambda key: jax.random.split(key, student.updates))(rest)
    bank = rollouts.make_bank(student, levels)
    playing = begin_round(actor, student, bank, first)
    where = jax.tree.leaves(learner.parameters)[0].sharding
    if isinstance(where, NamedSharding):  # as the results of an update lie, lest the second compiles anew: 19 s
        playing = jax.device_put(playing, NamedSharding(where.mesh, PartitionSpec()))
    at_once = student.updates if actor.chunk is None else 1
    rows = []
    for done in range(0, student.updates, at_once):
        some = update_keys[:, done : done + at_once]
        learner, playing, metrics = update(actor, student, frozen, learner, playing, bank, optima, some)
        rows.append(jax.block_until_ready(metrics))
        if check is not None and actor.chunk is not None:
            check(done + 1)
    return learner, playing[1], jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *rows)


@functools.cache
def make_optimizer(actor: Actor, rate: float) -> optax.GradientTransformation:
    """Return Adam with the gradient's norm bounded; one object for equal arguments, for which programs are compiled."""
    return actor.adapt(optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(rate, eps=1e-5)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def begin_round(actor: Actor, student: PlaySection, bank: LevelBank, keys: Array) -> Any:
    """Return every lane's environments at the beginning of episodes, and a `Played` of nothing."""

    def one(bank: LevelBank, key: Array) -> Any:
        place = rollouts.draw(key, student.environments, len(bank))
        return rollouts.begin(lake_of(actor, student.reward), actor, bank, place), rollouts.no_plays(len(bank))

    return jax.vmap(one)(bank, keys)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(3, 4))
def update(
    actor: Actor,
    student: PlaySection,
    frozen: Any,
    learner: Learner,
    playing: Any,
    bank: LevelBank,
    optima: Array,
    keys: Array,
) -> tuple[Learner, Any, dict[str, Array]]:
    """Make an update for each of the keys ``[lanes, updates]``, continuing the environments' current episodes."""
    lake, settings = lake_of(actor, student.reward), student.learn
    optimizer = make_optimizer(actor, settings.learning_rate)

    def step(bank: LevelBank, optima: Array, parameters: Any, environments: Any, key: Array) -> tuple[Any, Rollout]:
        states, place, *_ = environments
        action_key, level_key = jax.random.split(key)
        after, rollout = rollouts.advance(
            lake, actor, 1.0, optima, parameters, frozen, environments, states.positions != ABSENT, action_key
        )
        place = jnp.where(rollout.done, rollouts.draw(level_key, student.environments, len(bank)), place)
        return rollouts.restart(lake, actor, bank, after, rollout.done, place), rollout

    def one_update(bank: LevelBank, optima: Array, carry: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        learner, (environments, played) = carry
        play_key, order_key = jax.random.split(key)
        environments, rollout = jax.lax.scan(
            functools.partial(step, bank, optima, learner.parameters),
            environments,
            jax.random.split(play_key, student.rollout_steps),
        )
        states, _, view, legal = environments
        last = decide(actor, learner.parameters, frozen, view, legal, states.positions != ABSENT)[1]
        advantage = estimate_advantages(rollout, last, settings.gae_lambda)
        played = rollouts.count(played, rollout, advantage)
        rows = rollout, advantage, advantage + rollout.value
        learner, metrics = make_passes(
            lambda parameters, rows: _gradient(actor, settings, parameters, frozen, *rows),
            optimizer,
            learner,
            rows,
            order_key,
            settings.iterations,
            settings.minibatches,
        )
        return (learner, (environments, played)), metrics | rollouts.describe(rollout)

    def one(learner: Learner, playing: Any, bank: LevelBank, optima: Array, keys: Array) -> Any:
        return jax.lax.scan(functools.partial(one_update, bank, optima), (learner, playing), keys)

    (learner, playing), metrics = jax.vmap(one)(learner, playing, bank, optima, keys)
    return learner, playing, metrics


def estimate_advantages(rollout: Rollout, last_value: Array, gae_lambda: float) -> Array:
    """Return generalised advantage estimates (Schulman et al. 2016), float32 ``[time, environments, agents]``.

    An episode that runs out of steps is over like any other: the actor sees how much of it is left.
    """

    def back(carry: tuple[jax.Array, Array], step: Rollout) -> tuple[tuple[jax.Array, Array], Array]:
        advantage, next_value = carry
        goes_on = 1.0 - step.done.astype(jnp.float32)[:, None]
        error = step.reward + DISCOUNT * next_value * goes_on - step.value
        advantage = error + DISCOUNT * gae_lambda * goes_on * advantage
        return (jnp.asarray(advantage), step.value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), rollout, reverse=True)[1]


def _gradient(
    actor: Actor,
    settings: TurnLearnSection,
    parameters: Any,
    frozen: Any,
    rows: Rollout,
    advantage: Array,
    returns: Array,
) -> tuple[Any, dict[str, Array]]:
    """Return the gradient of a minibatch's loss, and its metrics; the decisions of agents that are present count."""
    weight = rows.present.astype(jnp.float32)
    total = jnp.maximum(jnp.sum(weight), 1.0)
    centre = jnp.sum(advantage * weight) / total
    deviation = jnp.sqrt(jnp.sum((advantage - centre) ** 2 * weight) / total)
    decisions = _Decisions(
        view=rows.view,
        legal=rows.legal,
        action=rows.action,
        log_probability=rows.log_probability,
        advantage=(advantage - centre) / (deviation + 1e-5),
        returns=returns,
        weight=weight,
    )
    gradient = jax.grad(functools.partial(_loss, actor, settings), has_aux=True)
    return over_chunks(actor, lambda part: gradient(parameters, frozen, part, total), decisions, rows.present)


def _loss(
    actor: Actor, settings: TurnLearnSection, parameters: Any, frozen: Any, rows: _Decisions, total: Array
) -> tuple[Array, dict[str, Array]]:
    """PPO's clipped loss (Schulman et al. 2017), a squared error of the value, an entropy bonus; means over `total`."""
    logits, value = actor.forward(parameters, frozen, rows.view, rows.legal)

    def mean(x: Array) -> Array:
        return jnp.sum(x * rows.weight) / total

    ratio = jnp.exp(of_action(logits, rows.action) - rows.log_probability)
    clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    policy_loss = -mean(jnp.minimum(ratio * rows.advantage, clipped * rows.advantage))
    value_loss = 0.5 * mean((value - rows.returns) ** 2)
    entropy = -mean(jnp.sum(jnp.exp(logits) * logits * rows.legal, axis=-1))
    loss = policy_loss + value_loss - settings.entropy_coefficient * entropy
    return loss, {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

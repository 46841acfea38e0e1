"""Independent PPO with one actor for all agents: the programs of a round of training.

Every array has a leading axis of *lanes*: actors that learn beside each other, each on levels and with a key of its
own, as of several seeds or of several designs from one state. A lane's numbers do not depend on the lanes beside it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec

from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.record import Array, Record, record
from jaxlake.types import ABSENT, Instance
from rl.config.choices import PlayerReward
from rl.config.sections import PPOSection
from rl.students.player.actor import Actor, decide, lake_of, lane, lanes
from rl.students.player.play import reset, see

DISCOUNT, GAE_LAMBDA = 0.97, 0.9
"""Discount of a reward one step later, and of the advantage estimates (0 trusts the values, 1 the returns)."""
CLIP, ENTROPY = 0.2, 0.01
"""Bounds of the ratio of probabilities (1 +- CLIP), and weight of the bonus on entropy."""


@record
class Learner(Record):
    """The trained parameters of an actor and their optimizer, each array with a leading axis of lanes."""

    parameters: Any
    optimizer: optax.OptState


@record
class Played(Record):
    """Outcome of a round's episodes by level; arrays ``[lanes, levels]``.

    Attributes:
      episodes, solved, optimal: int32, episodes that ended, where all arrived, and those of them at the optimum's cost.
      holes, conflicts, late: int32, episodes that ended with an agent in a hole, in a conflict, or out of steps.
      steps: float32, sum over the episodes of their lengths.
      advantage: float32, sum of the absolute advantages of the steps played on the level, mean over its agents.
      played: int32, number of these steps.
    """

    episodes: Array
    solved: Array
    optimal: Array
    holes: Array
    conflicts: Array
    late: Array
    steps: Array
    advantage: Array
    played: Array


@record
class _Rollout(Record):
    """Steps ``[time, environments]`` with an axis of agents where each has its own."""

    view: Any
    legal: Array
    action: Array
    log_probability: Array
    value: Array
    present: Array
    reward: Array
    done: Array
    level: Array
    outcome: Array
    length: Array


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


_SOLVED, _OPTIMAL, _HOLE, _CONFLICT, _LATE = range(5)


def train_round(
    actor: Actor,
    settings: PPOSection,
    frozen: Any,
    learner: Learner,
    levels: Instance,
    optima: Array,
    keys: Array,
    check: Callable[[int], None] | None = None,
) -> tuple[Learner, Played, dict[str, jax.Array]]:
    """Train every lane's actor on its levels for `settings.updates` updates.

    Args:
      frozen: parameters that all lanes share and nobody trains.
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
    update_keys = jax.vmap(lambda key: jax.random.split(key, settings.updates))(rest)
    bank = make_bank(settings, levels)
    playing = begin_round(actor, settings, bank, first)
    where = jax.tree.leaves(learner.parameters)[0].sharding
    if isinstance(where, NamedSharding):  # as the results of an update lie, lest the second compiles anew: 19 s
        playing = jax.device_put(playing, NamedSharding(where.mesh, PartitionSpec()))
    at_once = settings.updates if actor.chunk is None else 1
    rows = []
    for done in range(0, settings.updates, at_once):
        some = update_keys[:, done : done + at_once]
        learner, playing, metrics = update(actor, settings, frozen, learner, playing, bank, optima, some)
        rows.append(jax.block_until_ready(metrics))
        if check is not None and actor.chunk is not None:
            check(done + 1)
    return learner, playing[1], jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *rows)


def make_bank(settings: PPOSection, levels: Instance) -> LevelBank:
    """Return levels ``[lanes, levels]`` as banks, with the distances to the goals if the reward may ask for them."""
    if settings.reward in (PlayerReward.SPARSE, PlayerReward.COST):
        return LevelBank(instances=levels, distances=None)
    return lanes([LevelBank.build(lane(levels, i), with_distances=True) for i in range(len(levels.size))])


@functools.partial(jax.jit, static_argnums=(0, 1))
def begin_round(actor: Actor, settings: PPOSection, bank: LevelBank, keys: Array) -> Any:
    """Return every lane's environments at the beginning of episodes, and a `Played` of nothing."""

    def one(bank: LevelBank, key: Array) -> Any:
        count, lake = len(bank), lake_of(actor, settings)
        zeros = {
            field.name: jnp.zeros(count, jnp.float32 if field.name in ("steps", "advantage") else jnp.int32)
            for field in dataclasses.fields(Played)
        }
        place = _draw(key, settings.environments, count)
        states = reset(lake, settings, bank, place)
        return (states, place, *see(lake, states)), Played(**zeros)

    return jax.vmap(one)(bank, keys)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(3, 4))
def update(
    actor: Actor,
    settings: PPOSection,
    frozen: Any,
    learner: Learner,
    playing: Any,
    bank: LevelBank,
    optima: Array,
    keys: Array,
) -> tuple[Learner, Any, dict[str, Array]]:
    """Make an update for each of the keys ``[lanes, updates]``, going on with the environments as they stand."""
    lake, optimizer = lake_of(actor, settings), actor.make_optimizer(settings)

    def one_update(bank: LevelBank, optima: Array, carry: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        learner, (environments, played) = carry
        play_key, order_key = jax.random.split(key)
        environments, rollout = jax.lax.scan(
            functools.partial(_step, lake, actor, settings, bank, optima, learner.parameters, frozen),
            environments,
            jax.random.split(play_key, settings.rollout_steps),
        )
        states, _, view, legal = environments
        last = decide(actor, learner.parameters, frozen, view, legal, states.positions != ABSENT)[1]
        advantage = _advantages(rollout, last)
        played = _count(played, rollout, advantage)
        learner, metrics = _learn(actor, settings, optimizer, learner, frozen, rollout, advantage, order_key)
        ended = jnp.maximum(jnp.sum(rollout.done), 1)
        shares = {
            "valid": (rollout.outcome == _SOLVED) | (rollout.outcome == _OPTIMAL),
            "optimal": rollout.outcome == _OPTIMAL,
            "failure/hole_free": rollout.outcome == _HOLE,
            "failure/conflict_free": rollout.outcome == _CONFLICT,
            "failure/goal_reached": rollout.outcome == _LATE,
            "episode_steps": jnp.where(rollout.done, rollout.length, 0),
        }
        metrics |= {name: jnp.sum(values) / ended for name, values in shares.items()}
        return (learner, (environments, played)), metrics | {"episodes": jnp.sum(rollout.done).astype(jnp.float32)}

    def one(learner: Learner, playing: Any, bank: LevelBank, optima: Array, keys: Array) -> Any:
        return jax.lax.scan(functools.partial(one_update, bank, optima), (learner, playing), keys)

    (learner, playing), metrics = jax.vmap(one)(learner, playing, bank, optima, keys)
    return learner, playing, metrics


def _draw(key: Array, count: int, levels: int) -> Array:
    return jax.random.randint(key, (count,), 0, levels, jnp.int32)


def _step(
    lake: Lake,
    actor: Actor,
    settings: PPOSection,
    bank: LevelBank,
    optima: Array,
    parameters: Any,
    frozen: Any,
    carry: Any,
    key: Array,
) -> tuple[Any, _Rollout]:
    """Play one step in all environments; those whose episode ends begin another."""
    states, place, view, legal = carry
    present = states.positions != ABSENT
    action_key, level_key = jax.random.split(key)
    logits, value = decide(actor, parameters, frozen, view, legal, present)
    action = jax.random.categorical(action_key, logits)
    after, step = jax.vmap(lake.step)(states, action)
    done, solved = after.done, step.info.solved & after.done
    best = step.info.costs.sum_of_costs == optima[place]
    fell, conflict = jnp.any(step.info.fell, axis=1), after.terminated
    outcome = jnp.where(
        solved, jnp.where(best, _OPTIMAL, _SOLVED), jnp.where(fell, _HOLE, jnp.where(conflict, _CONFLICT, _LATE))
    )
    rollout = _Rollout(
        view=view,
        legal=legal,
        action=action,
        log_probability=_of_action(logits, action),
        value=value,
        present=present,
        reward=step.rewards,
        done=done,
        level=place,
        outcome=jnp.where(done, outcome, ABSENT),
        length=after.time,
    )
    next_place = jnp.where(done, _draw(level_key, settings.environments, len(bank)), place)
    fresh = reset(lake, settings, bank, next_place)
    states = jax.tree.map(lambda new, old: jnp.where(_like(done, new), new, old), fresh, after)
    return (states, next_place, *see(lake, states)), rollout


def _like(flags: Array, leaf: Array) -> Array:
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - 1))


def _of_action(log_probabilities: Array, action: Array) -> Array:
    return jnp.take_along_axis(log_probabilities, action[..., None], axis=-1)[..., 0]


def _advantages(rollout: _Rollout, last_value: Array) -> Array:
    """Return generalised advantage estimates (Schulman et al. 2016), float32 ``[time, environments, agents]``.

    An episode that runs out of steps is over like any other: the actor sees how much of it is left.
    """

    def back(carry: tuple[jax.Array, Array], step: _Rollout) -> tuple[tuple[jax.Array, Array], Array]:
        advantage, next_value = carry
        goes_on = 1.0 - step.done.astype(jnp.float32)[:, None]
        error = step.reward + DISCOUNT * next_value * goes_on - step.value
        advantage = error + DISCOUNT * GAE_LAMBDA * goes_on * advantage
        return (jnp.asarray(advantage), step.value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), rollout, reverse=True)[1]


def _count(played: Played, rollout: _Rollout, advantage: Array) -> Played:
    """Add a rollout's episodes and steps to what their levels came to."""
    level, done = rollout.level.reshape(-1), rollout.done.reshape(-1)
    outcome, length = rollout.outcome.reshape(-1), jnp.where(done, rollout.length.reshape(-1), 0).astype(jnp.float32)
    present = rollout.present.astype(jnp.float32)
    mean = jnp.sum(jnp.abs(advantage) * present, axis=-1) / jnp.maximum(jnp.sum(present, axis=-1), 1)
    added = {
        "episodes": done,
        "solved": (outcome == _SOLVED) | (outcome == _OPTIMAL),
        "optimal": outcome == _OPTIMAL,
        "holes": outcome == _HOLE,
        "conflicts": outcome == _CONFLICT,
        "late": outcome == _LATE,
        "steps": length,
        "advantage": mean.reshape(-1),
        "played": jnp.ones_like(level),
    }
    sums = {name: getattr(played, name) for name in added}
    return Played(**{name: sums[name].at[level].add(x.astype(sums[name].dtype)) for name, x in added.items()})


def _learn(
    actor: Actor,
    settings: PPOSection,
    optimizer: optax.GradientTransformation,
    learner: Learner,
    frozen: Any,
    rollout: _Rollout,
    advantage: Array,
    key: Array,
) -> tuple[Learner, dict[str, Array]]:
    """Make the updates on one rollout: `epochs` passes, each in `minibatches` parts of its environments' steps."""
    steps = rollout.done.size
    returns = advantage + rollout.value
    rows = jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), (rollout, advantage, returns))

    def minibatch(learner: Learner, chosen: Array) -> tuple[Learner, dict[str, Array]]:
        part = jax.tree.map(lambda x: x[chosen], rows)
        gradient, metrics = _gradient(actor, learner.parameters, frozen, *part)
        updates, state = optimizer.update(gradient, learner.optimizer, learner.parameters)
        metrics["gradient_norm"] = optax.global_norm(gradient)
        return Learner(parameters=optax.apply_updates(learner.parameters, updates), optimizer=state), metrics

    def epoch(learner: Learner, key: Array) -> tuple[Learner, dict[str, Array]]:
        order = jax.random.permutation(key, steps).reshape(settings.minibatches, -1)
        return jax.lax.scan(minibatch, learner, order)

    learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, settings.epochs))
    return learner, jax.tree.map(jnp.mean, metrics)


def _gradient(
    actor: Actor, parameters: Any, frozen: Any, rows: _Rollout, advantage: Array, returns: Array
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
    gradient = jax.grad(functools.partial(_loss, actor), has_aux=True)
    if actor.chunk is None:
        return gradient(parameters, frozen, decisions, total)
    count, size = weight.size, actor.chunk
    flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), decisions)
    place = jnp.nonzero(rows.present.reshape(-1), size=-(-count // size) * size, fill_value=count)[0]

    def some(number: Array, sums: Any) -> Any:
        chosen = jax.lax.dynamic_slice_in_dim(place, number * size, size)
        part = jax.tree.map(lambda x: x.at[chosen].get(mode="clip"), flat)
        part = part.replace(weight=jnp.where(chosen < count, part.weight, 0.0))
        return jax.tree.map(jnp.add, sums, gradient(parameters, frozen, part, total))

    shapes = jax.eval_shape(gradient, parameters, frozen, flat[:size], total)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.fori_loop(0, -(-jnp.sum(rows.present) // size), some, zeros)


def _loss(actor: Actor, parameters: Any, frozen: Any, rows: _Decisions, total: Array) -> tuple[Array, dict[str, Array]]:
    """PPO's clipped loss (Schulman et al. 2017), a squared error of the value, an entropy bonus; means over `total`."""
    logits, value = actor.forward(parameters, frozen, rows.view, rows.legal)

    def mean(x: Array) -> Array:
        return jnp.sum(x * rows.weight) / total

    ratio = jnp.exp(_of_action(logits, rows.action) - rows.log_probability)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    policy_loss = -mean(jnp.minimum(ratio * rows.advantage, clipped * rows.advantage))
    value_loss = 0.5 * mean((value - rows.returns) ** 2)
    entropy = -mean(jnp.sum(jnp.exp(logits) * logits * rows.legal, axis=-1))
    loss = policy_loss + value_loss - ENTROPY * entropy
    return loss, {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

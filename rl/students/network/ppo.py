"""Independent PPO with one network for all agents: a round of training and the play of boards, one program each.

Every array has a leading axis of *lanes*: networks that learn beside each other, each on levels and with a key of its
own, as of several seeds or of several designs from one state. A lane's numbers do not depend on the lanes beside it.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlake.env import Lake
from jaxlake.record import Array, Record, record
from jaxlake.rules import ConflictRule, HoleRule
from jaxlake.state import Params, State
from jaxlake.types import ABSENT, STEPS, Action, Instance, Plan
from rl.config.sections import NetworkSection
from rl.students.network.observation import Surroundings, flatten

Parameters = dict[str, dict[str, Array]]
"""Weights ``w`` and biases ``b`` of the layers ``hidden_1``, ``hidden_2`` and ``heads``, float32.

The heads are the actions' logits and, last, the value, in one product: apart they took half as long again (12.9 ms
against 8.3 for the gradient of 1,024 steps).
"""
DISCOUNT, GAE_LAMBDA = 0.97, 0.9
"""Discount of a reward one step later, and of the advantage estimates (0 trusts the values, 1 the returns)."""
CLIP, ENTROPY, MAX_NORM = 0.2, 0.01, 0.5
"""Bounds of the ratio of probabilities (1 +- CLIP), weight of the bonus on entropy, and largest norm of a gradient."""
_NEVER = -1e9


@record
class Learner(Record):
    """A network and its optimizer, each array with a leading axis of lanes."""

    parameters: Parameters
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

    observation: tuple[Array, Array]
    legal: Array
    action: Array
    log_probability: Array
    value: Array
    there: Array
    reward: Array
    done: Array
    level: Array
    outcome: Array
    length: Array


_SOLVED, _OPTIMAL, _HOLE, _CONFLICT, _LATE = range(5)


def lake_of(settings: NetworkSection) -> Lake:
    """Return the rules that the network plays by: who enters a hole or a conflict ends the episode, as in a plan."""
    observe = Surroundings(settings.radius, settings.episode_steps)
    return Lake(holes=HoleRule.FALL, conflicts=ConflictRule.END, observe=observe)


def make_optimizer(settings: NetworkSection) -> optax.GradientTransformation:
    """Return Adam with the gradient's norm bounded."""
    return optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(settings.learning_rate, eps=1e-5))


@functools.partial(jax.jit, static_argnums=0)
def begin(settings: NetworkSection, keys: Array) -> Learner:
    """Return fresh networks, one for each key ``[lanes]``: orthogonal matrices, a nearly uniform policy."""

    def one(key: Array) -> Learner:
        width, features = settings.width, Surroundings(settings.radius, settings.episode_steps).features
        shapes = [(features, width, 2**0.5), (width, width, 2**0.5), (width, len(Action), 0.01), (width, 1, 1.0)]
        hidden_1, hidden_2, policy, value = (
            jax.nn.initializers.orthogonal(scale)(jax.random.fold_in(key, number), (inputs, outputs), jnp.float32)
            for number, (inputs, outputs, scale) in enumerate(shapes)
        )
        layers = {"hidden_1": hidden_1, "hidden_2": hidden_2, "heads": jnp.concatenate([policy, value], axis=1)}
        parameters: Parameters = {
            name: {"w": matrix, "b": jnp.zeros(matrix.shape[1], jnp.float32)} for name, matrix in layers.items()
        }
        return Learner(parameters=parameters, optimizer=make_optimizer(settings).init(parameters))

    return jax.vmap(one)(keys)


def forward(parameters: Parameters, observation: tuple[Array, Array], legal: Array) -> tuple[Array, Array]:
    """Return the log-probabilities ``[..., 5]`` of the actions, illegal ones having none, and the values ``[...]``."""
    features = flatten(observation)
    hidden = features.reshape(-1, features.shape[-1])  # one long product is faster than one of several axes
    for name in ("hidden_1", "hidden_2"):
        hidden = jnp.tanh(hidden @ parameters[name]["w"] + parameters[name]["b"])
    heads = (hidden @ parameters["heads"]["w"] + parameters["heads"]["b"]).reshape(*legal.shape[:-1], -1)
    return jax.nn.log_softmax(jnp.where(legal, heads[..., :-1], _NEVER)), heads[..., -1]


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def train_round(
    settings: NetworkSection, learner: Learner, levels: Instance, optima: Array, keys: Array
) -> tuple[Learner, Played, dict[str, Array]]:
    """Train every lane's network on its levels for `settings.updates` updates.

    Args:
      learner: ``[lanes]``, donated.
      levels: ``[lanes, levels]``, from which every episode draws one.
      optima: int32 ``[lanes, levels]``, least sums of costs.
      keys: ``[lanes]``.

    Returns:
      The learner, the outcomes of the episodes, and metrics float32 ``[lanes, updates]``.
    """
    return jax.vmap(functools.partial(_train_lane, settings))(learner, levels, optima, keys)


def _train_lane(
    settings: NetworkSection, learner: Learner, levels: Instance, optima: Array, key: Array
) -> tuple[Learner, Played, dict[str, Array]]:
    lake, optimizer = lake_of(settings), make_optimizer(settings)
    first_key, key = jax.random.split(key)
    zeros = {
        field.name: jnp.zeros(len(levels), jnp.float32 if field.name in ("steps", "advantage") else jnp.int32)
        for field in dataclasses.fields(Played)
    }

    def update(carry: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        learner, environments, played = carry
        play_key, order_key = jax.random.split(key)
        environments, rollout = jax.lax.scan(
            functools.partial(_step, lake, settings, levels, optima, learner.parameters),
            environments,
            jax.random.split(play_key, settings.rollout_steps),
        )
        advantage = _advantages(rollout, forward(learner.parameters, *environments[2:])[1])
        played = _count(played, rollout, advantage)
        learner, metrics = _learn(settings, optimizer, learner, rollout, advantage, order_key)
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
        return (learner, environments, played), metrics | {"episodes": jnp.sum(rollout.done).astype(jnp.float32)}

    start = (learner, _begin(lake, settings, levels, first_key), Played(**zeros))
    (learner, _, played), metrics = jax.lax.scan(update, start, jax.random.split(key, settings.updates))
    return learner, played, metrics


def _begin(lake: Lake, settings: NetworkSection, levels: Instance, key: Array) -> Any:
    """Return environments at the start of episodes on drawn levels: states, levels' numbers, what is seen and legal."""
    place = _draw(key, settings.environments, len(levels))
    states = _reset(lake, settings, levels, place)
    return (states, place, *_see(lake, states))


def _draw(key: Array, count: int, levels: int) -> Array:
    return jax.random.randint(key, (count,), 0, levels, jnp.int32)


def _reset(lake: Lake, settings: NetworkSection, levels: Instance, place: Array) -> State:
    params = Params(max_steps=settings.episode_steps)
    return jax.vmap(lambda i: lake.reset(levels[i], params)[0])(place)


def _see(lake: Lake, states: State) -> tuple[tuple[Array, Array], Array]:
    """Return all agents' observations and legal actions: none leaves the board, as no plan can."""
    return jax.vmap(lake.observe)(states), jax.vmap(lake.legal_actions)(states)


def _step(
    lake: Lake,
    settings: NetworkSection,
    levels: Instance,
    optima: Array,
    parameters: Parameters,
    carry: Any,
    key: Array,
) -> tuple[Any, _Rollout]:
    """Play one step in all environments; those whose episode ends begin another."""
    states, place, observation, legal = carry
    action_key, level_key = jax.random.split(key)
    log_probabilities, value = forward(parameters, observation, legal)
    action = jax.random.categorical(action_key, log_probabilities)
    after, step = jax.vmap(lake.step)(states, action)
    done, solved = after.done, step.info.solved & after.done
    best = step.info.costs.sum_of_costs == optima[place]
    fell, conflict = jnp.any(step.info.fell, axis=1), after.terminated
    outcome = jnp.where(
        solved, jnp.where(best, _OPTIMAL, _SOLVED), jnp.where(fell, _HOLE, jnp.where(conflict, _CONFLICT, _LATE))
    )
    rollout = _Rollout(
        observation=observation,
        legal=legal,
        action=action,
        log_probability=_of_action(log_probabilities, action),
        value=value,
        there=states.positions != ABSENT,
        reward=step.rewards,
        done=done,
        level=place,
        outcome=jnp.where(done, outcome, ABSENT),
        length=after.time,
    )
    next_place = jnp.where(done, _draw(level_key, settings.environments, len(levels)), place)
    fresh = _reset(lake, settings, levels, next_place)
    states = jax.tree.map(lambda new, old: jnp.where(_like(done, new), new, old), fresh, after)
    return (states, next_place, *_see(lake, states)), rollout


def _like(flags: Array, leaf: Array) -> Array:
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - 1))


def _of_action(log_probabilities: Array, action: Array) -> Array:
    return jnp.take_along_axis(log_probabilities, action[..., None], axis=-1)[..., 0]


def _advantages(rollout: _Rollout, last_value: Array) -> Array:
    """Return generalised advantage estimates (Schulman et al. 2016), float32 ``[time, environments, agents]``.

    An episode that runs out of steps is over like any other: the network sees how much of it is left.
    """

    def back(carry: tuple[jax.Array, Array], step: _Rollout) -> tuple[tuple[jax.Array, Array], Array]:
        advantage, next_value = carry
        goes_on = 1.0 - step.done.astype(jnp.float32)[:, None]
        error = step.reward + DISCOUNT * next_value * goes_on - step.value
        advantage = error + DISCOUNT * GAE_LAMBDA * goes_on * advantage
        return (jnp.asarray(advantage), step.value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), rollout, reverse=True)[1]


def _count(played: Played, rollout: _Rollout, advantage: Array) -> Played:
    """Add a rollout's episodes and steps to the outcomes of their levels."""
    level, done = rollout.level.reshape(-1), rollout.done.reshape(-1)
    outcome, length = rollout.outcome.reshape(-1), jnp.where(done, rollout.length.reshape(-1), 0).astype(jnp.float32)
    there = rollout.there.astype(jnp.float32)
    mean = jnp.sum(jnp.abs(advantage) * there, axis=-1) / jnp.maximum(jnp.sum(there, axis=-1), 1)
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
    settings: NetworkSection,
    optimizer: optax.GradientTransformation,
    learner: Learner,
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
        gradient, metrics = jax.grad(_loss, has_aux=True)(learner.parameters, *part)
        updates, state = optimizer.update(gradient, learner.optimizer, learner.parameters)
        metrics["gradient_norm"] = optax.global_norm(gradient)
        return Learner(parameters=optax.apply_updates(learner.parameters, updates), optimizer=state), metrics

    def epoch(learner: Learner, key: Array) -> tuple[Learner, dict[str, Array]]:
        order = jax.random.permutation(key, steps).reshape(settings.minibatches, -1)
        return jax.lax.scan(minibatch, learner, order)

    learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, settings.epochs))
    return learner, jax.tree.map(jnp.mean, metrics)


def _loss(parameters: Parameters, rows: _Rollout, advantage: Array, returns: Array) -> tuple[Array, dict[str, Array]]:
    """PPO's clipped loss (Schulman et al. 2017), a squared error of the value, an entropy bonus; agents there count."""
    log_probabilities, value = forward(parameters, rows.observation, rows.legal)
    weight = rows.there.astype(jnp.float32)
    total = jnp.maximum(jnp.sum(weight), 1.0)

    def mean(x: Array) -> Array:
        return jnp.sum(x * weight) / total

    centre = mean(advantage)
    scaled = (advantage - centre) / (jnp.sqrt(mean((advantage - centre) ** 2)) + 1e-5)
    ratio = jnp.exp(_of_action(log_probabilities, rows.action) - rows.log_probability)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    policy_loss = -mean(jnp.minimum(ratio * scaled, clipped * scaled))
    value_loss = 0.5 * mean((value - returns) ** 2)
    entropy = -mean(jnp.sum(jnp.exp(log_probabilities) * log_probabilities * rows.legal, axis=-1))
    loss = policy_loss + value_loss - ENTROPY * entropy
    return loss, {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}


@functools.partial(jax.jit, static_argnums=(0, 4))
def play(
    settings: NetworkSection, parameters: Parameters, levels: Instance, keys: Array, greedy: bool
) -> tuple[Plan, Array]:
    """Let every lane's network play each of its levels once, and write down the moves as plans.

    A plan ends with the step that ends the episode; an agent that would enter a hole or a conflict does so in the plan.

    Args:
      parameters: ``[lanes]``.
      levels: ``[lanes, levels]``.
      keys: ``[lanes]``, of the actions.
      greedy: take the likeliest action instead of drawing one.

    Returns:
      Plans ``[lanes, levels]`` with room for `settings.episode_steps` steps, and the steps played, int32.
    """
    lake = lake_of(settings)

    def one(parameters: Parameters, levels: Instance, key: Array) -> tuple[Plan, Array]:
        states = _reset(lake, settings, levels, jnp.arange(len(levels)))

        def step(states: State, key: Array) -> tuple[State, Array]:
            log_probabilities, _ = forward(parameters, *_see(lake, states))
            drawn = jax.random.categorical(key, log_probabilities)
            action = jnp.argmax(log_probabilities, axis=-1) if greedy else drawn
            offset = jnp.array([down * levels.max_size + right for down, right in STEPS], jnp.int32)
            cells = jnp.where(states.positions == ABSENT, ABSENT, states.positions + offset[action])
            cells = jnp.where(states.done[:, None], ABSENT, cells)
            return jax.vmap(lake.step)(states, action)[0], cells

        last, cells = jax.lax.scan(step, states, jax.random.split(key, settings.episode_steps))
        paths = jnp.concatenate([levels.starts[None], cells]).transpose(1, 2, 0)
        plan = Plan(
            parsable=jnp.ones(len(levels), bool),
            num_named=levels.num_agents,
            paths=paths,
            lengths=jnp.sum(paths != ABSENT, axis=-1, dtype=jnp.int32),
        )
        return plan, last.time

    return jax.vmap(one)(parameters, levels, keys)


def lane(tree: Any, number: int) -> Any:
    """Return one lane of arrays with a leading axis of lanes, without that axis."""
    return jax.tree.map(lambda x: x[number], tree)


def lanes(trees: list[Any]) -> Any:
    """Return arrays stacked along a new leading axis of lanes; numpy arrays stay on the host."""
    return jax.tree.map(lambda *x: np.stack(x) if isinstance(x[0], np.ndarray) else jnp.stack(x), *trees)

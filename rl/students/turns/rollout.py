"""Boards played turn by turn, side by side: one step of all of them, one play of each, and how plays end."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from engineer import evidence
from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.record import Array, Record, record
from jaxlake.state import Params, State
from jaxlake.types import ABSENT, STEPS, Check, Instance, Plan
from rl.students.turns.actor import Actor, decide, lake_of, lane, lanes, log_probabilities, of_action

SOLVED, OPTIMAL, HOLE, CONFLICT, LATE = range(5)
"""How a play ends: all arrived, at the least cost or not; an agent entered a hole or a conflict; steps ran out."""
_FAILED = {HOLE: Check.HOLE_FREE, CONFLICT: Check.CONFLICT_FREE, LATE: Check.GOAL_REACHED}


@record
class Boards(Record):
    """Boards that plays begin on.

    Attributes:
      bank: ``[boards]``, with the distances to the goals if the reward may read them.
      optima: int32 ``[boards]``, least sums of costs.
    """

    bank: LevelBank
    optima: Array

    @classmethod
    def of_lanes(cls, levels: Instance, optima: Array, reward: str) -> "Boards":
        """Return the boards of lanes from levels ``[lanes, levels]``."""
        if reward in ("sparse", "cost"):
            return cls(bank=LevelBank(instances=levels, distances=None), optima=optima)
        banks = [LevelBank.build(lane(levels, i), with_distances=True) for i in range(len(levels.size))]
        return cls(bank=lanes(banks), optima=optima)


@record
class Environments(Record):
    """Plays under way, ``[environments]``.

    Attributes:
      states: the boards' states.
      level: int32, the number of the board.
      number: int32, how many plays the environment had before this one.
      playing: bool, False after the last play.
    """

    states: State
    level: Array
    number: Array
    playing: Array


@record
class Rollout(Record):
    """Steps ``[time, environments]``, with an axis of agents where each has a value.

    Attributes:
      view, legal: what an agent saw, and bool ``[..., 5]``, what it might do.
      action, log_probability, value: int32 and float32, the move, its log-probability, and the value of the view.
      present: bool, whether the agent exists and plays.
      reward: float32, of the move.
      done: bool ``[time, environments]``, whether the play ended with the step.
      level, number: int32 ``[time, environments]``, see `Environments`.
      outcome: int32 ``[time, environments]``, how the play ended with the step; `ABSENT` if it did not.
      length: int32 ``[time, environments]``, steps of the play, this one included.
    """

    view: Any
    legal: Array
    action: Array
    log_probability: Array
    value: Array
    present: Array
    reward: Array
    done: Array
    level: Array
    number: Array
    outcome: Array
    length: Array


@record
class Ended(Record):
    """Plays that ended, ``[..., time, environments]``: all that leaves the device.

    Attributes:
      outcome: int8, `ABSENT` where no play ended.
      level, length: int32, the number of the board, and the play's steps.
      advantage: float32, mean absolute advantage of the play's decisions.
    """

    outcome: Array
    level: Array
    length: Array
    advantage: Array


def begin(lake: Lake, actor: Actor, bank: LevelBank, level: Array) -> State:
    """Return the states at the beginning of plays on the boards of these numbers ``[environments]``."""
    params = Params(max_steps=actor.episode_steps)

    def one(number: Array) -> State:
        instance, distances = bank.at(number)
        return lake.reset(instance, params, distances)[0]

    return jax.vmap(one)(level)


def look(lake: Lake, environments: Environments) -> tuple[Any, Array, Array]:
    """Return what each agent sees, bool ``[environments, agents, 5]`` what it may do, and which agents play."""
    states = environments.states
    present = (states.positions != ABSENT) & environments.playing[:, None]
    return jax.vmap(lake.observe)(states), jax.vmap(lake.legal_actions)(states), present


def advance(
    lake: Lake,
    policy: Callable[[Any, Array, Array], tuple[Array, Array]],
    temperature: Array | float,
    optima: Array,
    environments: Environments,
    key: Array,
) -> tuple[State, Rollout]:
    """Play one step in all environments that play.

    Args:
      policy: function from views, legal actions and who is to decide to log-probabilities and values; see `decide`.
      temperature: of the draw; 0: the likeliest action. Log-probabilities are those at the temperature.
    """
    view, legal, present = look(lake, environments)
    logits, value = policy(view, legal, present)
    action = jnp.argmax(logits + temperature * jax.random.gumbel(key, logits.shape), axis=-1)
    after, step = jax.vmap(lake.step)(environments.states, action)
    done, info = after.done & environments.playing, step.info
    solved = jnp.where(info.costs.sum_of_costs == optima[environments.level], OPTIMAL, SOLVED)
    failed = jnp.where(jnp.any(info.fell, axis=1), HOLE, jnp.where(after.terminated, CONFLICT, LATE))
    return after, Rollout(
        view=view,
        legal=legal,
        action=action,
        log_probability=of_action(log_probabilities(logits / temperature, legal), action),
        value=value,
        present=present,
        reward=step.rewards,
        done=done,
        level=environments.level,
        number=environments.number,
        outcome=jnp.where(done, jnp.where(info.solved, solved, failed), ABSENT),
        length=after.time,
    )


@functools.partial(jax.jit, static_argnums=0)
def play(
    actor: Actor, frozen: Any, parameters: Any, levels: Instance, keys: Array, temperature: Array | float
) -> tuple[Plan, Array, Array]:
    """Let every lane's actor play each of its levels once, and write down the moves as plans.

    A plan ends with the step that ends the episode; an agent that would enter a hole or a conflict does so in the plan.

    Args:
      frozen: parameters that all lanes share.
      parameters: ``[lanes]``.
      levels: ``[lanes, levels]``.
      keys: ``[lanes]``, of the actions.
      temperature: see `advance`.

    Returns:
      Plans ``[lanes, levels]`` with room for `actor.episode_steps` steps, the steps played, int32, and how the plays
      ended, int32.
    """
    lake = lake_of(actor, None)
    offset = jnp.array([down * levels.max_size + right for down, right in STEPS], jnp.int32)

    def one(parameters: Any, levels: Instance, key: Array) -> tuple[Plan, Array, Array]:
        policy = functools.partial(decide, actor, parameters, frozen)
        count = len(levels)
        number, nothing = jnp.arange(count), jnp.zeros(count, jnp.int32)
        states = begin(lake, actor, LevelBank(instances=levels, distances=None), number)

        def step(environments: Environments, key: Array) -> tuple[Environments, tuple[Array, Array]]:
            after, row = advance(lake, policy, temperature, nothing, environments, key)
            cells = jnp.where(row.present, environments.states.positions + offset[row.action], ABSENT)
            return environments.replace(states=after, playing=~after.done), (cells, row.outcome)

        first = Environments(states=states, level=number, number=nothing, playing=~states.done)
        last, (cells, outcome) = jax.lax.scan(step, first, jax.random.split(key, actor.episode_steps))
        paths = jnp.concatenate([levels.starts[None], cells]).transpose(1, 2, 0)
        plan = Plan(
            parsable=jnp.ones(count, bool),
            num_named=levels.num_agents,
            paths=paths,
            lengths=jnp.sum(paths != ABSENT, axis=-1, dtype=jnp.int32),
        )
        return plan, last.states.time, jnp.max(outcome, axis=0)

    return jax.vmap(one)(parameters, levels, keys)


def sum_by_play(rollout: Rollout, values: Array) -> Array:
    """Sum values ``[time, environments, ...]`` over the steps of each play; returns ``[plays, environments, ...]``.

    The first axis is the play's `number`; it has room for a play a step.
    """
    steps, environments = rollout.done.shape
    play = (rollout.number * environments + jnp.arange(environments)).reshape(-1)
    sums = jax.ops.segment_sum(values.reshape(len(play), *values.shape[2:]), play, steps * environments)
    return sums.reshape(values.shape)


def of_play(rollout: Rollout, values: Array) -> Array:
    """Return at each step ``[time, environments, ...]`` the value ``[plays, environments, ...]`` of its play."""
    return values[rollout.number, jnp.arange(rollout.done.shape[1])]


def describe(rollout: Rollout) -> dict[str, Array]:
    """Return the metrics of the plays that ended."""
    ended = jnp.maximum(jnp.sum(rollout.done), 1)
    shares: dict[str, Array] = {
        "valid": (rollout.outcome == SOLVED) | (rollout.outcome == OPTIMAL),
        "optimal": rollout.outcome == OPTIMAL,
        "episode_steps": jnp.where(rollout.done, rollout.length, 0),
    }
    shares |= {f"failure/{check.name.lower()}": rollout.outcome == end for end, check in _FAILED.items()}
    metrics: dict[str, Array] = {name: jnp.sum(values) / ended for name, values in shares.items()}
    return metrics | {"episodes": jnp.sum(rollout.done).astype(jnp.float32)}


def ended(rollout: Rollout, advantage: Array) -> Ended:
    """Return the plays of a rollout that ended."""
    present = rollout.present.astype(jnp.float32)
    total, count = (sum_by_play(rollout, jnp.sum(x, axis=-1)) for x in (jnp.abs(advantage) * present, present))
    return Ended(
        outcome=rollout.outcome.astype(jnp.int8),
        level=rollout.level,
        length=rollout.length,
        advantage=of_play(rollout, total / jnp.maximum(count, 1)),
    )


def count(ended: Ended, kinds: Array) -> evidence.Sums:
    """Count a lane's plays as evidence; the plays on one board are a group.

    Args:
      kinds: object ``[levels]``, the kind of each board.
    """
    steps = jax.tree.map(np.ravel, ended)
    places = np.flatnonzero(steps.outcome != ABSENT)
    plays = steps[places[np.argsort(steps.level[places], kind="stable")]]
    checks = np.ones((len(places), len(Check)), bool)
    for end, check in _FAILED.items():
        checks[plays.outcome == end, check] = checks[plays.outcome == end, Check.GOAL_REACHED] = False
    levels, first, number = np.unique(plays.level, return_index=True, return_inverse=True)
    slot = np.arange(len(number)) - first[number]  # of a play among those on its board

    def by_board(values: Array) -> np.ndarray:
        grid = np.zeros((len(levels), slot.max(initial=0) + 1, *values.shape[1:]), values.dtype)
        grid[number, slot] = values
        return grid

    return evidence.add(
        None,
        kinds[levels],
        checks=by_board(checks),
        optimal=by_board(plays.outcome == OPTIMAL),
        tokens=by_board(plays.length),
        truncated=by_board(plays.outcome == LATE),
        advantages=by_board(plays.advantage),
        counted=by_board(np.ones(len(places), bool)),
    )

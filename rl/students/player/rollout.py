"""Plays of a training: boards that are played side by side, what was decided and rewarded, and how the plays ended.

PPO and GRPO differ in where a board begins another play, and in what they make of a rollout.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from engineer.evidence import CHECKS, KindEvidence
from engineer.evidence.answers import count_groups, standard_error
from jaxlake.env import Lake
from jaxlake.kinds import Kind
from jaxlake.levels import LevelBank
from jaxlake.record import Array, Record, record
from jaxlake.state import State
from jaxlake.types import ABSENT, Instance
from rl.config import PlaySection
from rl.config.choices import PlayerReward
from rl.students.player.actor import Actor, decide, lane, lanes, of_action
from rl.students.player.play import reset, see


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
class Rollout(Record):
    """Steps ``[time, environments]`` with an axis of agents where each has its own.

    Attributes:
      view, legal: what an agent saw, and bool ``[..., 5]``, what it might do.
      action, log_probability, value: int32 and float32, what it did, as it was drawn, and the value of the view.
      present: bool, whether there is such an agent and it plays.
      reward: float32, of the move.
      done: bool ``[time, environments]``, whether the play ended with the step.
      level, outcome, length: int32 ``[time, environments]``, the board; how the play ended, `ABSENT` where it goes on;
        and the steps since it began.
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
    outcome: Array
    length: Array


SOLVED, OPTIMAL, HOLE, CONFLICT, LATE = range(5)
"""How a play ends."""


def make_bank(student: PlaySection, levels: Instance) -> LevelBank:
    """Return levels ``[lanes, levels]`` as banks, with the distances to the goals if the reward may ask for them."""
    if student.reward in (PlayerReward.SPARSE, PlayerReward.COST):
        return LevelBank(instances=levels, distances=None)
    return lanes([LevelBank.build(lane(levels, i), with_distances=True) for i in range(len(levels.size))])


def begin(lake: Lake, actor: Actor, bank: LevelBank, place: Array) -> tuple[State, Array, Any, Array]:
    """Return environments at the beginning of plays of the levels at `place`: states, place, views and legal moves."""
    states = reset(lake, actor.episode_steps, bank, place)
    return states, place, *see(lake, states)


def no_plays(levels: int) -> Played:
    """Return the outcome of no plays."""
    zeros = {
        field.name: jnp.zeros(levels, jnp.float32 if field.name in ("steps", "advantage") else jnp.int32)
        for field in dataclasses.fields(Played)
    }
    return Played(**zeros)


def draw(key: Array, count: int, levels: int) -> Array:
    """Draw the level of each environment."""
    return jax.random.randint(key, (count,), 0, levels, jnp.int32)


def advance(
    lake: Lake,
    actor: Actor,
    temperature: float,
    optima: Array,
    parameters: Any,
    frozen: Any,
    environments: tuple[State, Array, Any, Array],
    wanted: Array,
    key: Array,
) -> tuple[State, Rollout]:
    """Play one step in all environments.

    Args:
      temperature: the log-probabilities are divided by it before a move is drawn.
      wanted: bool ``[environments, agents]``, who decides; the rest of the step may be anything.
    """
    states, place, view, legal = environments
    logits, value = decide(actor, parameters, frozen, view, legal, wanted)
    if temperature != 1:
        logits = jax.nn.log_softmax(logits / temperature)
    action = jax.random.categorical(key, logits)
    after, step = jax.vmap(lake.step)(states, action)
    done, solved = after.done, step.info.solved & after.done
    best = step.info.costs.sum_of_costs == optima[place]
    fell, conflict = jnp.any(step.info.fell, axis=1), after.terminated
    outcome = jnp.where(
        solved, jnp.where(best, OPTIMAL, SOLVED), jnp.where(fell, HOLE, jnp.where(conflict, CONFLICT, LATE))
    )
    return after, Rollout(
        view=view,
        legal=legal,
        action=action,
        log_probability=of_action(logits, action),
        value=value,
        present=wanted,
        reward=step.rewards,
        done=done,
        level=place,
        outcome=jnp.where(done, outcome, ABSENT),
        length=after.time,
    )


def restart(
    lake: Lake, actor: Actor, bank: LevelBank, states: State, begins: Array, place: Array
) -> tuple[State, Array, Any, Array]:
    """Return the environments with another play, of the level at `place`, where one begins."""
    fresh = reset(lake, actor.episode_steps, bank, place)
    states = jax.tree.map(lambda new, old: jnp.where(_like(begins, new), new, old), fresh, states)
    return states, place, *see(lake, states)


def _like(flags: Array, leaf: Array) -> Array:
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - 1))


def describe(rollout: Rollout) -> dict[str, Array]:
    """Return the metrics of the plays that ended."""
    ended = jnp.maximum(jnp.sum(rollout.done), 1)
    shares: dict[str, Array] = {
        "valid": (rollout.outcome == SOLVED) | (rollout.outcome == OPTIMAL),
        "optimal": rollout.outcome == OPTIMAL,
        "failure/hole_free": rollout.outcome == HOLE,
        "failure/conflict_free": rollout.outcome == CONFLICT,
        "failure/goal_reached": rollout.outcome == LATE,
        "episode_steps": jnp.where(rollout.done, rollout.length, 0),
    }
    metrics: dict[str, Array] = {name: jnp.sum(values) / ended for name, values in shares.items()}
    return metrics | {"episodes": jnp.sum(rollout.done).astype(jnp.float32)}


def count(played: Played, rollout: Rollout, advantage: Array) -> Played:
    """Add a rollout's episodes and steps to what their levels came to."""
    level, done = rollout.level.reshape(-1), rollout.done.reshape(-1)
    outcome, length = rollout.outcome.reshape(-1), jnp.where(done, rollout.length.reshape(-1), 0).astype(jnp.float32)
    present = rollout.present.astype(jnp.float32)
    mean = jnp.sum(jnp.abs(advantage) * present, axis=-1) / jnp.maximum(jnp.sum(present, axis=-1), 1)
    added = {
        "episodes": done,
        "solved": (outcome == SOLVED) | (outcome == OPTIMAL),
        "optimal": outcome == OPTIMAL,
        "holes": outcome == HOLE,
        "conflicts": outcome == CONFLICT,
        "late": outcome == LATE,
        "steps": length,
        "advantage": mean.reshape(-1),
        "played": jnp.any(rollout.present, axis=-1).reshape(-1),
    }
    sums = {name: getattr(played, name) for name in added}
    return Played(**{name: sums[name].at[level].add(x.astype(sums[name].dtype)) for name, x in added.items()})


def in_words(student: PlaySection, boards: int) -> str:
    """Return how boards are played and rewarded, for an engineer."""
    reward = student.reward
    words = "Reward 1 when all agents have arrived, else 0." if reward == PlayerReward.SPARSE else f"Reward {reward}."
    return f"at most {student.episode_steps} steps an episode. {words} {boards} boards a round."


def evidence_rows(played: Played, kinds: Array) -> tuple[KindEvidence, ...]:
    """Return the rows of a lane's episodes from the numbers of its levels, by the levels' kinds ``[levels]``."""
    rows = [_row(kind, played[kinds == kind]) for kind in sorted(set(kinds.tolist()))]
    return tuple(row for row in rows if row is not None)


def _row(kind: Kind, played: Played) -> KindEvidence | None:
    """Return the row of a kind from the numbers of its levels; None if none of its episodes ended."""
    seen = played.episodes > 0
    episodes, solved = int(played.episodes.sum()), int(played.solved.sum())
    if not episodes:
        return None
    shares = played.solved[seen] / played.episodes[seen]
    failures = {
        "hole_free": int(played.holes.sum()),
        "conflict_free": int(played.conflicts.sum()),
        "goal_reached": int(played.late.sum()),
    }
    first = {check: failures.get(check, 0) for check in CHECKS}
    lengths = played.steps[seen] / played.episodes[seen]
    return KindEvidence(
        kind=kind,
        n=episodes,
        valid=solved,
        optimal=int(played.optimal.sum()),
        first_failures=first,
        any_failures=first | {"goal_reached": episodes - solved},
        sampled_valid=solved / episodes,
        sampled_se=standard_error(shares),
        **count_groups(shares),
        answer_tokens=float(played.steps.sum()) / episodes,
        answer_tokens_se=standard_error(lengths),
        truncated=failures["goal_reached"],
        advantage=float(played.advantage.sum() / max(int(played.played.sum()), 1)),
    )

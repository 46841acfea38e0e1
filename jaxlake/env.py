"""The stepwise environment: one episode on one instance, pure functions of arrays. It draws no instance.

No batch axes: ``jax.vmap`` adds them, over boards and agent counts of any mix, as ``Instance`` pads them. Nothing is
jitted here either; the owner of the loop does that.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import levels, lifelong, observations, rewards, rules
from jaxlake.record import Array, vary_alike
from jaxlake.rules import ConflictRule, GoalRule, HoleRule
from jaxlake.state import (
    DEFAULT_PARAMS,
    Info,
    LifelongInfo,
    LifelongState,
    ListedState,
    Params,
    State,
    TimeStep,
    Transition,
)
from jaxlake.types import ABSENT, Action, Costs, Instance

CLASSIC_SLIP = 2 / 3
"""The slip of the classic frozen lake: the intended direction and its two perpendicular ones, a third each."""
MOST_STEPS = np.iinfo(np.int16).max
"""Of an episode: costs are counted in int16."""
_LIFELONG_STATES: dict[GoalRule, type[LifelongState]] = {GoalRule.DRAWN: LifelongState, GoalRule.LISTED: ListedState}


@dataclasses.dataclass(frozen=True)
class Lake:
    """The rules of the game, and what its agents see and are rewarded for; hashable, so it can be a static argument.

    All agents move at the same time. Two agents must not enter the same cell (a standing agent enters its own), nor
    swap cells; following one another and rotations of three or more are allowed. An agent stays in the way on its goal
    and may leave it again. A move off the board stays where it is. The episode is solved when all agents are on their
    goals at once.

    Attributes:
      holes: the effect of a move into a hole; a ``HoleRule`` or its word.
      conflicts: the effect of a conflict; a ``ConflictRule`` or its word.
      observe: ``State -> pytree`` of arrays.
      reward: ``Transition -> float32 [max_agents]``.
      goals: the effect of reaching a goal; a ``GoalRule`` or its word. All but ``ONCE`` play a lifelong episode on a
        board of ``lifelong.board``, with a reward such as ``rewards.reached``: it ends when time runs out, or with a
        fall or a conflict where these end it. ``rewards.sparse`` and ``rewards.cost`` refuse it.
    """

    # --- What you write ---

    holes: HoleRule = HoleRule.IMPASSABLE
    conflicts: ConflictRule = ConflictRule.BLOCK
    observe: Callable[[State], Any] = observations.planes
    reward: Callable[[Transition], jax.Array] = rewards.sparse
    goals: GoalRule = GoalRule.ONCE

    def __post_init__(self) -> None:
        # Rules are compared by identity, so that a word would silently be none of them.
        object.__setattr__(self, "holes", HoleRule(self.holes))
        object.__setattr__(self, "conflicts", ConflictRule(self.conflicts))
        object.__setattr__(self, "goals", GoalRule(self.goals))

    # --- What you get ---

    def reset(
        self, instance: Instance, params: Params = DEFAULT_PARAMS, distances: Array | None = None
    ) -> tuple[State, TimeStep]:
        """Begin an episode.

        Args:
          instance: no batch axes; ``levels.validate`` tells whether one can be played.
          params: no batch axes.
          distances: int8 or int16 ``[max_agents, cells]`` for observations and rewards that need them, else None. For
            a lifelong board prefer ``[1, cells, cells]`` of ``distance_tables``: a flood computes the others anew for
            each next goal, under ``jax.vmap`` in every step, and takes far longer than a step.

        Returns:
          The state, and a time step without rewards. It is terminated already if all agents start on their goals. A
          lifelong episode is not: an agent that starts on its goal reaches it in the first step in which it stays.
        """
        if distances is not None:
            shape, cells = np.shape(distances), instance.max_size**2
            tables = self.goals is not GoalRule.ONCE and shape == (1, cells, cells)
            if shape != (instance.max_agents, cells) and not tables:
                raise ValueError(
                    f"distances have the shape {list(shape)}: distance_fields or distance_tables make them"
                )
        return self._reset(instance, params, distances)

    def _reset(self, instance: Instance, params: Params, distances: Array | None) -> tuple[State, TimeStep]:
        """Begin an episode; of a lifelong board that has its number in a bank, the tables may be those of the bank."""
        # To one dtype each, so that a state is the same to ``jit`` and ``scan`` wherever its level comes from.
        dtypes = {name: bool if name == "holes" else jnp.int32 for name in vars(instance)}
        instance = instance.replace(
            **{name: jnp.asarray(part, dtypes[name]) for name, part in vars(instance).items() if part is not None}
        )
        _check(instance, self.goals is not GoalRule.ONCE)
        count = jnp.zeros(instance.max_agents, jnp.int16)
        begin = State(
            instance=instance,
            distances=distances,
            params=params.as_arrays(),
            positions=instance.starts,
            time=jnp.int32(0),
            arrivals=count,
            losses=count,
            fallen=jnp.zeros(instance.max_agents, bool),
            terminated=jnp.all(instance.starts == instance.goals),
            truncated=jnp.bool_(False),
        )
        if self.goals is not GoalRule.ONCE:
            parts = {**vars(begin), "terminated": jnp.bool_(False)}
            begin = _LIFELONG_STATES[self.goals](**parts, goals_reached=count.astype(jnp.int32))
        state = vary_alike(begin)
        none, nobody = jnp.zeros_like(state.time), jnp.zeros_like(state.fallen)
        info = _info(state, none, none, nobody, nobody)
        if isinstance(state, LifelongState):
            info = info.replace(arrived=nobody)  # no step has brought anyone there
        time_step = self._time_step(state, jnp.zeros_like(state.positions, jnp.float32), info)
        # Each has its own arrays: a caller may donate one of the two and keep the other, and the level.
        copies: tuple[State, TimeStep] = jax.tree.map(jnp.copy, (state, time_step))
        return copies

    def step(self, state: State, actions: Array, key: Array | None = None) -> tuple[State, TimeStep]:
        """Play one step; after the end of the episode nothing changes and nothing is rewarded.

        Args:
          actions: int32 ``[max_agents]`` of ``Action``; any other number waits, and so do agents that are not there.
          key: consumed where ``needs_key`` says so, unused otherwise.
        """
        agents = state.instance.max_agents
        moves = actions = jnp.asarray(actions)
        if actions.shape != (agents,):  # else they would be repeated in silence
            raise ValueError(f"actions have the shape {list(actions.shape)}: it must be [{agents}]")
        if type(state) is not _LIFELONG_STATES.get(self.goals, State):
            raise ValueError(f"the state is not of a lake with goals = {self.goals.value!r}: reset it by this lake")
        if key is None and self.needs_key(state.params):
            raise ValueError("step needs a key: goals are drawn, or params.slip is set")
        goal_key = key if self.goals is GoalRule.DRAWN else None
        if state.params.slip is not None and key is not None:
            slip_key, goal_key = (key, None) if goal_key is None else jax.random.split(key)
            moves = _slip(slip_key, actions, state.params.slip)
        active = ~state.done
        moves = jnp.where(active, moves, Action.WAIT)
        outcome = rules.move(state.instance, state.positions, moves, self.holes, self.conflicts)

        time = state.time + active.astype(jnp.int32)
        counts = active & ~outcome.rested
        terminated = state.terminated | outcome.solved if self.goals is GoalRule.ONCE else state.terminated
        if self.holes is HoleRule.FALL:
            terminated |= jnp.any(outcome.entered_hole)
        if self.conflicts is ConflictRule.END:
            terminated |= outcome.in_conflict
        after = state.replace(
            positions=outcome.positions,
            time=time,
            arrivals=jnp.where(counts, time.astype(jnp.int16), state.arrivals),
            losses=state.losses + counts.astype(jnp.int16),
            fallen=state.fallen | outcome.entered_hole if self.holes is HoleRule.FALL else state.fallen,
            terminated=terminated,
            truncated=state.truncated | ((time >= jnp.minimum(state.params.max_steps, MOST_STEPS)) & ~terminated),
        )
        info = _info(
            after, outcome.vertex_conflicts, outcome.swap_conflicts, outcome.blocked, after.fallen ^ state.fallen
        )
        if isinstance(after, LifelongState):
            after, info = self._assign_next_goals(after, info, active, goal_key)
        transition = Transition(
            before=state,
            after=after,
            actions=actions,
            info=info,
            terminated=after.terminated,
            truncated=after.truncated,
        )
        paid = jnp.asarray(self.reward(transition), jnp.float32)
        if paid.shape != (agents,):
            raise ValueError(f"the rewards have the shape {list(paid.shape)}: it must be [{agents}]")
        return after, self._time_step(after, jnp.where(active, paid, 0), info)

    def needs_key(self, params: Params) -> bool:
        """Return whether ``step`` needs a key: for the slip, or to draw goals."""
        return params.slip is not None or self.goals is GoalRule.DRAWN

    def _assign_next_goals(
        self, state: LifelongState, info: Info, active: Array, key: Array | None
    ) -> tuple[LifelongState, Info]:
        """Return the state in which agents that arrived have their next goals, and the events of the step."""
        arrived = info.arrived & active
        reached = state.goals_reached + arrived.astype(jnp.int32)
        instance, distances = lifelong.next_goals(state.instance, arrived, key), state.distances
        if distances is not None and distances.ndim == 2:
            instance, distances, arrived = vary_alike((instance, distances, arrived))
            distances = jax.lax.cond(
                jnp.any(arrived),
                lambda: levels.distance_fields(instance).astype(distances.dtype),
                lambda: distances,
            )
        state = state.replace(instance=instance, distances=distances, goals_reached=reached)
        return state, info.replace(arrived=arrived, goals_reached=reached)

    def legal_actions(self, state: State) -> jax.Array:
        """Return the legal actions, bool ``[max_agents, 5]``, as in ``TimeStep``."""
        return rules.legal_actions(state.instance, state.positions, self.holes)

    def _time_step(self, state: State, rewards: Array, info: Info) -> TimeStep:
        return TimeStep(
            observation=self.observe(state),
            rewards=rewards,
            shared_reward=jnp.sum(rewards, dtype=jnp.float32),
            terminated=state.terminated,
            truncated=state.truncated,
            legal_actions=self.legal_actions(state),
            info=info,
        )


def _check(instance: Instance, is_lifelong: bool) -> None:
    """Raise ValueError for what would be played wrongly in silence: batch axes, and outside ``jit`` any other fault."""
    if axes := levels.batch_axes(instance, is_lifelong):
        raise ValueError(f"the instance has batch axes {axes}: it must have none; jax.vmap adds them")
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(instance)):
        levels.validate(instance, is_lifelong)


def _slip(key: Array, actions: Array, slip: Array | float) -> jax.Array:
    draw = jax.random.uniform(key, actions.shape, jnp.float32)
    # Of the two perpendicular to the action.
    first = jnp.where(actions < Action.LEFT, np.int32(Action.LEFT), np.int32(Action.UP))
    slipped = jnp.where(draw < slip / 2, first, first + 1)
    moves = (actions >= Action.UP) & (actions < Action.WAIT)
    return jnp.where((draw < slip) & moves, slipped, actions)


def _info(state: State, vertex_conflicts: Array, swap_conflicts: Array, blocked: Array, fell: Array) -> Info:
    there = state.positions != ABSENT
    arrived = there & (state.positions == state.instance.goals)
    info = Info(
        vertex_conflicts=vertex_conflicts,
        swap_conflicts=swap_conflicts,
        blocked=blocked,
        arrived=arrived,
        solved=jnp.all(arrived | ~there),
        fell=fell,
        costs=Costs(
            sum_of_costs=jnp.sum(state.arrivals, dtype=jnp.int32),
            sum_of_loss=jnp.sum(state.losses, dtype=jnp.int32),
            makespan=jnp.max(state.arrivals).astype(jnp.int32),
        ),
    )
    if not isinstance(state, LifelongState):
        return info
    parts = {**vars(info), "solved": jnp.zeros_like(info.solved)}
    return LifelongInfo(**parts, goals_reached=state.goals_reached)

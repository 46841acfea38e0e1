"""Records of an episode: its state, the events of a step and the agents' view of it; ``env`` plays it."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxlake.record import Array, Record, record
from jaxlake.types import MAX_STEPS, Costs, Instance, LifelongInstance


@record
class Params(Record):
    """Settings that may differ between environments of one compiled program.

    Attributes:
      max_steps: int32 ``[]``, the episode is truncated after that many steps, 1 to 32,767, and after 32,767 at the
        latest: costs are counted in int16.
      slip: float32 ``[]``, the probability that a move (not WAIT) goes to one of its two perpendicular directions, half
        each. None: actions do what they say, no randomness of moves is compiled in, and ``step`` needs a key only
        where goals are drawn.
    """

    max_steps: Array | int = MAX_STEPS
    slip: Array | float | None = None

    def as_arrays(self) -> "Params":
        """Return the same settings in their dtypes."""
        slip = None if self.slip is None else jnp.asarray(self.slip, jnp.float32)
        return Params(max_steps=jnp.asarray(self.max_steps, jnp.int32), slip=slip)


DEFAULT_PARAMS = Params()


@record
class State(Record):
    """The state of one episode.

    Attributes:
      distances: int8 or int16 ``[max_agents, cells]`` of a ``LevelBank``, or None where nothing needs them. Read them
        by ``steps_to_goals``: in lifelong episodes they have other shapes.
      positions: int32 ``[max_agents]`` cells, ``ABSENT`` from ``num_agents`` on.
      time: int32 ``[]`` steps so far.
      arrivals: int16 ``[max_agents]`` cost so far: the time of the last arrival of an agent on its goal, the time so
        far of any other.
      losses: int16 ``[max_agents]`` steps so far that did not begin and end on the agent's goal.
      fallen: bool ``[max_agents]``, in a hole.
      terminated, truncated: bool ``[]``, how the episode ended; at most one of them.
    """

    instance: Instance
    distances: Array | None
    params: Params
    positions: Array
    time: Array
    arrivals: Array
    losses: Array
    fallen: Array
    terminated: Array
    truncated: Array
    _repr_html_: ClassVar[Callable[["State"], str]]
    """The current board, for notebooks; ``jaxlake.render`` draws it."""

    @property
    def done(self) -> Array:
        """Whether the episode is over and steps change nothing, bool ``[]``."""
        return self.terminated | self.truncated

    def steps_to_goals(self, cells: Array) -> jax.Array:
        """Return the steps from cells int ``[max_agents, n]``, or ``[1, n]`` for all, to each agent's goal now.

        ``[max_agents, n]``, in the dtype of ``distances``; ValueError if the state holds none.
        """
        return self._steps_to_goals(cells, "clip")

    def _steps_to_goals(self, cells: Array, mode: str | None) -> jax.Array:
        board = self.instance
        if self.distances is None:
            fault = "the state holds no distances: build the bank with_distances=True, or hand them to reset"
            if isinstance(board, LifelongInstance) and board.tasks is None:
                fault = "AutoReset's bank has the distances: state.replace(distances=bank.at(state.instance.board)[1])"
            raise ValueError(fault)
        distances = jnp.asarray(self.distances)
        if isinstance(board, LifelongInstance) and distances.ndim == 3:
            # Of a single board, whose number in a bank may be any, the table is the nearest.
            return distances.at[board.board, board.goals[:, None], cells].get(mode="clip")
        return jnp.take_along_axis(distances, cells, axis=1, mode=mode)


@record
class LifelongState(State):
    """The state of a lifelong episode: ``instance.goals`` are the goals now.

    Attributes:
      instance: a ``LifelongInstance``.
      distances: int16 ``[boards, cells, cells]`` of ``distance_tables``, int8 from a ``LevelBank`` of boards up to
        11 x 11; or ``[max_agents, cells]`` to the goals now, which a flood computes anew; or None.
      goals_reached: int32 ``[max_agents]`` so far.
    """

    instance: LifelongInstance
    goals_reached: Array


@record
class ListedState(LifelongState):
    """The state of a lifelong episode in which each agent gets the next goal of its list."""


@record
class Info(Record):
    """The events of a step.

    Attributes:
      vertex_conflicts: int32 ``[]`` pairs of agents that tried to be on one cell, standing ones included.
      swap_conflicts: int32 ``[]`` pairs that tried to swap cells.
      blocked: bool ``[max_agents]``, tried to move and did not because of a conflict, its own or one ahead of it.
      arrived: bool ``[max_agents]``, on the goal now.
      solved: bool ``[]``, all are on their goals at once.
      fell: bool ``[max_agents]``, fell into a hole in this step.
      costs: the episode's costs so far; once it is solved, those of ``verify`` and the solver.
    """

    vertex_conflicts: Array
    swap_conflicts: Array
    blocked: Array
    arrived: Array
    solved: Array
    fell: Array
    costs: Costs


@record
class LifelongInfo(Info):
    """The events of a step of a lifelong episode; ``arrived`` has who reached a goal in it, and ``solved`` is False.

    Attributes:
      goals_reached: int32 ``[max_agents]`` so far; throughput is their sum divided by the state's ``time``.
      costs: each step of each agent counts that does not begin and end on one goal.
    """

    goals_reached: Array


@record
class TimeStep(Record):
    """The agents' view of ``reset`` and ``step``.

    Attributes:
      observation: whatever the lake's ``observe`` returns.
      rewards: float32 ``[max_agents]``; 0 on reset and after the end.
      shared_reward: float32 ``[]``, their sum.
      terminated: bool ``[]``, solved, fallen or, under ``ConflictRule.END``, in conflict.
      truncated: bool ``[]``, out of steps and not terminated.
      legal_actions: bool ``[max_agents, 5]`` in the order of ``Action``, for the next step: moves to a cell of the
        board that can be entered, also if an agent stands there, and WAIT. Only WAIT for agents that are not there.
    """

    observation: Any
    rewards: Array
    shared_reward: Array
    terminated: Array
    truncated: Array
    legal_actions: Array
    info: Info


@record
class Transition(Record):
    """A step as a reward function sees it; never one after the end of an episode.

    Attributes:
      before, after: the states around it.
      actions: int32 ``[max_agents]`` as chosen, before any slip.
      terminated, truncated: bool ``[]``, of ``after``.
    """

    before: State
    after: State
    actions: Array
    info: Info
    terminated: Array
    truncated: Array

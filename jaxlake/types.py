"""The padded arrays that travel between rooms; no behaviour beyond names and small views of them.

A cell is ``row * max_size + column`` (int32), so one compiled program serves every mix of board sizes and agent
counts. ``ABSENT`` (-1) pads what is not there. ``max_size``, ``max_agents`` and ``max_steps`` are static: functions
read them off the array shapes and never take them as arguments.
"""

import enum
import math
from collections.abc import Callable
from typing import ClassVar

from jaxlake.record import Array, Record, record

MAX_SIZE = 10
MAX_AGENTS = 5
MAX_STEPS = 64
MAX_ANSWER_STEPS = 255
"""Steps that an answer in words may have: no optimal plan of the fixed sets has 64, one that wanders is valid still."""

MAX_GOALS = 1 << 16
"""Goals of an agent of a lifelong board: one is drawn by a product of 16 bits and their number in uint32."""

ABSENT = -1
"""A cell, agent or cost that is not there."""
OUTSIDE = -2
"""A coordinate that a plan names and the padded board does not have."""


def coordinate(cell: int | Array, max_size: int) -> str:
    """Return a cell in words: ``(row,column)``."""
    return "({},{})".format(*divmod(int(cell), max_size))


class Action(enum.IntEnum):
    """The action of an agent in one step; rows grow downwards, columns to the right."""

    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3
    WAIT = 4


STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
"""Rows down and columns to the right that an ``Action`` leads, in its order."""


class Check(enum.IntEnum):
    """The eight validity checks in the order in which they are reported (paper, reconstruction of section 3)."""

    PARSABLE = 0
    AGENT_COUNT = 1
    START_CORRECT = 2
    IN_BOUNDS = 3
    HOLE_FREE = 4
    LEGAL_MOVE = 5
    CONFLICT_FREE = 6
    GOAL_REACHED = 7


class Objective(enum.StrEnum):
    """The cost that an optimal plan minimises; an agent's cost is the time of its last arrival (Stern et al. 2019)."""

    SUM_OF_COSTS = "sum_of_costs"
    MAKESPAN = "makespan"


class Status(enum.IntEnum):
    """The end of a search for an optimal plan."""

    SOLVED = 0
    UNSOLVABLE = 1
    """Proved: no plan exists (within the cost bound, where one was given)."""
    OUT_OF_BUDGET = 2
    """Undecided within the node budget or the horizon."""


@record
class Costs(Record):
    """The costs of a plan under each convention; any leading batch axes.

    Attributes:
      sum_of_costs: int32 ``[...]``, the times of the agents' last arrivals at their goals: waiting on a goal is free
        unless the agent leaves it again (Stern et al. 2019; the paper's optimum).
      sum_of_loss: int32 ``[...]``, steps that do not begin and end on the agent's goal: waiting there is always free.
      makespan: int32 ``[...]``, the time of the last arrival of all.
    """

    sum_of_costs: Array
    sum_of_loss: Array
    makespan: Array


@record
class Instance(Record):
    """A board with its agents; any leading batch axes.

    Attributes:
      size: int32 ``[...]``, side N of the board.
      num_agents: int32 ``[...]``.
      holes: bool ``[..., cells]``, impassable cells; ``cells = max_size ** 2``. False outside the N x N board.
      starts, goals: int32 ``[..., max_agents]`` cells, ``ABSENT`` from ``num_agents`` on.
    """

    size: Array
    num_agents: Array
    holes: Array
    starts: Array
    goals: Array
    _repr_html_: ClassVar[Callable[["Instance"], str]]
    """A picture, for notebooks; ``jaxlake.render`` draws it."""

    @property
    def max_size(self) -> int:
        """Side of the padded board."""
        return math.isqrt(self.holes.shape[-1])

    @property
    def max_agents(self) -> int:
        """Number of agent slots."""
        return self.starts.shape[-1]


@record
class LifelongInstance(Instance):
    """A board for ``Lake(goals=...)`` with the next goals of its agents; ``lifelong.board`` makes it.

    Attributes:
      goals: int32 ``[..., max_agents]``, the goals now, of which several may be one cell.
      tasks: int32 ``[..., tasks]``, cells that goals are taken from; ``ABSENT`` at the end pads them.
      first, count: int32 ``[..., max_agents]``; an agent's goals are ``tasks[first : first + count]``, and those of
        several agents may be the same part.
      place: int32 ``[..., max_agents]``, the number of an agent's goal now among its goals.
      board: int32 ``[...]``, the row of ``State.distances`` that has this board's steps, and in ``AutoReset`` also that
        of the bank's ``tasks``; 0 outside of a bank.
      digest: int32 ``[...]``, a hash of size, holes and tasks, by which ``AutoReset`` knows the board in its bank.
    """

    tasks: Array
    first: Array
    count: Array
    place: Array
    board: Array
    digest: Array


@record
class Plan(Record):
    """The plan of an answer: a path per agent, start included; any leading batch axes.

    Attributes:
      parsable: bool ``[...]``, the text could be read as paths that fit the arrays.
      num_named: int32 ``[...]``, how many different agents the answer names, those beyond ``max_agents`` included.
      paths: int32 ``[..., max_agents, max_steps + 1]`` cells; ``OUTSIDE`` for a coordinate off the padded board,
        ``ABSENT`` from the agent's length on.
      lengths: int32 ``[..., max_agents]`` number of cells named, 0 for an agent that is not named.
    """

    parsable: Array
    num_named: Array
    paths: Array
    lengths: Array


@record
class Verdict(Record):
    """The worth of a plan on its instance; any leading batch axes.

    Attributes:
      checks: bool ``[..., 8]`` in the order of ``Check``, True where the check passes.
      valid: bool ``[...]``, all eight pass.
      cost: int32 ``[...]`` under the objective asked for, ``ABSENT`` unless valid.
      costs: ``[...]`` under each convention, ``ABSENT`` unless valid.
      optimal: bool ``[...]``, valid and at the optimum's cost.
    """

    checks: Array
    valid: Array
    cost: Array
    costs: Costs
    optimal: Array


@record
class Solution(Record):
    """The result of an exact search; any leading batch axes.

    Attributes:
      status: int32 ``[...]``, a ``Status``.
      plan: an optimal ``Plan`` where solved, else an empty one.
      cost: int32 ``[...]`` the optimum, ``ABSENT`` unless solved.
      lower_bound: int32 ``[...]`` cost of the agents' independent shortest paths, ``ABSENT`` if one has none.
      expansions: int32 ``[...]`` nodes of the constraint tree that were expanded.
    """

    status: Array
    plan: Plan
    cost: Array
    lower_bound: Array
    expansions: Array

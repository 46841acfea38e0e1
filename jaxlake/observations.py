"""Observations: functions from a ``State`` to arrays, or to text on the host. All of them show the same state.

An observation of your own is any function from a ``State`` to a pytree of arrays.
"""

import dataclasses
from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array
from jaxlake.state import State
from jaxlake.types import ABSENT, LifelongInstance

OBSTACLES, AGENTS, GOALS = 0, 1, 2
"""The planes of ``planes``."""
OTHERS, OWN_GOAL, OTHER_GOALS, STEPS_TO_GOAL = 1, 2, 3, 4
"""The channels of ``window`` after ``OBSTACLES``."""

_FAR = 127


def planes(state: State) -> jax.Array:
    """Return the whole board, int8 ``[3, max_size, max_size]``, from 128 agents on int16.

    Plane ``OBSTACLES`` is 1 on holes and off the board, ``AGENTS`` holds an agent's number plus 1 on its cell and
    ``GOALS`` the same where its goal is; 0 otherwise. Where goals coincide, as in a lifelong episode, the largest such
    number.
    """
    instance = state.instance
    side = instance.max_size
    # A scatter into flat boards. Comparing every cell with every agent takes three times as long on a CPU, mostly
    # because XLA then writes them in loops of max_size elements.
    both = jnp.stack([state.positions, instance.goals]).astype(jnp.uint32)  # ABSENT is out of range, so it is dropped.
    plane = np.array([[AGENTS], [GOALS]], np.uint32)
    number = np.arange(1, instance.max_agents + 1, dtype=number_dtype(instance.max_agents))
    board = (_obstacles(state)[None] & (np.arange(3) == OBSTACLES)[:, None]).astype(number.dtype)
    at = board.at[plane, both]
    write = at.max if isinstance(instance, LifelongInstance) else at.set  # a maximum takes longer
    board = write(np.stack([number, number]), mode="drop")
    channels: jax.Array = board.reshape(3, side, side)
    return channels


def one_hot(state: State) -> jax.Array:
    """Return the whole board in zeros and ones, int8 ``[1 + 2 * max_agents, max_size, max_size]``.

    For networks without an embedding, to which the numbers in ``planes`` would be quantities. Plane ``OBSTACLES`` is as
    in ``planes``; then each agent has a plane of its own, by number, and after all of them each goal. The planes of
    absent agents are 0.
    """
    instance = state.instance
    side, agents = instance.max_size, instance.max_agents
    nobody = jnp.full(1, ABSENT, jnp.int32)  # on the plane of the obstacles; ABSENT is no cell
    cells = jnp.concatenate([nobody, state.positions, instance.goals])[:, None]
    board = (cells == np.arange(side * side, dtype=np.int32)[None]).astype(jnp.int8)
    # Set afterwards, which XLA does in place: 200 ns against 330 when concatenated.
    return board.at[OBSTACLES].set(_obstacles(state).astype(jnp.int8)).reshape(1 + 2 * agents, side, side)


def window(radius: int, *, project_goal: bool = False, distances: bool = False) -> Callable[[State], jax.Array]:
    """Make an observation of the cells around each agent, int8 ``[max_agents, 4, 2 * radius + 1, 2 * radius + 1]``.

    The agent is in the middle; absent agents see 0. Channel ``OBSTACLES`` is 1 on holes and off the board,
    ``OTHERS`` holds another agent's number plus 1, ``OWN_GOAL`` is 1 on the agent's goal and ``OTHER_GOALS`` holds the
    number plus 1 of the agent whose goal it is; where goals coincide, the largest such number. From 128 agents on it
    is int16.

    Args:
      project_goal: a goal outside of the window is shown on its border, row and column each as near as they can be, as
        in POGEMA.
      distances: a fifth channel, ``STEPS_TO_GOAL``, has the steps to the agent's goal from each cell, less those from
        the agent's own, from -127 to 127; 127 without a way. The state must hold distances
        (``LevelBank.build(..., with_distances=True)``), else calling the observation is a ValueError.
    """
    return _Window(radius, project_goal, distances)


def flat(state: State) -> jax.Array:
    """Return one vector per agent, float32 ``[max_agents, 4 * max_agents + cells]``; 0 for absent agents.

    The agents' (row, column), the agent itself first and then the others by number, then their goals' in the same
    order, each coordinate divided by ``max_size`` and -1 for absent agents; then 1 for each cell that is a hole or off
    the board.
    """
    instance = state.instance
    agents, side = instance.max_agents, instance.max_size
    number = np.arange(agents)
    others_by_number = np.array([np.concatenate([[agent], np.delete(number, agent)]) for agent in number])

    def coordinates(cells: Array) -> jax.Array:
        pair = jnp.stack(jnp.divmod(cells, side), axis=-1).astype(jnp.float32) / side
        return jnp.where((cells != ABSENT)[:, None], pair, -1.0)[others_by_number].reshape(agents, 2 * agents)

    obstacles = jnp.broadcast_to(_obstacles(state).astype(jnp.float32), (agents, side * side))
    features = jnp.concatenate([coordinates(state.positions), coordinates(instance.goals), obstacles], axis=1)
    return jnp.where((state.positions != ABSENT)[:, None], features, 0.0)


def bounds(observe: Callable[[State], Any], max_agents: int) -> tuple[float, float] | None:
    """Return the least and greatest value that an observation of this module can hold; None for any other function."""
    if isinstance(observe, _Window) and observe.distances:
        return -float(_FAR), float(max(_FAR, max_agents))
    if observe is planes or isinstance(observe, _Window):
        return 0.0, float(max_agents)
    if observe is one_hot:
        return 0.0, 1.0
    if observe is flat:
        return -1.0, 1.0
    return None


def text(state: State) -> str:
    """Draw the current board, one character a cell; on the host, not under jit.

    ``#`` is a hole, ``.`` a free cell, ``a`` agent 0 and ``A`` its goal, ``b`` and ``B`` agent 1's, and so on. An agent
    hides its cell, so a goal that is not drawn is under an agent or, in a lifelong episode, under the goal of a later
    one; below the board a line names the agents that are on their goals, if any: ``arrived: a c``.
    """
    instance = state.instance
    if instance.num_agents > len(ascii_lowercase):
        raise ValueError(
            f"the board has {instance.num_agents} agents: a drawing has letters for {len(ascii_lowercase)}; svg and "
            "render_mode='rgb_array' draw any number"
        )
    size, side = int(instance.size), instance.max_size
    board = np.where(np.asarray(instance.holes).reshape(side, side), "#", ".")
    positions, goals = np.asarray(state.positions), np.asarray(instance.goals)
    for cells, first in ((goals, "A"), (positions, "a")):
        for agent in np.flatnonzero(cells != ABSENT):
            board[divmod(int(cells[agent]), side)] = chr(ord(first) + agent)
    lines = ["".join(row) for row in board[:size, :size]]
    arrived = np.flatnonzero((positions == goals) & (positions != ABSENT))
    if len(arrived):
        lines.append("arrived: " + " ".join(chr(ord("a") + agent) for agent in arrived))
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Window:
    """Not a closure, so that lakes with the same window are equal, which saves compiling anew, and can be pickled."""

    radius: int
    project_goal: bool = False
    distances: bool = False

    def __call__(self, state: State) -> jax.Array:
        instance, radius, here = state.instance, self.radius, state.positions
        side, agents, width = instance.max_size, instance.max_agents, 2 * self.radius + 1
        cells = np.arange(width * width, dtype=np.min_scalar_type(-width * width))[None]
        there = (here != ABSENT)[:, None]
        at = jnp.stack(jnp.divmod(jnp.maximum(here, 0), side))
        to_goal = jnp.stack(jnp.divmod(instance.goals, side)) - at
        near = jnp.clip(to_goal, -radius, radius)
        row, column = near + radius
        projected = there & ((row * width + column).astype(cells.dtype)[:, None] == cells)
        own_goal = projected & jnp.all(near == to_goal, axis=0)[:, None]

        # Agents and goals are written to one board and looked up at once, which costs each agent the same however many
        # others there are. XLA fuses what is not a scatter into the lookup, and the lookup into all that reads it, cell
        # by cell: so the board ends with scatters, and windows are set into longer ones. An agent takes 68 ns of a
        # core, and 290 if both are fused (64x64, radius 5).
        bits = agents.bit_length()
        number = np.arange(1, agents + 1, dtype=np.min_scalar_type((1 << 2 * bits + 1) - 1))
        none = number.dtype.type(0)
        board = jnp.asarray(_obstacles(state), number.dtype)
        board = board.at[instance.goals.astype(jnp.uint32)].max(number << 1 + bits, mode="drop")
        board = board.at[here.astype(jnp.uint32)].add(number << 1, mode="drop")
        padded = jnp.pad(board.reshape(side, side), radius, constant_values=1)
        seen = jax.vmap(lambda row, column: jax.lax.dynamic_slice(padded, (row, column), (width, width)))(*at)
        seen = jnp.zeros((agents, width + 1, width), number.dtype).at[:, :width].set(seen)
        seen = jnp.where(there, seen.reshape(agents, -1)[:, : width * width], none)
        same = (instance.goals[:, None] == instance.goals[None]) & ~np.eye(agents, dtype=bool)
        shared = jnp.max(jnp.where(same, number[:, None], none), axis=0)
        contents = {
            OBSTACLES: seen & 1,
            OTHERS: jnp.where(cells == width * width // 2, none, seen >> 1 & none + (1 << bits) - 1),
            OWN_GOAL: projected if self.project_goal else own_goal,
            OTHER_GOALS: jnp.where(own_goal, shared[:, None], seen >> 1 + bits),
        }
        if self.distances:
            contents[STEPS_TO_GOAL] = self._steps_to_goal(state, contents[OBSTACLES])
        numbers = number_dtype(agents)
        channels = jnp.stack([contents[channel].astype(numbers) for channel in sorted(contents)], axis=1)
        return channels.reshape(agents, -1, width, width)

    def _steps_to_goal(self, state: State, obstacles: Array) -> jax.Array:
        """Return the channel ``steps_to_goal``, int16 ``[max_agents, cells]``, looked up where the windows are."""
        reach, here = np.arange(-self.radius, self.radius + 1, dtype=np.int32), state.positions[:, None]
        # Where a window leaves the board these are other cells, and obstacles hide them.
        cells = here + np.add.outer(reach * state.instance.max_size, reach).reshape(1, -1)
        steps, own = (state.steps_to_goals(at).astype(jnp.int16) for at in (cells, here))
        known = (steps != ABSENT) & (own != ABSENT) & (obstacles == 0)
        difference = jnp.where(known, jnp.clip(steps - own, -_FAR, _FAR), np.int16(_FAR))
        return jnp.where(here == ABSENT, np.int16(0), difference)


def number_dtype(agents: int) -> np.dtype:
    """Return the smallest dtype that holds the agents' numbers plus 1: int8 for up to 127."""
    return np.min_scalar_type(-agents - 1)


def _obstacles(state: State) -> Array:
    """bool ``[cells]``: holes and cells off the board."""
    instance = state.instance
    row, column = np.divmod(np.arange(instance.max_size**2, dtype=np.int32), instance.max_size)
    return instance.holes | (np.maximum(row, column) >= instance.size)

"""Observations: functions from a ``State`` to arrays, or to text on the host. All of them show the same state.

An observation of your own is any function from a ``State`` to a pytree of arrays.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array
from jaxlake.state import State
from jaxlake.types import ABSENT

OBSTACLES, AGENTS, GOALS = 0, 1, 2
"""The planes of ``planes``."""
OTHERS, OWN_GOAL, OTHER_GOALS = 1, 2, 3
"""The channels of ``window`` after ``OBSTACLES``."""


def planes(state: State) -> jax.Array:
    """Return the whole board, int8 ``[3, max_size, max_size]``.

    Plane ``OBSTACLES`` is 1 on holes and off the board, ``AGENTS`` holds an agent's number plus 1 on its cell and
    ``GOALS`` the same where its goal is; 0 otherwise.
    """
    instance = state.instance
    side = instance.max_size
    # A scatter into flat boards. Comparing every cell with every agent takes three times as long on a CPU, mostly
    # because XLA then writes them in loops of max_size elements.
    both = jnp.stack([state.positions, instance.goals]).astype(jnp.uint32)  # ABSENT is out of range, so it is dropped.
    plane = np.array([[AGENTS], [GOALS]], np.uint32)
    number = np.arange(1, instance.max_agents + 1, dtype=np.int8)
    board = (_obstacles(state)[None] & (np.arange(3) == OBSTACLES)[:, None]).astype(jnp.int8)
    board = board.at[plane, both].set(np.stack([number, number]), mode="drop")
    return board.reshape(3, side, side)


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


def window(radius: int) -> Callable[[State], jax.Array]:
    """Make an observation of what is around each agent, int8 ``[max_agents, 4, 2 * radius + 1, 2 * radius + 1]``.

    The agent is in the middle; absent agents see 0. Channel ``OBSTACLES`` is 1 on holes and off the board,
    ``OTHERS`` holds another agent's number plus 1, ``OWN_GOAL`` is 1 on the agent's goal and ``OTHER_GOALS`` holds the
    number plus 1 of the agent whose goal it is; where goals coincide, the largest such number.

    Raises:
      ValueError: for a negative radius.
    """
    if radius < 0:
        raise ValueError(f"radius = {radius} must be 0 or more")

    return _Window(radius)


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
        pair = jnp.stack(jnp.divmod(cells, side), axis=-1) / side
        return jnp.where((cells != ABSENT)[:, None], pair, -1.0)[others_by_number].reshape(agents, 2 * agents)

    obstacles = jnp.broadcast_to(_obstacles(state).astype(jnp.float32), (agents, side * side))
    features = jnp.concatenate([coordinates(state.positions), coordinates(instance.goals), obstacles], axis=1)
    return jnp.where((state.positions != ABSENT)[:, None], features, 0.0)


def bounds(observe: Callable[[State], Any], max_agents: int) -> tuple[float, float] | None:
    """Return the least and greatest value that an observation of this module can hold; None for any other function."""
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
    hides its cell, so a goal that is not drawn is under an agent; below the board a line names the agents
    that are on their goals, if any: ``arrived: a c``.
    """
    instance = state.instance
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

    def __call__(self, state: State) -> jax.Array:
        instance, radius, here = state.instance, self.radius, state.positions
        side, agents, width = instance.max_size, instance.max_agents, 2 * self.radius + 1
        # Where a cell lies, seen from an agent, as one number: (rows down) * stride + columns right, which is different
        # for different offsets within the board or the window.
        stride = side + radius
        dtype = np.int16 if stride * (stride + 1) < np.iinfo(np.int16).max else np.int32
        nowhere = np.array(np.iinfo(dtype).max, dtype)
        reach = np.arange(-radius, radius + 1)
        offsets = np.add.outer(reach * stride, reach).reshape(1, -1).astype(dtype)

        def offset(cells: Array, agent_cells: Array) -> jax.Array:
            there = (cells != ABSENT) & (agent_cells != ABSENT)
            difference = cells - agent_cells + (cells // side - agent_cells // side) * radius
            return jnp.where(there, difference.astype(dtype), nowhere)

        def others(cells: Array) -> jax.Array:
            # Unrolled over the others and flat over the window, which XLA vectorises: see docs/decisions.md.
            offset_of = jnp.where(np.eye(agents, dtype=bool), nowhere, offset(cells[None], here[:, None]))
            numbers = jnp.zeros((agents, width * width), jnp.int8)
            for other in range(agents):
                numbers = jnp.where(offset_of[:, other, None] == offsets, np.int8(other + 1), numbers)
            return numbers

        own_goal = (offset(instance.goals, here)[:, None] == offsets).astype(jnp.int8)
        padded = jnp.pad(_obstacles(state).reshape(side, side), radius, constant_values=True).astype(jnp.int8)
        corner = jnp.divmod(jnp.maximum(here, 0), side)
        obstacles = jax.vmap(lambda row, column: jax.lax.dynamic_slice(padded, (row, column), (width, width)))(*corner)
        obstacles = jnp.where((here == ABSENT)[:, None, None], np.int8(0), obstacles)

        # Set one by one, which XLA does in place; a stack is fused into one loop that is not vectorised: 2.1 us an
        # environment on a core against 1.1 (radius 5).
        channels = jnp.zeros((agents, 4, width * width), jnp.int8)
        channels = channels.at[:, OTHERS].set(others(here))
        channels = channels.at[:, OWN_GOAL].set(own_goal)
        channels = channels.at[:, OTHER_GOALS].set(others(instance.goals))
        return channels.reshape(agents, 4, width, width).at[:, OBSTACLES].set(obstacles)


def _obstacles(state: State) -> Array:
    """bool ``[cells]``: holes and cells off the board."""
    instance = state.instance
    row, column = np.divmod(np.arange(instance.max_size**2), instance.max_size)
    return instance.holes | (np.maximum(row, column) >= instance.size)

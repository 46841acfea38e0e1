"""What an agent sees, in words: a phrase for each part of its view, drawn from few; knows no model.

``goal 3 down, 2 left. up: free, then an agent. down: blocked, then free. left: free, then free, contested. right: free,
then blocked. 9 to 16 steps left.`` The phrases of a view are numbers under ``jit`` and text on the host.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import observations
from jaxlake.record import Array
from jaxlake.state import State
from jaxlake.types import ABSENT, STEPS, Action

FAR = 9
"""Rows or columns to a goal that are told apart; more count as so many."""
CLOCK = (8, 16, 24)
"""Steps left at which another phrase begins."""
CELLS = ("free", "blocked", "an agent")
"""What a cell is to an agent beside it."""
_NEAR = 2
"""Radius of the window that a view is made of."""
INSTRUCTIONS = (
    "You move one of several agents on a frozen lake, one step at a time. All agents must reach their goals; nobody "
    "may enter a hole, leave the board, or meet another agent. Answer with one word: up, down, left, right or wait.\n"
)
"""What a model is told, before the view, that has words of its own for a view."""


@dataclasses.dataclass(frozen=True)
class View:
    """An observation: int8 ``[max_agents, parts]``, the number of the phrase of each part; 0 for absent agents.

    The parts are the rows to the goal, the columns, the four directions in the order of ``Action``, and the steps that
    are left. A direction has the next cell, the one beyond, and whether another agent could enter the next one: the
    best of six in ``benchmarks/views.py`` of commit 8f9fda4.
    """

    def __call__(self, state: State) -> jax.Array:
        """Return the view of each agent."""
        instance, positions = state.instance, state.positions
        side = instance.max_size
        window = observations.window(_NEAR)(state)
        others = window[:, observations.OTHERS] > 0
        cells = jnp.where(others, 2, window[:, observations.OBSTACLES])

        def at(planes: Array, down: int, right: int) -> Array:
            return planes[:, _NEAR + down, _NEAR + right]

        directions = []
        for down, right in STEPS[: Action.WAIT]:
            number = at(cells, down, right) * 3 + at(cells, 2 * down, 2 * right)
            beside = [(down + d, right + r) for d, r in STEPS[: Action.WAIT] if (down + d, right + r) != (0, 0)]
            rivals = functools.reduce(jnp.logical_or, [at(others, *cell) for cell in beside])
            directions.append(number * 2 + rivals.astype(number.dtype))
        to_goal = jnp.stack(jnp.divmod(instance.goals, side)) - jnp.stack(jnp.divmod(positions, side))
        left = state.params.max_steps - state.time
        clock = jnp.sum(left > np.array(CLOCK, np.int32), dtype=jnp.int32)
        parts = [*(jnp.clip(to_goal, -FAR, FAR) + FAR), *directions, jnp.broadcast_to(clock, positions.shape)]
        view = jnp.stack([part.astype(jnp.int32) for part in parts], axis=-1)
        return jnp.where((positions != ABSENT)[:, None], view, 0).astype(jnp.int8)


@functools.cache
def phrases() -> tuple[tuple[str, ...], ...]:
    """Return the phrases of each part by their numbers; one of each, in order, are a view as a person reads it."""

    def distance(back: str, forth: str, none: str) -> list[str]:
        words = [none] + [f"{steps}{' or more' if steps == FAR else ''} {{}}" for steps in range(1, FAR + 1)]
        return [words[abs(i)].format(back if i < 0 else forth) for i in range(-FAR, FAR + 1)]

    def direction(name: str) -> list[str]:
        return [
            f" {name}: {near}, then {beyond}{', contested' * contested}."
            for near, beyond, contested in itertools.product(CELLS, CELLS, (0, 1))
        ]

    rows = [f"goal {words}," for words in distance("up", "down", "in this row")]
    columns = [f" {words}." for words in distance("left", "right", "in this column")]
    names = [action.name.lower() for action in Action][: Action.WAIT]
    bounds = [1, *(bound + 1 for bound in CLOCK)]
    clock = [f" {first} to {last} steps left." for first, last in zip(bounds, CLOCK, strict=False)]
    clock.append(f" {bounds[-1]} or more steps left.")
    return tuple(map(tuple, [rows, columns, *map(direction, names), clock]))


def text(view: Sequence[int]) -> str:
    """Return the view ``[parts]`` of an agent in words."""
    return "".join(part[number] for part, number in zip(phrases(), view, strict=True))


def read_move(reply: str) -> Action | None:
    """Return the action that the last word of a reply names, in any case; None if it names none."""
    words = re.findall("[A-Z]+", reply.upper())
    return Action.__members__.get(words[-1]) if words else None

"""What an adapter must do, as checks for one of your own; compares with the core, and trains nothing.

A check passes or raises AssertionError with what differs. It needs no test framework.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import observations
from jaxlake.arguments import seed_key
from jaxlake.board_text import from_text
from jaxlake.env import Lake
from jaxlake.levels import LevelBank, stack
from jaxlake.record import Array
from jaxlake.state import Params, State
from jaxlake.types import Action

MAX_SIZE, MAX_AGENTS = 5, 3
BOARD = """
    ...B
    .a..
    ..b.
    ...A
"""
_UP, _DOWN, _LEFT, _RIGHT, _WAIT = Action
WALK = (
    (_UP, _DOWN),
    (_DOWN, _UP),
    (_LEFT, _RIGHT),
    (_RIGHT, _LEFT),
    (_WAIT, _WAIT),
    (_DOWN, _RIGHT),
    (_DOWN, _UP),
    (_RIGHT, _UP),
    (_RIGHT, _WAIT),
)
"""Moves of the two agents of ``BOARD`` in every direction, the last of which brings both to their goals."""


class AdapterStep(NamedTuple):
    """A time step of an adapter as the checks compare it.

    Attributes:
      cells: positions int ``[max_agents]``; None where the library's own step has begun the next episode.
      observation: the library's, agents in front where it is by agent; None where it is not the core's.
      rewards: by agent, or their sum where the library knows no other.
      ends: terminated and truncated.
      mask: legal actions ``[max_agents, 5]``.
    """

    cells: Any
    observation: Any
    rewards: Any
    ends: tuple[Any, Any]
    mask: Any


class Face(NamedTuple):
    """An adapter as the checks drive it: ``reset(key)``, then ``step(carry, moves, key)`` on what either returned.

    Attributes:
      env: the adapter.
      reset, step: what the library itself returns, for any loop of ``jax`` unless ``on_host``.
      seen: function from that to an ``AdapterStep``.
      box: function without arguments that returns the bounds of the observation, low and high, each a number or an
        array of a shape that broadcasts to the observation's; None: it has none.
      on_host: whether the library plays outside ``jit``.
    """

    env: Any
    reset: Callable[..., tuple[Any, ...]]
    step: Callable[..., tuple[Any, ...]]
    seen: Callable[[Any], AdapterStep]
    box: Callable[[], tuple[Any, Any]] | None = None
    on_host: bool = False


def bank(*boards: str, max_size: int = MAX_SIZE, max_agents: int = MAX_AGENTS) -> LevelBank:
    """Return boards as a bank, padded to one shape so that one program serves several checks."""
    return LevelBank.build(stack([from_text(board, max_size=max_size, max_agents=max_agents) for board in boards]))


def play(face: Face, moves: Sequence[Sequence[int]]) -> Iterator[AdapterStep]:
    """Yield what an adapter shows after each of the moves ``[steps, max_agents]``."""
    reset, step = (face.reset, face.step) if face.on_host else (jax.jit(face.reset), jax.jit(face.step))
    carry = reset(seed_key(0))
    for number, chosen in enumerate(moves):
        carry = step(carry, jnp.asarray(chosen, jnp.int32), seed_key(number))
        yield face.seen(jax.device_get(carry))


def check_adapter(
    make: Callable[[LevelBank, Params], Face], observe: Callable[[State], Any] = observations.flat
) -> None:
    """Check that an adapter plays as the core plays, pays a solved board and terminates, and truncates out of time.

    Args:
      make: makes the adapter for a bank of one board and for the length of an episode.
      observe: the observation that the adapter has from the core.

    Raises:
      AssertionError: naming the step and what differs.
    """
    check_walk(make, observe)
    check_truncation(make)


def check_walk(make: Callable[[LevelBank, Params], Face], observe: Callable[[State], Any] = observations.flat) -> None:
    """Check a walk in every direction against the core's; its last step solves the board. See ``check_adapter``."""
    levels, lake = bank(BOARD), Lake(observe=observe)
    state, _ = jax.jit(lake.reset)(levels.at(0)[0])
    core_step = jax.jit(lake.step)
    # The third agent, which is not there, has another action than both in some steps, and none of them has an effect.
    moves = [[*both, (number + 1) % len(Action)] for number, both in enumerate(WALK)]
    face = make(levels, Params(max_steps=len(WALK)))
    low, high = face.box() if face.box else (-np.inf, np.inf)
    for number, seen in enumerate(play(face, moves), 1):
        state, expected = core_step(state, np.array([*WALK[number - 1], Action.WAIT]))
        last = number == len(WALK)
        _compare(number, "terminated, truncated", seen.ends, (last, False))
        rewards = np.array([last, last, False], float)
        _compare(number, "rewards", seen.rewards, rewards if np.ndim(seen.rewards) else rewards.sum())
        if seen.cells is not None:
            _compare(number, "cells", seen.cells, state.positions)
            _compare(number, "legal actions", np.asarray(seen.mask, bool), expected.legal_actions)
        if seen.observation is not None:
            _compare(number, "observation", seen.observation, expected.observation)
            within = np.clip(seen.observation, low, high)
            _compare(number, "observation within its bounds", within, seen.observation)


def check_truncation(make: Callable[[LevelBank, Params], Face], max_steps: int = 3) -> None:
    """Check that an episode out of time is truncated in its last step, and never paid. See ``check_adapter``."""
    face = make(bank(BOARD), Params(max_steps=max_steps))
    for number, seen in enumerate(play(face, [[Action.WAIT] * MAX_AGENTS] * max_steps), 1):
        _compare(number, "terminated, truncated", seen.ends, (False, number == max_steps))
        _compare(number, "rewards", seen.rewards, np.zeros(np.shape(seen.rewards)))


def _compare(step: int, name: str, found: Any, expected: Array | tuple[Any, ...] | float) -> None:
    found, expected = np.asarray(found).astype(float), np.asarray(expected).astype(float)
    np.testing.assert_array_equal(found, expected, err_msg=f"{name}, after step {step}")

"""Parts that adapters on the host share: one episode at a time in numpy, its pictures, a bank to begin with.

Everything that a step tells the host leaves the device as one array of bytes. Fetched leaf by leaf, the twenty small
arrays of a time step took twice as long as the step itself.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import observations
from jaxlake.adapters.shared import arrays_by_name
from jaxlake.arguments import seed_key
from jaxlake.config import LakeConfig
from jaxlake.env import Lake
from jaxlake.generate import generate
from jaxlake.kinds import Kind
from jaxlake.levels import LevelBank
from jaxlake.render import rgb
from jaxlake.state import Params, State, TimeStep

Infos = dict[str, Any]

RENDER_MODES = ("ansi", "rgb_array")
GENERATED_LEVELS = 1024
"""The number of levels of a default bank."""


class Episode:
    """Episodes one after another on the host, in numpy; shared by the adapters that step a single environment.

    One program is compiled for all levels of a bank, and shared by everything with the same lake and padded sizes.

    Attributes:
      first: shapes and dtypes of a time step.
      state: the core's state now.
      legal_actions: bool ``[max_agents, 5]`` as of the last time step; it is not to be written to.
    """

    def __init__(self, bank: LevelBank, lake: Lake, params: Params) -> None:
        self.bank, self.lake, self.params = bank, lake, params
        _, self.first = jax.eval_shape(functools.partial(_begin, lake), bank, np.int32(0), params)
        self._layout = Layout(self.first)

    def begin(self, random: np.random.Generator, level: int | None) -> TimeStep:
        """Return the first time step, on the bank's level of that number or on one drawn."""
        drawn, seed = int(random.integers(len(self.bank))), int(random.integers(2**31))
        level = drawn if level is None else level
        check_level(level, self.bank)
        self._seed = np.uint32(seed)
        self.state, fetched = _reset_one(self.lake, self.bank, np.int32(level), self.params)
        return self._unpacked(fetched)

    def step(self, actions: np.ndarray) -> TimeStep:
        """Return the next time step; actions are int ``[max_agents]``."""
        self.state, fetched = _step_one(self.lake, self.state, np.asarray(actions, np.int32), self._seed)
        return self._unpacked(fetched)

    def render(self, mode: str | None) -> str | np.ndarray | None:
        """Return the board now in one of the ``RENDER_MODES``; None for no mode."""
        return None if mode is None else _picture(jax.device_get(self.state), mode)

    def _unpacked(self, fetched: jax.Array) -> TimeStep:
        timestep: TimeStep = self._layout.unpack(fetched)
        self.legal_actions = timestep.legal_actions
        return timestep


class Layout:
    """The places of a tree's leaves in the bytes that ``pack`` makes of it.

    Args:
      tree: a tree of shapes and dtypes, as ``jax.eval_shape`` gives it.
    """

    def __init__(self, tree: Any) -> None:
        self._leaves, self._treedef = jax.tree.flatten(tree)
        sizes = [np.dtype(leaf.dtype).itemsize * math.prod(leaf.shape) for leaf in self._leaves]
        self._places = list(itertools.starmap(slice, itertools.pairwise([0, *itertools.accumulate(sizes)])))

    def unpack(self, packed: jax.Array) -> Any:
        """Return the tree in numpy, in memory that belongs to the caller: JAX's own must not be written to."""
        buffer = np.asarray(packed)
        parts = zip(self._leaves, self._places, strict=True)
        leaves = [buffer[place].copy().view(leaf.dtype).reshape(leaf.shape) for leaf, place in parts]
        return jax.tree.unflatten(self._treedef, leaves)


def pack(tree: Any) -> jax.Array:
    """Return the bytes of all leaves, uint8 ``[bytes]``, for ``Layout.unpack``; under jit."""
    numbers = [leaf.astype(jnp.uint8) if leaf.dtype == bool else leaf for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate([jax.lax.bitcast_convert_type(leaf, jnp.uint8).reshape(-1) for leaf in numbers])


def pictures(state: State, mode: str) -> tuple[Any, ...]:
    """Return each board of a batch in one of the ``RENDER_MODES``: texts, or pictures of one size, white outside."""
    boards = [_picture(board, mode) for board in jax.device_get(state)]
    if mode == "ansi":
        return tuple(boards)
    side = max(map(len, boards))
    return tuple(np.pad(b, [(0, side - len(b))] * 2 + [(0, 0)], constant_values=255) for b in boards)


def _picture(state: State, mode: str) -> Any:
    draw: dict[str, Callable[[State], Any]] = {
        "ansi": observations.text,
        "rgb_array": lambda state: np.array(rgb(state.instance, positions=state.positions)),
    }
    return draw[mode](state)


def infos_of(timestep: TimeStep) -> Infos:
    """Return a time step's legal actions as ``action_mask``, int8 ``[..., max_agents, 5]``, and its ``Info``."""
    return {"action_mask": timestep.legal_actions.astype(np.int8), **arrays_by_name(timestep.info)}


def bank_of(bank: LevelBank | None, kind: Kind | str | int | None) -> LevelBank:
    """Return the bank, or where there is none 1,024 generated levels, the same ones every time.

    Args:
      kind: the kind of the boards to generate, at a density of .2; random ones of size 4 with two agents by default.
    """
    if bank is None:
        return _generated(Kind.of(4 if kind is None else kind))
    if kind is not None:
        raise ValueError(f"kind = {kind} is of levels to generate: with a bank it must be left out")
    return bank


def check_level(level: int, bank: LevelBank) -> None:
    """Raise ValueError if the bank does not have a level of that number."""
    if not (isinstance(level, (int, np.integer)) and 0 <= level < len(bank)):
        raise ValueError(f"level = {level} must be a whole number from 0 to {len(bank) - 1}")


@functools.cache
def _generated(kind: Kind) -> LevelBank:
    config = LakeConfig.uniform((kind,), hole=0.2, wait=0.0)
    return LevelBank.build(generate(config, seed_key(0), GENERATED_LEVELS).instances)


@functools.partial(jax.jit, static_argnames="lake")  # so that it is traced once, for shapes and for `_reset_one`
def _begin(lake: Lake, bank: LevelBank, level: jax.Array, params: Params) -> tuple[State, TimeStep]:
    """Begin an episode on the bank's level of that number."""
    instance, distances = bank.at(level)
    return lake.reset(instance, params, distances)


@functools.partial(jax.jit, static_argnames="lake")
def _reset_one(lake: Lake, bank: LevelBank, level: jax.Array, params: Params) -> tuple[State, jax.Array]:
    state, timestep = _begin(lake, bank, level, params)
    return state, pack(timestep)


@functools.partial(jax.jit, static_argnames="lake")
def _step_one(lake: Lake, state: State, actions: jax.Array, seed: jax.Array) -> tuple[State, jax.Array]:
    state, timestep = lake.step(state, actions, jax.random.fold_in(seed_key(seed), state.time))
    return state, pack(timestep)

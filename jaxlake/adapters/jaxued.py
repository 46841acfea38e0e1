"""The lake as a JaxUED ``UnderspecifiedEnv``, with what its examples ask of levels: a generator, a mutator, a renderer.

Actions are joint as in ``jaxlake.adapters.gymnax``, which JaxUED builds on: a number in base 5 whose digit ``i`` is the
``Action`` of agent ``i``. Nothing resets by itself, that is what JaxUED's wrappers and its level sampler are for. Those
of 0.0.1 call ``jax.tree_map``, which JAX no longer has: set ``jax.tree_map = jax.tree.map`` before using them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from jaxued.environments import UnderspecifiedEnv

from jaxlake import observations
from jaxlake.adapters.gymnax import core_params, count_joint_actions, split_actions, with_params
from jaxlake.benchmark import SETS, load
from jaxlake.board_text import from_text, to_text
from jaxlake.env import Lake
from jaxlake.levels import stack
from jaxlake.record import Array, Record, record
from jaxlake.render import tiles
from jaxlake.state import State
from jaxlake.types import MAX_AGENTS, MAX_STEPS, Instance


@record
class Level(Record):
    """An ``Instance`` under the names that JaxUED's training scripts ask a level for.

    Attributes:
      instance: the board with its agents, any leading batch axes.
    """

    instance: Instance

    @property
    def wall_map(self) -> Array:
        """The holes, bool ``[..., max_size, max_size]``."""
        holes, side = self.instance.holes, self.instance.max_size
        return holes.reshape(*holes.shape[:-1], side, side)

    @classmethod
    def load_prefabs(cls, ids: Sequence[str]) -> "Level":
        """Return levels ``[n]`` of the package's fixed sets, to evaluate on.

        Args:
          ids: such as ``"2ag_4x4_hr0.3_000"``, all of the same size and number of agents.

        Raises:
          ValueError: for an id that no set has, or levels of different sizes or numbers of agents.
        """
        found = [_fixed_level(name) for name in ids]
        first = found[0]
        for name, instance in zip(ids, found, strict=True):
            if (instance.max_size, instance.max_agents) != (first.max_size, first.max_agents):
                raise ValueError(
                    f"{name} has side {instance.max_size} and {instance.max_agents} agents: it must have "
                    f"{first.max_size} and {first.max_agents} as {ids[0]} has, since one network sees them all"
                )
        return Level(instance=jax.tree.map(jnp.asarray, stack(found)))


@record
class EnvParams(Record):
    """The core's ``Params`` by JaxUED's names; they can be vmapped.

    Attributes:
      max_steps_in_episode: int32 ``[]``.
      slip: float32 ``[]``, or None for none.
    """

    max_steps_in_episode: Array | int = MAX_STEPS
    slip: Array | float | None = None


@record
class Observation(Record):
    """An observation under the name that JaxUED's networks read.

    Attributes:
      image: float32 ``[max_size, max_size, 1 + 2 * max_agents]``, ``observations.one_hot`` with the channels last.
    """

    image: Array


def observe(state: State) -> Observation:
    """Return the whole board as an image."""
    return Observation(image=jnp.moveaxis(observations.one_hot(state), 0, -1).astype(jnp.float32))


_FLIP_HOLE, _MOVE_GOAL = 1, 2  # Edits of a level; 0 is none.

IMAGE = Lake(observe=observe)
"""The paper's rules, the whole board seen as an image."""


class UnderspecifiedLake(UnderspecifiedEnv):
    """An episode on the level that it is reset to, an ``Instance`` or a ``Level``; the state is the core's ``State``.

    Args:
      max_agents: agent slots of the levels.
      lake: the rules. Levels carry no distances, so neither its reward nor its observation can use them.

    Raises:
      ValueError: when there are too many agents to number their joint actions.
    """

    def __init__(self, max_agents: int = MAX_AGENTS, lake: Lake = IMAGE) -> None:
        self.max_agents, self.lake = max_agents, lake
        self._num_actions = count_joint_actions(max_agents)

    @property
    def default_params(self) -> EnvParams:
        """The default settings: 64 steps and no slip."""
        return EnvParams()

    def reset_env_to_level(self, rng: jax.Array, level: Level | Instance, params: EnvParams) -> tuple[Any, State]:
        """Begin an episode on the level; the key is not used."""
        state, timestep = self.lake.reset(_instance_of(level), core_params(params))
        return timestep.observation, state

    def step_env(
        self, rng: jax.Array, state: State, action: Array, params: EnvParams
    ) -> tuple[Any, State, Array, Array, dict]:
        """Play one step without reset.

        Returns:
          Observation, state, summed reward, done (terminated or truncated), and info: the core's ``Info`` by name,
          ``rewards`` and ``truncated``.
        """
        actions = split_actions(action, self.max_agents)
        state, timestep = self.lake.step(with_params(state, params), actions, rng)
        info = {**vars(timestep.info), "rewards": timestep.rewards, "truncated": timestep.truncated}
        return timestep.observation, state, timestep.shared_reward, state.done, info

    def action_space(self, params: EnvParams) -> spaces.Discrete:
        """The joint actions, ``5 ** max_agents``."""
        return spaces.Discrete(self._num_actions)


class LakeRenderer:
    """Pictures of levels and states, compiled and under ``vmap``, as JaxUED's scripts log them.

    Args:
      env: not read; JaxUED's renderers are made with it.
      tile_size: side of a cell in pixels.
    """

    def __init__(self, env: UnderspecifiedLake, tile_size: int = 32) -> None:
        self.tile_size = tile_size

    @partial(jax.jit, static_argnums=(0,))
    def render_level(self, level: Level | Instance, params: EnvParams) -> jax.Array:
        """Return the level with its agents on their starts, uint8 ``[height, width, 3]``."""
        instance = _instance_of(level)
        return tiles(instance, instance.starts, self.tile_size)

    @partial(jax.jit, static_argnums=(0,))
    def render_state(self, state: State, params: EnvParams) -> jax.Array:
        """Return the board as it stands, uint8 ``[height, width, 3]``."""
        return tiles(state.instance, state.positions, self.tile_size)


def make_level_generator(size: int, num_agents: int, num_holes: int) -> Callable[[jax.Array], Level]:
    """Return a function from a key to a random level, for jit and vmap; some of its levels have no solution.

    Starts, goals and holes are on different cells, every such board equally likely. To train on solvable ones alone,
    take ``LevelBank.draw`` of a bank from ``jaxlake.generate``.

    Args:
      size: side of the boards, not padded.
      num_agents: agents on each.
      num_holes: holes in each.

    Raises:
      ValueError: if they do not fit the board.
    """
    cells = size * size
    if not (size >= 1 and num_agents >= 1 and 0 <= num_holes <= cells - 2 * num_agents):
        raise ValueError(
            f"{num_agents} agents and {num_holes} holes do not fit a board of side {size}: starts, goals and holes "
            f"must be on different ones of its {cells} cells"
        )

    def sample_random_level(rng: jax.Array) -> Level:
        order = jax.random.permutation(rng, np.arange(cells, dtype=np.int32))
        starts, goals, holes, _ = jnp.split(order, np.cumsum([num_agents, num_agents, num_holes]))
        instance = Instance(
            size=jnp.int32(size),
            num_agents=jnp.int32(num_agents),
            holes=jnp.zeros(cells, bool).at[holes].set(True),
            starts=starts,
            goals=goals,
        )
        return Level(instance=instance)

    return sample_random_level


def make_level_mutator(max_num_edits: int) -> Callable[[jax.Array, Level, Array | int], Level]:
    """Return a function from key, level and number of edits to a level nearby, for jit and vmap.

    An edit is one of three with the same probability, as in JaxUED's ``make_level_mutator_minimax``: nothing; a cell
    that is neither start nor goal becomes a hole or stops being one; the goal of one agent moves to a cell that is no
    hole, start or goal. What comes out may have no solution.

    Args:
      max_num_edits: static; a larger number of edits has no effect.
    """

    def edit(board: Instance, rng: jax.Array) -> Instance:
        which_rng, cell_rng, agent_rng = jax.random.split(rng, 3)
        which = jax.random.randint(which_rng, (), 0, 3, jnp.int32)
        holes, goals = jnp.asarray(board.holes), jnp.asarray(board.goals)
        row, column = np.divmod(np.arange(board.max_size**2), board.max_size)
        taken = jnp.concatenate([board.starts, goals]).astype(jnp.uint32)  # ABSENT is out of range.
        free = jnp.asarray(np.maximum(row, column) < board.size).at[taken].set(False, mode="drop")
        free &= (which == _FLIP_HOLE) | ~holes
        cell = jnp.argmax(jnp.where(free, jax.random.uniform(cell_rng, free.shape, jnp.float32), -1)).astype(jnp.int32)
        agent = jax.random.randint(agent_rng, (), 0, board.num_agents, jnp.int32)
        possible = jnp.any(free)
        return board.replace(
            holes=holes.at[cell].set(holes[cell] ^ (possible & (which == _FLIP_HOLE))),
            goals=goals.at[agent].set(jnp.where(possible & (which == _MOVE_GOAL), cell, goals[agent])),
        )

    def mutate_level(rng: jax.Array, level: Level, num_edits: Array | int = 1) -> Level:
        def one(number: int, board: Instance) -> Instance:
            edited = edit(board, jax.random.fold_in(rng, number))
            return jax.tree.map(lambda new, old: jnp.where(number < num_edits, new, old), edited, board)

        return Level(instance=jax.lax.fori_loop(0, max_num_edits, one, level.instance))

    return mutate_level


def _instance_of(level: Level | Instance) -> Instance:
    return level.instance if isinstance(level, Level) else level


def _fixed_level(name: str) -> Instance:
    """One level of the fixed sets, padded no further than to its own size."""
    for fixed_set in map(load, SETS):
        if name in fixed_set.ids:
            return from_text(to_text(fixed_set.instances[fixed_set.ids.index(name)]))
    raise ValueError(f"no fixed set has a level {name!r}: an id must be one such as {fixed_set.ids[0]!r}")

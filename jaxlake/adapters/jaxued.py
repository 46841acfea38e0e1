"""The lake as a JaxUED ``UnderspecifiedEnv``, with a mutator of levels; levels come from ``LevelBank.draw``.

Actions are joint as in ``jaxlake.adapters.gymnax``, which JaxUED builds on: a number in base 5 whose digit ``i`` is the
``Action`` of agent ``i``. Nothing resets by itself, that is what JaxUED's wrappers and its level sampler are for. Those
of 0.0.1 call ``jax.tree_map``, which JAX no longer has: set ``jax.tree_map = jax.tree.map`` before using them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from jaxued.environments import UnderspecifiedEnv

from jaxlake import observations
from jaxlake.adapters.gymnax import core_params, count_joint_actions, split_actions, with_params
from jaxlake.env import Lake
from jaxlake.record import Array, Record, record, vary_alike
from jaxlake.rules import GoalRule
from jaxlake.state import State
from jaxlake.types import MAX_AGENTS, MAX_STEPS, Instance


@record
class EnvParams(Record):
    """The core's ``Params`` by JaxUED's names: int32 ``[]``, and float32 ``[]`` or None for no slip; can be vmapped."""

    max_steps_in_episode: Array | int = MAX_STEPS
    slip: Array | float | None = None


@record
class Observation(Record):
    """``observations.one_hot`` by JaxUED's name: float32 ``[max_size, max_size, 1 + 2 * max_agents]``."""

    image: Array


def observe(state: State) -> Observation:
    """Return the whole board as an image."""
    return Observation(image=jnp.moveaxis(observations.one_hot(state), 0, -1).astype(jnp.float32))


_FLIP_HOLE, _MOVE_GOAL = 1, 2  # Edits of a level; 0 is none.

IMAGE = Lake(observe=observe)
"""The paper's rules, the whole board seen as an image."""


class UnderspecifiedLake(UnderspecifiedEnv):
    """An episode on the level that it is reset to, an ``Instance``; the state is the core's ``State``.

    Args:
      lake: the rules. Levels carry no distances, so neither its reward nor its observation can use them.
    """

    def __init__(self, max_agents: int = MAX_AGENTS, lake: Lake = IMAGE) -> None:
        if lake.goals is not GoalRule.ONCE:
            raise ValueError(f"goals = {lake.goals.value!r} must be 'once': JaxUED's levels have no lists of goals")
        self.max_agents, self.lake = max_agents, lake
        self._num_actions = count_joint_actions(max_agents)

    @property
    def default_params(self) -> EnvParams:
        """The default settings: 64 steps and no slip."""
        return EnvParams()

    def reset_env_to_level(self, rng: jax.Array, level: Instance, params: EnvParams) -> tuple[Any, State]:
        """Begin an episode on the level; the key is not used."""
        state, timestep = self.lake.reset(level, core_params(params))
        return timestep.observation, state

    def step_env(
        self, rng: jax.Array, state: State, action: Array, params: EnvParams
    ) -> tuple[Any, State, Array, Array, dict[str, Any]]:
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
        """Return the space of the ``5 ** max_agents`` joint actions."""
        return spaces.Discrete(self._num_actions)


def make_level_mutator(max_num_edits: int) -> Callable[[jax.Array, Instance, Array | int], Instance]:
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
        row, column = np.divmod(np.arange(board.max_size**2, dtype=np.int32), board.max_size)
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

    def mutate_level(rng: jax.Array, level: Instance, num_edits: Array | int = 1) -> Instance:
        def one(number: int, board: Instance) -> Instance:
            edited = edit(board, jax.random.fold_in(rng, number))
            kept: Instance = jax.tree.map(lambda new, old: jnp.where(number < num_edits, new, old), edited, board)
            return kept

        _, _, level = vary_alike((jax.random.key_data(rng), num_edits, level))
        mutated: Instance = jax.lax.fori_loop(0, max_num_edits, one, level)
        return mutated

    return mutate_level

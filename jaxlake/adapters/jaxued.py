"""The lake as a JaxUED 0.0.1 ``UnderspecifiedEnv``: a level is an ``Instance``, and the caller says which is played.

Actions are joint as in ``jaxlake.adapters.gymnax``, which JaxUED builds on: a number in base 5 whose digit ``i`` is the
``Action`` of agent ``i``. Nothing resets by itself, that is what JaxUED's wrappers and its level sampler are for. They
call ``jax.tree_map``, which JAX no longer has: set ``jax.tree_map = jax.tree.map`` before using those of 0.0.1.
"""

from typing import Any

import jax
import jax.numpy as jnp
from gymnax.environments import spaces
from jaxued.environments import UnderspecifiedEnv

from jaxlake.adapters.gymnax import CENTRAL, count_joint_actions, split_actions
from jaxlake.env import DEFAULT_PARAMS, Lake, Params, State
from jaxlake.record import Array
from jaxlake.types import MAX_AGENTS, Instance


class UnderspecifiedLake(UnderspecifiedEnv):
    """One episode on the level that it is reset to; the state is the core's ``State``.

    Args:
      max_agents: agent slots of the levels.
      lake: the rules. Levels carry no distances, so neither its reward nor its observation can use them.

    Raises:
      ValueError: when there are too many agents to number their joint actions.
    """

    def __init__(self, max_agents: int = MAX_AGENTS, lake: Lake = CENTRAL) -> None:
        self.max_agents, self.lake = max_agents, lake
        self._num_actions = count_joint_actions(max_agents)

    @property
    def default_params(self) -> Params:
        """The core's, time limit and slip; they can be vmapped."""
        return DEFAULT_PARAMS

    def reset_env_to_level(self, rng: jax.Array, level: Instance, params: Params) -> tuple[Any, State]:
        """A new episode on the level; the key is not used."""
        state, timestep = self.lake.reset(level, params)
        return timestep.observation, state

    def step_env(
        self, rng: jax.Array, state: State, action: Array, params: Params
    ) -> tuple[Any, State, Array, Array, dict]:
        """One step without reset.

        Returns:
          Observation, state, summed reward, done (terminated or truncated), and info: the core's ``Info`` by name,
          ``rewards`` and ``truncated``.
        """
        params = jax.tree.map(lambda value, own: jnp.asarray(value, own.dtype), params, state.params)
        actions = split_actions(action, self.max_agents)
        state, timestep = self.lake.step(state.replace(params=params), actions, rng)
        info = {**timestep.info, "rewards": timestep.rewards, "truncated": timestep.truncated}
        return timestep.observation, state, timestep.shared_reward, state.done, info

    def action_space(self, params: Params) -> spaces.Discrete:
        """The joint actions, ``5 ** max_agents``."""
        return spaces.Discrete(self._num_actions)

"""The lake as a JaxMARL 0.2 ``MultiAgentEnv``: dictionaries per agent around the core, no rules of its own.

Agents are ``agent_0``, ``agent_1`` and so on, and actions the numbers of ``Action`` (0 up, 1 down, 2 left, 3 right,
4 wait). JaxMARL knows no truncation: running out of steps is done like a solved board, and ``infos["truncated"]`` tells
the two apart. Nor does it keep the last observation of an episode.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxmarl.environments import multi_agent_env, spaces

from jaxlake import observations
from jaxlake.adapters.shared import PER_AGENT, arrays_by_name, box_of, check_axis_of_agents
from jaxlake.arguments import seed_key
from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.record import Array
from jaxlake.state import DEFAULT_PARAMS, Params, State
from jaxlake.types import Action


@struct.dataclass
class LakeState(multi_agent_env.State):
    """JaxMARL's state, ``done`` bool ``[]`` and ``step`` int32 ``[]``, around the core's."""

    episode: State


class MultiAgentLake(multi_agent_env.MultiAgentEnv):
    """Episodes on levels drawn from a bank; ``step`` begins the next one as the base class does, here by gather.

    JaxMARL passes no parameters, so the bank and ``params`` are constants of the compiled program.

    Args:
      lake: the rules; ``observe`` must give one array ``[max_agents, ...]``.
    """

    def __init__(self, bank: LevelBank, lake: Lake = PER_AGENT, params: Params = DEFAULT_PARAMS) -> None:
        super().__init__(num_agents=bank.instances.max_agents)
        self.bank, self.lake, self.params = bank, lake, params
        instance, distances = bank.at(0)
        seen = jax.eval_shape(lambda: lake.reset(instance, params, distances)[1].observation)
        check_axis_of_agents(lake, seen, self.num_agents)
        low, high, shape, dtype = box_of(lake, seen, self.num_agents)
        space = spaces.Box(low, high, shape[1:], dtype)
        self.observation_spaces = dict.fromkeys(self.agents, space)
        self.action_spaces = dict.fromkeys(self.agents, spaces.Discrete(len(Action)))
        _, state = jax.eval_shape(self.reset, seed_key(0))
        self._world_state_size: int = jax.eval_shape(self.get_world_state, state).shape[1]

    @partial(jax.jit, static_argnums=(0,))
    def reset(self, key: jax.Array) -> tuple[multi_agent_env.Observations, LakeState]:
        """Begin an episode on a level drawn with the key."""
        instance, distances = self.bank.draw(key)
        episode, timestep = self.lake.reset(instance, self.params, distances)
        return self._by_agent(timestep.observation), _state(episode)

    def step_env(
        self, key: jax.Array, state: LakeState, actions: multi_agent_env.Actions
    ) -> tuple[
        multi_agent_env.Observations, LakeState, multi_agent_env.Rewards, multi_agent_env.Dones, multi_agent_env.Infos
    ]:
        """Play one step without reset.

        Returns:
          Observations, state, rewards, dones and infos. An agent that the level does not have is done from the start.
          Infos are the core's ``Info`` by name, its costs among them, and ``truncated``; each has the shape
          ``[max_agents]``, whole boards repeated, since JaxMARL's baselines reshape every entry by agent.
        """
        # The baselines' ``unbatchify`` leaves an axis of one behind each action.
        chosen = jnp.stack([jnp.reshape(actions[agent], ()).astype(jnp.int32) for agent in self.agents])
        episode, timestep = self.lake.step(state.episode, chosen, key)
        absent = np.arange(self.num_agents, dtype=np.int32) >= episode.instance.num_agents
        infos = {**arrays_by_name(timestep.info), "truncated": timestep.truncated}
        return (
            self._by_agent(timestep.observation),
            _state(episode),
            self._by_agent(timestep.rewards),
            {**self._by_agent(episode.done | absent), "__all__": episode.done},
            {name: jnp.broadcast_to(value, (self.num_agents,)) for name, value in infos.items()},
        )

    def get_obs(self, state: LakeState) -> multi_agent_env.Observations:
        """Return the observations of a state, as ``step`` and ``reset`` do."""
        return self._by_agent(self.lake.observe(state.episode))

    @partial(jax.jit, static_argnums=(0,))
    def get_avail_actions(self, state: LakeState) -> multi_agent_env.AvailActions:
        """Return the legal actions, bool ``[5]`` per agent; only WAIT for one that the level does not have."""
        return self._by_agent(self.lake.legal_actions(state.episode))

    @partial(jax.jit, static_argnums=(0,))
    def get_world_state(self, state: LakeState) -> jax.Array:
        """Return what a central critic sees for each agent, float32 ``[max_agents, world_state_size]``.

        The agent's number in one-hot form, ``observations.flat`` of the agent, and the share of the time that is over.
        """
        episode, agents = state.episode, self.num_agents
        over = jnp.float32(episode.time) / jnp.float32(episode.params.max_steps)
        everything = [jnp.eye(agents), observations.flat(episode), jnp.broadcast_to(over, (agents, 1))]
        return jnp.concatenate(everything, axis=1, dtype=jnp.float32)

    def world_state_size(self) -> int:
        """Return the number of features of ``get_world_state``; the wrappers of JaxMARL's MAPPO ask for it."""
        return self._world_state_size

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """The classes of agents: one, since all are alike."""
        return {"agent": self.agents}

    def _by_agent(self, values: Array) -> dict[str, Array]:
        return {agent: values[index] for index, agent in enumerate(self.agents)}


def _state(episode: State) -> LakeState:
    return LakeState(done=episode.done, step=jnp.copy(episode.time), episode=episode)

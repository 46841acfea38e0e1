"""The lake as a PettingZoo ``ParallelEnv``: dictionaries per agent around the core, no rules of its own.

Agents are ``agent_0`` .. and actions are the numbers of ``Action`` (0 up, 1 down, 2 left, 3 right, 4 wait). The mask of
legal actions is ``infos[agent]["action_mask"]``, where trainers look for it if the observation is an array. As in
PettingZoo's own modules there are ``parallel_env`` and, with the agents taking turns, ``env``.
"""

from typing import Any

import jax
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from jaxlake import observations
from jaxlake.adapters.gymnasium import CentralLake, observation_box
from jaxlake.adapters.host import Episode, bank_of, infos_of
from jaxlake.adapters.shared import PER_AGENT, check_axis_of_agents
from jaxlake.env import Lake
from jaxlake.kinds import Kind
from jaxlake.levels import LevelBank
from jaxlake.state import DEFAULT_PARAMS, Params, TimeStep
from jaxlake.types import Action

PerAgent = dict[str, Any]
"""A dictionary by the agents' names."""

_planes = jax.jit(observations.planes)


class ParallelLake(ParallelEnv):
    """Episodes on levels drawn from a bank; all agents of the level act in every step until it is over for all.

    ``possible_agents`` are as many as the bank has agent slots, ``agents`` those of the level.

    Args:
      bank, params, render_mode, kind: arguments of ``jaxlake.adapters.gymnasium.CentralLake``.
      lake: the rules; ``observe`` must give one array ``[max_agents, ...]``.

    Attributes:
      state_space: the space of what ``state`` returns.
    """

    metadata = CentralLake.metadata | {"name": "jaxlake_v0", "is_parallelizable": True}

    def __init__(
        self,
        bank: LevelBank | None = None,
        lake: Lake = PER_AGENT,
        params: Params = DEFAULT_PARAMS,
        render_mode: str | None = None,
        *,
        kind: Kind | str | int | None = None,
    ) -> None:
        bank = bank_of(bank, kind)
        side, agents = bank.instances.max_size, bank.instances.max_agents
        self.episode = Episode(bank, lake, params)
        self.render_mode = render_mode
        self.possible_agents = [f"agent_{index}" for index in range(agents)]
        self.agents: list[str] = []
        check_axis_of_agents(lake, self.episode.first.observation, agents)
        box = observation_box(self.episode)
        self.observation_spaces = {
            agent: type(box)(box.low[index], box.high[index], dtype=box.dtype)
            for index, agent in enumerate(self.possible_agents)
        }
        self.action_spaces = {agent: Discrete(len(Action)) for agent in self.possible_agents}
        self.state_space = Box(0, agents, (3, side, side), observations.number_dtype(agents))
        self._random, _ = seeding.np_random()

    def observation_space(self, agent: str) -> Space:
        """Return the same object in every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        """Return the same object in every call."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[PerAgent, PerAgent]:
        """Begin an episode.

        Args:
          seed: the seed of levels, slips and drawn goals from now on.
          options: ``level``, the number of the bank's level to play; others have no meaning here.

        Returns:
          Observations and infos.
        """
        if seed is not None:
            self._random, _ = seeding.np_random(seed)
        timestep = self.episode.begin(self._random, (options or {}).get("level"))
        self.agents = self.possible_agents[: int(self.episode.state.instance.num_agents)]
        return self._observations(timestep), self._infos(timestep)

    def step(self, actions: PerAgent) -> tuple[PerAgent, PerAgent, PerAgent, PerAgent, PerAgent]:
        """Play one step; an action that is not legal waits.

        Returns:
          Observations, rewards, terminations, truncations and infos.
        """
        chosen = np.full(len(self.possible_agents), Action.WAIT, np.int32)
        chosen[: len(self.agents)] = [actions[agent] for agent in self.agents]
        timestep = self.episode.step(chosen)
        result = (
            self._observations(timestep),
            {agent: float(timestep.rewards[index]) for index, agent in enumerate(self.agents)},
            dict.fromkeys(self.agents, bool(timestep.terminated)),
            dict.fromkeys(self.agents, bool(timestep.truncated)),
            self._infos(timestep),
        )
        if timestep.terminated or timestep.truncated:
            self.agents = []
        return result

    def render(self) -> str | np.ndarray | None:
        """Return text, or uint8 ``[height, width, 3]``; None without a mode."""
        return self.episode.render(self.render_mode)

    def state(self) -> np.ndarray:
        """Return the whole board as a critic may see it, int8 ``[3, max_size, max_size]``, ``observations.planes``."""
        return np.array(_planes(self.episode.state))

    def _observations(self, timestep: TimeStep) -> PerAgent:
        return {agent: timestep.observation[index] for index, agent in enumerate(self.agents)}

    def _infos(self, timestep: TimeStep) -> PerAgent:
        """``infos_of`` by agent: what is one agent's is given to it alone, the rest to all."""
        infos = infos_of(timestep)
        return {
            agent: {name: value[index] if value.ndim else value[()] for name, value in infos.items()}
            for index, agent in enumerate(self.agents)
        }


parallel_env = ParallelLake


def env(
    bank: LevelBank | None = None,
    lake: Lake = PER_AGENT,
    params: Params = DEFAULT_PARAMS,
    render_mode: str | None = None,
    *,
    kind: Kind | str | int | None = None,
) -> AECEnv:
    """Return a ``ParallelLake`` whose agents are asked one after the other and then move at the same time."""
    return parallel_to_aec(ParallelLake(bank, lake, params, render_mode, kind=kind))

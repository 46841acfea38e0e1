"""The lake as a Gymnasium 1.x ``VectorEnv`` and ``Env``: one player who moves every agent at once, no rules of its own.

An action is one ``Action`` per agent (0 up, 1 down, 2 left, 3 right, 4 wait) and the reward is the sum over the agents.
Importing this registers ``jaxlake/Lake-v0`` for ``gymnasium.make`` and, with a whole batch stepped by one program,
``gymnasium.make_vec``; ``gymnasium.make("jaxlake.adapters.gymnasium:jaxlake/Lake-v0")`` imports it by itself.
"""

from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from jaxlake.adapters.host import (
    RENDER_MODES,
    Episode,
    Infos,
    Layout,
    bank_of,
    check_level,
    infos_of,
    pack,
    pictures,
)
from jaxlake.adapters.shared import CENTRAL, box_of
from jaxlake.arguments import seed_key
from jaxlake.autoreset import AutoReset, AutoResetMode
from jaxlake.env import Lake
from jaxlake.kinds import Kind
from jaxlake.levels import LevelBank
from jaxlake.record import Array
from jaxlake.state import DEFAULT_PARAMS, Params, State
from jaxlake.types import Action

_MODES = {
    AutoresetMode.NEXT_STEP: AutoResetMode.NEXT_STEP,
    AutoresetMode.SAME_STEP: AutoResetMode.SAME_STEP,
    AutoresetMode.DISABLED: AutoResetMode.OFF,
}


class VectorLake(VectorEnv):
    """A batch of episodes on levels drawn from a bank, of any mix of sizes and agents, stepped by one program.

    Infos are those of ``infos_of``, each beside the mask that Gymnasium adds (``solved`` and ``_solved``). In the mode
    SAME_STEP the last observation of a finished episode is in ``infos["final_obs"]`` and its infos in
    ``infos["final_info"]``; the other infos are masked out there but for ``action_mask``, the next episode's.

    Args:
      bank, lake, params, render_mode, kind: the arguments of ``CentralLake``.
      autoreset_mode: when the next episode begins; Gymnasium's default.
      max_episode_steps: Gymnasium's name for a limit beside that of ``params``: the lower one holds; -1 is none.
    """

    def __init__(
        self,
        bank: LevelBank | None = None,
        num_envs: int = 1,
        lake: Lake = CENTRAL,
        params: Params = DEFAULT_PARAMS,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        *,
        kind: Kind | str | int | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        if max_episode_steps is not None and max_episode_steps != -1:
            params = params.replace(max_steps=min(max_episode_steps, int(params.max_steps)))
        self.bank, self.num_envs, self.params = bank_of(bank, kind), num_envs, params
        self.metadata = CentralLake.metadata | {"autoreset_mode": autoreset_mode}
        self.render_mode = render_mode
        episode = Episode(self.bank, lake, params)
        self.single_observation_space = observation_box(episode)
        self.single_action_space = MultiDiscrete([len(Action)] * self.bank.instances.max_agents)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state: State
        self._autoreset = AutoReset(lake, _MODES[autoreset_mode])
        self._layout = Layout(
            jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((num_envs, *leaf.shape), leaf.dtype), episode.first)
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Infos]:
        """Begin new episodes.

        Args:
          seed: the seed of levels, slips and drawn goals from now on.
          options: ``levels``, int ``[num_envs]``, to play those of the bank instead of drawn ones; ``reset_mask``, bool
            ``[num_envs]``, to begin in these environments alone, for the mode DISABLED.
        """
        super().reset(seed=seed)
        options = options or {}
        if unknown := set(options) - {"levels", "reset_mask"}:
            raise ValueError(
                f"options have {', '.join(sorted(unknown))}: only levels and reset_mask have a meaning here"
            )
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.dtype != bool or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be bool [{self.num_envs}]: it is {mask.dtype} {list(mask.shape)}")
        drawn = self.np_random.integers(len(self.bank), size=self.num_envs)
        levels = np.asarray(options.get("levels", drawn))
        for level in levels:
            check_level(level, self.bank)
        self._seed, self._steps = np.uint32(self.np_random.integers(2**31)), 0
        kept = (None, None) if mask.all() else (self.state, mask)
        self.state, fetched = _reset_batch(self._autoreset, self.bank, levels, self.params, *kept)
        timestep = self._layout.unpack(fetched)
        return timestep.observation, _masked(infos_of(timestep), mask)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Play one step in every environment.

        Args:
          actions: int ``[num_envs, max_agents]``; an action that is not legal waits, as do agents that are not there.

        Returns:
          Observations, rewards float64 ``[num_envs]``, terminations and truncations bool ``[num_envs]``, infos.
        """
        # The last observations stay on the device unless somebody is to see them.
        self.state, fetched, (final_observation, final_legal_actions) = _step_batch(
            self._autoreset, self.bank, self.state, np.asarray(actions, np.int32), self._seed, np.uint32(self._steps)
        )
        self._steps += 1
        timestep = self._layout.unpack(fetched)
        everywhere = np.ones(self.num_envs, bool)
        infos = infos_of(timestep)
        ended = timestep.terminated | timestep.truncated
        if self._autoreset.mode is AutoResetMode.SAME_STEP and ended.any():
            legal = {"action_mask": infos.pop("action_mask")}
            final_obs = np.full(self.num_envs, None, object)
            for index, row in zip(np.flatnonzero(ended), np.array(final_observation)[ended], strict=True):
                final_obs[index] = row
            final_info = {"action_mask": np.asarray(final_legal_actions, np.int8), **infos}
            final = {"final_obs": final_obs, "final_info": _masked(final_info, ended)}
            infos = _masked(legal, everywhere) | _masked(infos, ~ended)
            infos |= final | {f"_{name}": ended.copy() for name in final}
        else:
            infos = _masked(infos, everywhere)
        rewards = timestep.shared_reward.astype(np.float64)
        return timestep.observation, rewards, timestep.terminated, timestep.truncated, infos

    def render(self) -> tuple[str, ...] | tuple[np.ndarray, ...] | None:
        """Return each board now: texts, or uint8 ``[height, width, 3]`` of one size; None without a mode."""
        return None if self.render_mode is None else pictures(self.state, self.render_mode)


class CentralLake(gymnasium.Env):
    """Episodes on levels drawn from a bank, one at a time; for batches there is ``VectorLake``.

    ``reset`` takes ``options={"level": i}`` for level i of the bank. Infos are those of ``infos_of``.

    Args:
      bank: the levels; by default 1,024 generated ones, the same every time.
      lake: the rules; ``observe`` must give one array.
      render_mode: ``"ansi"`` for the board as text, ``"rgb_array"`` for a picture (which needs Pillow), or None.
      kind: the kind of generated levels, random ones of size 4 with two agents by default.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}

    def __init__(
        self,
        bank: LevelBank | None = None,
        lake: Lake = CENTRAL,
        params: Params = DEFAULT_PARAMS,
        render_mode: str | None = None,
        *,
        kind: Kind | str | int | None = None,
    ) -> None:
        self.episode = Episode(bank_of(bank, kind), lake, params)
        self.observation_space = observation_box(self.episode)
        self.action_space = MultiDiscrete([len(Action)] * self.episode.bank.instances.max_agents)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Infos]:
        """Begin an episode; the seed is for the levels, slips and goals drawn from now on."""
        super().reset(seed=seed)
        timestep = self.episode.begin(self.np_random, (options or {}).get("level"))
        return timestep.observation, infos_of(timestep)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, Infos]:
        """Play one step, with an action int ``[max_agents]``."""
        timestep = self.episode.step(action)
        ends = bool(timestep.terminated), bool(timestep.truncated)
        return timestep.observation, float(timestep.shared_reward), *ends, infos_of(timestep)

    def action_masks(self) -> np.ndarray:
        """Return what is legal now, bool ``[5 * max_agents]``, agent by agent, as ``MaskablePPO`` asks for it."""
        return np.asarray(self.episode.legal_actions).reshape(-1)

    def render(self) -> str | np.ndarray | None:
        """Return text, or uint8 ``[height, width, 3]``; None without a mode."""
        return self.episode.render(self.render_mode)


def observation_box(episode: Episode) -> Box:
    """Return the space of observations, with their bounds."""
    return Box(*box_of(episode.lake, episode.first.observation, episode.bank.instances.max_agents))


def _masked(infos: Infos, mask: np.ndarray) -> Infos:
    """Each info ``[num_envs, ...]``, zero outside of its mask, and the mask beside it, as in Gymnasium."""
    zeroed = {
        name: np.where(mask.reshape(-1, *[1] * (value.ndim - 1)), value, np.zeros_like(value))
        for name, value in infos.items()
    }
    return zeroed | {f"_{name}": mask.copy() for name in infos}


@partial(jax.jit, static_argnames="autoreset")
def _reset_batch(
    autoreset: AutoReset,
    bank: LevelBank,
    levels: jax.Array,
    params: Params,
    before: State | None = None,
    mask: jax.Array | None = None,
) -> tuple[State, jax.Array]:
    state, timestep = jax.vmap(autoreset.begin, in_axes=(None, 0, None))(bank, levels, params)
    if before is not None:
        state = jax.vmap(lambda begins, *both: jax.tree.map(partial(jnp.where, begins), *both))(mask, state, before)
        timestep = timestep.replace(observation=jax.vmap(autoreset.observe, in_axes=(None, 0))(bank, state))
    return state, pack(timestep)


@partial(jax.jit, static_argnames="autoreset")
def _step_batch(
    autoreset: AutoReset, bank: LevelBank, state: State, actions: jax.Array, seed: jax.Array, count: jax.Array
) -> tuple[State, jax.Array, tuple[Array, Array]]:
    keys = jax.random.split(jax.random.fold_in(seed_key(seed), count), len(actions))
    state, timestep = jax.vmap(autoreset.step, in_axes=(None, 0, 0, 0))(bank, state, actions, keys)
    final = timestep.final_observation, timestep.final_legal_actions
    return state, pack(timestep.replace(final_observation=None, final_legal_actions=None)), final


gymnasium.register(
    "jaxlake/Lake-v0", entry_point=f"{__name__}:CentralLake", vector_entry_point=f"{__name__}:VectorLake"
)

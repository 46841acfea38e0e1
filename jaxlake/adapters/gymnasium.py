"""The lake as a Gymnasium 1.x ``VectorEnv`` and ``Env``: one player who moves every agent at once, no rules of its own.

An action is one ``Action`` per agent (0 up, 1 down, 2 left, 3 right, 4 wait) and the reward is the sum over the agents.
Importing this registers ``jaxlake/Lake-v0`` for ``gymnasium.make(.., bank=bank)`` and, with a whole batch stepped by
one program, ``gymnasium.make_vec(.., vectorization_mode="vector_entry_point", bank=bank)``.
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

from jaxlake import observations
from jaxlake.autoreset import AutoReset, AutoResetMode, AutoResetTimeStep
from jaxlake.env import DEFAULT_PARAMS, Lake, Params, State, TimeStep
from jaxlake.levels import LevelBank
from jaxlake.render import rgb
from jaxlake.types import Action

Infos = dict[str, Any]

DEFAULT_LAKE = Lake()
RENDER_MODES = ("ansi", "rgb_array")

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
      bank: the levels.
      num_envs: how many environments.
      lake: the rules; ``observe`` must give one array.
      params: time limit and slip of all environments.
      autoreset_mode: when the next episode begins; Gymnasium's default.

    Raises:
      ValueError: when an observation is not one array.
    """

    def __init__(
        self,
        bank: LevelBank,
        num_envs: int,
        lake: Lake = DEFAULT_LAKE,
        params: Params = DEFAULT_PARAMS,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.bank, self.num_envs, self.params = bank, num_envs, params
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.single_observation_space = observation_box(bank, lake, params)
        self.single_action_space = MultiDiscrete([len(Action)] * bank.instances.max_agents)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state: State | None = None
        self._autoreset = AutoReset(lake, _MODES[autoreset_mode])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Infos]:
        """Begins new episodes.

        Args:
          seed: for the levels drawn and slips from now on.
          options: ``levels``, int ``[num_envs]``, to play those of the bank instead of drawn ones; ``reset_mask``, bool
            ``[num_envs]``, to begin again in those environments alone, as the mode DISABLED needs it.

        Raises:
          ValueError: for options of another shape or a level that the bank does not have.
        """
        super().reset(seed=seed)
        options = options or {}
        drawn = self.np_random.integers(len(self.bank), size=self.num_envs)
        levels = self._option(options.get("levels", drawn), "levels")
        for level in levels:
            check_level(level, self.bank)
        mask = self._option(options.get("reset_mask", np.ones(self.num_envs, bool)), "reset_mask")
        lake = self._autoreset.lake
        state, timestep = _reset_batch(lake, self.bank, levels, self.params)
        if mask.all():
            self._key, self._steps = jax.random.key(int(self.np_random.integers(2**31))), 0
        elif self.state is None:
            raise ValueError("reset_mask leaves out environments that have not begun")
        else:
            state, timestep = _keep_others(lake, mask, state, timestep, self.state)
        self.state, timestep = state, to_numpy(timestep)
        infos = infos_of(timestep)
        legal = {"action_mask": infos.pop("action_mask")}
        return timestep.observation, _masked(legal, np.ones(self.num_envs, bool)) | _masked(infos, mask)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Plays one step in every environment.

        Args:
          actions: int ``[num_envs, max_agents]``; an action that is not legal waits, as do agents that are not there.

        Returns:
          Observations, rewards float64 ``[num_envs]``, terminations and truncations bool ``[num_envs]``, infos.

        Raises:
          ValueError: before the first reset, and for actions of another shape.
        """
        if self.state is None:
            raise ValueError("nothing has begun: reset comes first")
        actions = np.asarray(actions, np.int32)
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions are {list(actions.shape)}: allowed is {list(self.action_space.shape)}")
        self.state, timestep = _step_batch(
            self._autoreset, self.bank, self.state, actions, self._key, np.uint32(self._steps)
        )
        self._steps += 1
        final_observation = timestep.final_observation  # Stays on the device unless somebody is to see it.
        timestep = to_numpy(timestep.replace(final_observation=None))
        everywhere = np.ones(self.num_envs, bool)
        infos = infos_of(timestep)
        ended = timestep.terminated | timestep.truncated
        if self._autoreset.mode is AutoResetMode.SAME_STEP and ended.any():
            legal = {"action_mask": infos.pop("action_mask")}
            final_obs = np.full(self.num_envs, None, object)
            for index, row in zip(np.flatnonzero(ended), np.array(final_observation)[ended], strict=True):
                final_obs[index] = row
            final = {"final_obs": final_obs, "final_info": _masked(infos, ended)}
            infos = _masked(legal, everywhere) | _masked(infos, ~ended)
            infos |= final | {f"_{name}": ended.copy() for name in final}
        else:
            infos = _masked(infos, everywhere)
        rewards = timestep.shared_reward.astype(np.float64)
        return timestep.observation, rewards, timestep.terminated, timestep.truncated, infos

    def _option(self, value: Any, name: str) -> np.ndarray:
        value = np.asarray(value)
        kind = np.bool_ if name == "reset_mask" else np.integer
        if value.shape != (self.num_envs,) or not np.issubdtype(value.dtype, kind):
            allowed = f"{'bool' if kind is np.bool_ else 'int'} [{self.num_envs}]"
            raise ValueError(f"{name} is {value.dtype} {list(value.shape)}: allowed is {allowed}")
        return value


class CentralLake(gymnasium.Env):
    """Episodes on levels drawn from a bank, one at a time; for batches there is ``VectorLake``.

    ``reset`` takes ``options={"level": i}`` for level i of the bank. Infos are those of ``infos_of``.

    Args:
      bank: the levels.
      lake: the rules; ``observe`` must give one array.
      params: time limit and slip.
      render_mode: ``"ansi"`` for the board as text, ``"rgb_array"`` for a picture (which needs Pillow), or None.

    Raises:
      ValueError: when an observation is not one array, or for another mode.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}

    def __init__(
        self,
        bank: LevelBank,
        lake: Lake = DEFAULT_LAKE,
        params: Params = DEFAULT_PARAMS,
        render_mode: str | None = None,
    ) -> None:
        self.episode = Episode(bank, lake, params)
        self.observation_space = observation_box(bank, lake, params)
        self.action_space = MultiDiscrete([len(Action)] * bank.instances.max_agents)
        self.render_mode = checked_render_mode(render_mode)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Infos]:
        """Begins an episode; the seed is for the levels drawn and slips from now on."""
        super().reset(seed=seed)
        timestep = self.episode.begin(self.np_random, (options or {}).get("level"))
        return timestep.observation, infos_of(timestep)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, Infos]:
        """Plays one step, with an action int ``[max_agents]``."""
        timestep = self.episode.step(action)
        ends = bool(timestep.terminated), bool(timestep.truncated)
        return timestep.observation, float(timestep.shared_reward), *ends, infos_of(timestep)

    def render(self) -> str | np.ndarray | None:
        """Text, or uint8 ``[height, width, 3]``."""
        return self.episode.render(self.render_mode)


class Episode:
    """One episode after another on the host, in numpy; what the adapters that step a single environment have in common.

    One program is compiled for all levels of a bank, and shared by everything with the same lake and padded sizes.
    """

    def __init__(self, bank: LevelBank, lake: Lake, params: Params) -> None:
        self.bank, self.lake, self.params = bank, lake, params
        self._state: State | None = None

    @property
    def state(self) -> State:
        """The core's state now; ValueError before the first episode."""
        if self._state is None:
            raise ValueError("nothing has begun: reset comes first")
        return self._state

    def begin(self, random: np.random.Generator, level: int | None) -> TimeStep:
        """The first time step, on the bank's level of that number or on one drawn."""
        drawn, seed = int(random.integers(len(self.bank))), int(random.integers(2**31))
        level = drawn if level is None else level
        check_level(level, self.bank)
        self._key = jax.random.key(seed)
        self._state, timestep = _reset_one(self.lake, self.bank, np.int32(level), self.params)
        return to_numpy(timestep)

    def step(self, actions: np.ndarray) -> TimeStep:
        """The next time step; actions are int ``[max_agents]``."""
        self._state, timestep = _step_one(self.lake, self.state, np.asarray(actions, np.int32), self._key)
        return to_numpy(timestep)

    def render(self, mode: str | None) -> str | np.ndarray | None:
        """The board now in one of the ``RENDER_MODES``; None for no mode."""
        if mode == "ansi":
            return observations.text(self.state)
        if mode == "rgb_array":
            return np.array(rgb(self.state.instance, positions=np.asarray(self.state.positions)))
        return None


def infos_of(timestep: TimeStep) -> Infos:
    """A time step's legal actions as ``action_mask``, int8 ``[..., max_agents, 5]``, and its ``Info``, costs included.

    Args:
      timestep: in numpy, with any batch axes.
    """
    infos = {"action_mask": timestep.legal_actions.astype(np.int8), **timestep.info, **timestep.info.costs}
    del infos["costs"]
    return infos


def observation_box(bank: LevelBank, lake: Lake, params: Params) -> Box:
    """The space of observations, with the bounds of their dtype; ValueError when they are not one array."""
    instance, distances = bank.at(0)
    shape = jax.eval_shape(lake.reset, instance, params, distances)[1].observation
    if not isinstance(shape, jax.ShapeDtypeStruct):
        raise ValueError(f"the observation is {shape}: allowed is one array")
    if np.issubdtype(shape.dtype, np.integer):
        low, high = np.iinfo(shape.dtype).min, np.iinfo(shape.dtype).max
    else:
        low, high = (0.0, 1.0) if shape.dtype == bool else (-np.inf, np.inf)
    return Box(low, high, shape.shape, shape.dtype)


def checked_render_mode(mode: str | None) -> str | None:
    """The mode, if it can be rendered; else ValueError."""
    if mode not in (None, *RENDER_MODES):
        raise ValueError(f"render_mode is {mode!r}: allowed are None, {', '.join(map(repr, RENDER_MODES))}")
    return mode


def check_level(level: int, bank: LevelBank) -> None:
    """Raises ValueError if the bank does not have a level of that number."""
    if not (isinstance(level, (int, np.integer)) and 0 <= level < len(bank)):
        raise ValueError(f"level is {level}: allowed are 0 to {len(bank) - 1}")


def to_numpy(tree: Any) -> Any:
    """The same tree with arrays that belong to the caller: those of JAX must not be written to."""
    return jax.tree.map(np.array, jax.device_get(tree))


def _masked(infos: Infos, mask: np.ndarray) -> Infos:
    """Each info ``[num_envs, ...]`` beside the mask of where it holds, and zero elsewhere, as Gymnasium has it."""
    zeroed = {
        name: np.where(mask.reshape(-1, *[1] * (value.ndim - 1)), value, np.zeros_like(value))
        for name, value in infos.items()
    }
    return zeroed | {f"_{name}": mask.copy() for name in infos}


@partial(jax.jit, static_argnames="lake")
def _reset_one(lake: Lake, bank: LevelBank, level: jax.Array, params: Params) -> tuple[State, TimeStep]:
    instance, distances = bank.at(level)
    return lake.reset(instance, params, distances)


@partial(jax.jit, static_argnames="lake")
def _step_one(lake: Lake, state: State, actions: jax.Array, key: jax.Array) -> tuple[State, TimeStep]:
    return lake.step(state, actions, jax.random.fold_in(key, state.time))


@partial(jax.jit, static_argnames="lake")
def _reset_batch(lake: Lake, bank: LevelBank, levels: jax.Array, params: Params) -> tuple[State, TimeStep]:
    return jax.vmap(partial(_reset_one, lake), in_axes=(None, 0, None))(bank, levels, params)


@partial(jax.jit, static_argnames="autoreset")
def _step_batch(
    autoreset: AutoReset, bank: LevelBank, state: State, actions: jax.Array, key: jax.Array, count: jax.Array
) -> tuple[State, AutoResetTimeStep]:
    keys = jax.random.split(jax.random.fold_in(key, count), len(actions))
    return jax.vmap(autoreset.step, in_axes=(None, 0, 0, 0))(bank, state, actions, keys)


@partial(jax.jit, static_argnames="lake")
def _keep_others(lake: Lake, mask: jax.Array, fresh: State, timestep: TimeStep, old: State) -> tuple[State, TimeStep]:
    """The fresh states where the mask is set, the old ones elsewhere, with what all of them show."""
    state = jax.tree.map(lambda new, was: jax.vmap(jnp.where)(mask, new, was), fresh, old)
    seen = {"observation": jax.vmap(lake.observe)(state), "legal_actions": jax.vmap(lake.legal_actions)(state)}
    return state, timestep.replace(**seen)


gymnasium.register(
    "jaxlake/Lake-v0",
    entry_point=f"{__name__}:CentralLake",
    vector_entry_point=f"{__name__}:VectorLake",
)

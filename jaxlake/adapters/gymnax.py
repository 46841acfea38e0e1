"""The lake as a gymnax 1.0 ``Environment``: one player who sees the whole board and moves all agents at once.

gymnax and what is built on it (its wrappers, PureJaxRL) know one ``Discrete`` action and one scalar reward. So the
action is the joint action, a number in base 5 whose digit ``i`` (the last first) is the ``Action`` of agent ``i``
(0 up, 1 down, 2 left, 3 right, 4 wait), and the reward is the sum over the agents; ``info["rewards"]`` has them apart.
What may be done next is ``env.action_mask(state)`` and, after a step, ``info["action_mask"]``; ``join_masks`` makes
joint ones of them.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import environment, spaces

from jaxlake.adapters.shared import CENTRAL, box_of
from jaxlake.arguments import seed_key
from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.record import Array, vary_alike
from jaxlake.state import DEFAULT_PARAMS, Params, State
from jaxlake.types import Action

_MAX_AGENTS = 13
"""An int32 can number 5 ** 13 joint actions and no more."""


@struct.dataclass
class LakeParams:
    """Settings that may differ between environments of one compiled program; all of it can be vmapped, the levels too.

    Attributes:
      bank: the levels; each episode draws one, by gather.
      max_steps_in_episode: int32 ``[]``.
      slip: float32 ``[]``, or None for none.
    """

    bank: LevelBank
    max_steps_in_episode: Array | int
    slip: Array | float | None


class CentralLake(environment.Environment[State, LakeParams]):
    """Episodes on levels drawn from ``params.bank``; ``step`` begins the next one as the base class does.

    The state is the core's ``State``.

    Args:
      bank: the levels of ``default_params``; those of any other parameters have the same ``max_agents``.
      lake: the rules; ``observe`` must give one array.
    """

    def __init__(self, bank: LevelBank, lake: Lake = CENTRAL, params: Params = DEFAULT_PARAMS) -> None:
        self.lake = lake
        self.num_agents = bank.instances.max_agents
        self._num_actions = count_joint_actions(self.num_agents)
        self._default_params = LakeParams(bank, int(params.max_steps), params.slip)

    @property
    def default_params(self) -> LakeParams:
        """The bank and settings that the environment was made with."""
        return self._default_params

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: jax.Array, state: State, action: Array, params: LakeParams | None = None
    ) -> tuple[Array, State, Array, Array, Array, dict[str, Any]]:
        """Play one step, and begin the next episode where it was the last.

        Returns:
          Observation, state, summed reward, terminated, truncated, and info: that of ``step_env``, what gymnax adds,
          and ``action_mask`` of the state that is returned.
        """
        observation, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        # Not in ``step_env``, whose info would have the mask of the ended episode beside the next one's observation.
        info = {**info, "action_mask": self.action_mask(state)}
        return observation, state, reward, terminated, truncated, info

    def reset_env(self, key: jax.Array, params: LakeParams) -> tuple[Array, State]:
        """Begin an episode on a level drawn with the key."""
        instance, distances = params.bank.draw(key)
        state, timestep = self.lake.reset(instance, core_params(params), distances)
        return timestep.observation, state

    def step_env(
        self, key: jax.Array, state: State, action: Array, params: LakeParams
    ) -> tuple[Array, State, Array, Array, dict[str, Any]]:
        """Play one step without reset; the info has the core's ``Info`` by name, and ``rewards``."""
        actions = split_actions(action, self.num_agents)
        state, timestep = self.lake.step(with_params(state, params), actions, key)
        info = {**vars(timestep.info), "rewards": timestep.rewards}
        return timestep.observation, state, timestep.shared_reward, timestep.terminated, info

    def observe(self, key: jax.Array, state: State, action: Array | None, params: LakeParams) -> Array:
        """Return the observation of a state, as ``step`` and ``reset`` do."""
        observation: Array = self.lake.observe(state)
        return observation

    def is_truncated(self, state: State, params: LakeParams) -> Array:
        """Return whether the state is out of steps, and not terminated in the last of them."""
        return state.truncated

    def is_terminated(self, state: State, params: LakeParams) -> Array:
        """Return whether the episode ended for another reason than its steps."""
        return state.terminated

    def action_mask(self, state: State) -> jax.Array:
        """Return the legal actions, bool ``[max_agents, 5]``; only WAIT for agents that are not there."""
        return self.lake.legal_actions(state)

    @property
    def num_actions(self) -> int:
        """The number of joint actions, ``5 ** max_agents``."""
        return self._num_actions

    def action_space(self, params: LakeParams | None = None) -> spaces.Discrete:
        """Return the space of joint actions; ``split_actions`` and ``join_actions`` translate."""
        return spaces.Discrete(self._num_actions)

    def observation_space(self, params: LakeParams) -> spaces.Box:
        """Return the box of observations with their bounds; ValueError when they are not one array."""
        seen, _ = jax.eval_shape(self.reset_env, seed_key(0), params)
        return spaces.Box(*box_of(self.lake, seen, self.num_agents))


def count_joint_actions(num_agents: int) -> int:
    """Return ``5 ** num_agents``, the number of joint actions; ValueError when an int32 cannot number them."""
    if num_agents > _MAX_AGENTS:
        raise ValueError(
            f"{num_agents} agents have 5 ** {num_agents} joint actions: there must be at most {_MAX_AGENTS} agents; "
            "adapters.jaxmarl and adapters.jumanji take an action for each agent"
        )
    count: int = len(Action) ** num_agents
    return count


def split_actions(joint: Array, num_agents: int) -> Array:
    """Split joint actions int ``[...]`` into the numbers of ``Action``, int32 ``[..., num_agents]``."""
    return jnp.asarray(joint, jnp.int32)[..., None] // _places(num_agents) % len(Action)


def join_actions(actions: Array) -> Array:
    """Join numbers of ``Action`` ``[..., num_agents]`` to joint actions int32 ``[...]``; inverts ``split_actions``."""
    return jnp.sum(jnp.asarray(actions, jnp.int32) * _places(actions.shape[-1]), axis=-1, dtype=jnp.int32)


def join_masks(masks: Array) -> jax.Array:
    """Join masks of actions bool ``[..., num_agents, 5]`` to masks of joint actions, bool ``[..., 5 ** num_agents]``.

    A joint action is legal if the action of each agent is; of ten agents there are ten million.
    """
    num_agents = masks.shape[-2]
    everything = split_actions(np.arange(count_joint_actions(num_agents)), num_agents)
    return jnp.all(masks[..., np.arange(num_agents), everything], axis=-1)


def _places(num_agents: int) -> np.ndarray:
    return len(Action) ** np.arange(num_agents, dtype=np.int32)


def core_params(params: Any) -> Params:
    """Return the core's settings from those under gymnax's names, as arrays."""
    return Params(max_steps=params.max_steps_in_episode, slip=params.slip).as_arrays()


def with_params(state: State, params: Any) -> State:
    """Return the state with settings under gymnax's names, which each step is given anew."""
    varying: State = vary_alike(state.replace(params=core_params(params)))
    return varying

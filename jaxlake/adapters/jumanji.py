"""The lake as a Jumanji 1.1 ``Environment``: several agents, as its Connector has them. Registers nothing.

Actions are the numbers of ``Action`` (0 up, 1 down, 2 left, 3 right, 4 wait), one per agent; Jumanji's own boards begin
with the no-op. Rewards and discounts are per agent, and ``MultiToSingleWrapper`` sums them. Discounts are 0 where an
episode terminates, and 1 where it runs out of steps.
"""

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jumanji import env, specs, types

from jaxlake import state as core
from jaxlake.adapters.shared import PER_AGENT, box_of
from jaxlake.arguments import seed_key
from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.record import Array, Record, record, vary_alike
from jaxlake.render import rgb
from jaxlake.types import Action


@record
class State(Record):
    """The core's state, and the key from which slips, drawn goals and the next automatic reset derive theirs."""

    key: jax.Array
    episode: core.State


class Observation(NamedTuple):
    """An observation under the names of Jumanji's RobotWarehouse, which Mava reads.

    Attributes:
      agents_view: the observation of ``Lake.observe``, by default float32 ``[max_agents, features]``.
      action_mask: bool ``[max_agents, 5]``.
      step_count: int32 ``[]``.
    """

    agents_view: Array
    action_mask: Array
    step_count: Array


class JumanjiLake(env.Environment[State, specs.MultiDiscreteArray, Observation]):
    """Episodes on levels drawn from a bank, which is a constant of the compiled program, as a Jumanji generator is.

    Args:
      lake: the rules; ``observe`` must give one array.
    """

    def __init__(self, bank: LevelBank, lake: Lake = PER_AGENT, params: core.Params = core.DEFAULT_PARAMS) -> None:
        self.bank, self.lake, self.params = bank, lake, params
        self.num_agents = bank.instances.max_agents
        self.time_limit = int(params.max_steps)
        super().__init__()

    def __repr__(self) -> str:
        return f"JumanjiLake(levels={len(self.bank)}, num_agents={self.num_agents}, time_limit={self.time_limit})"

    def reset(self, key: jax.Array) -> tuple[State, types.TimeStep[Observation]]:
        """Begin an episode on a level drawn with the key; ``extras`` has the core's ``Info`` by name."""
        draw_key, key = jax.random.split(key)
        instance, distances = self.bank.draw(draw_key)
        episode, timestep = self.lake.reset(instance, self.params, distances)
        first = types.restart(_observation(episode, timestep), _extras(timestep), (self.num_agents,), jnp.float32)
        return State(key=key, episode=episode), vary_alike(first)

    def step(self, state: State, action: Array) -> tuple[State, types.TimeStep[Observation]]:
        """Play one step without reset, of actions int32 ``[max_agents]``; ``extras`` as of ``reset``."""
        step_key, key = jax.random.split(state.key) if self.lake.needs_key(self.params) else (None, state.key)
        episode, timestep = self.lake.step(state.episode, action, step_key)
        return State(key=key, episode=episode), types.TimeStep(
            step_type=jnp.where(episode.done, types.StepType.LAST, types.StepType.MID),
            reward=timestep.rewards,
            discount=jnp.full(self.num_agents, ~timestep.terminated, jnp.float32),
            observation=_observation(episode, timestep),
            extras=_extras(timestep),
        )

    @cached_property
    def observation_spec(self) -> specs.Spec[Observation]:
        """An ``Observation`` of specs, the view with its bounds; ValueError when it is not one array."""
        _, first = jax.eval_shape(self.reset, seed_key(0))
        low, high, shape, dtype = box_of(self.lake, first.observation.agents_view, self.num_agents)
        unbounded = specs.Array(shape, dtype, "agents_view")
        bounded = specs.BoundedArray(shape, dtype, low, high, "agents_view")
        return specs.Spec(
            Observation,
            "ObservationSpec",
            agents_view=bounded if np.isfinite(high) else unbounded,  # A spec's example is its lower bound.
            action_mask=specs.BoundedArray((self.num_agents, len(Action)), bool, False, True, "action_mask"),
            step_count=specs.BoundedArray((), jnp.int32, 0, self.time_limit, "step_count"),
        )

    @cached_property
    def action_spec(self) -> specs.MultiDiscreteArray:
        """The actions, int32 ``[max_agents]``, each below 5."""
        return specs.MultiDiscreteArray(jnp.full(self.num_agents, len(Action)), jnp.int32, "action")

    @cached_property
    def reward_spec(self) -> specs.Array:
        """The rewards, float32 ``[max_agents]``."""
        return specs.Array((self.num_agents,), jnp.float32, "reward")

    @cached_property
    def discount_spec(self) -> specs.BoundedArray:
        """The discounts, float32 ``[max_agents]`` of 0 and 1."""
        return specs.BoundedArray((self.num_agents,), jnp.float32, 0.0, 1.0, "discount")

    def render(self, state: State) -> np.ndarray:
        """Return a picture of the board, uint8 ``[height, width, 3]``; needs Pillow."""
        episode = jax.device_get(state.episode)
        return np.array(rgb(episode.instance, positions=episode.positions))


def _extras(timestep: core.TimeStep) -> dict[str, Any]:
    # Dictionaries all the way down: dm-tree, with which Jumanji looks into extras, knows no records.
    return {**vars(timestep.info), "costs": {**vars(timestep.info.costs)}}


def _observation(episode: core.State, timestep: core.TimeStep) -> Observation:
    return Observation(timestep.observation, timestep.legal_actions, jnp.copy(episode.time))

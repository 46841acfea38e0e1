"""The adapters behind one interface, for what all must do alike: each plays a bank as its library asks it to."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from jaxlake.levels import LevelBank
from jaxlake.state import Params
from jaxlake.testing import AdapterStep, Face
from jaxlake.types import Action

ONE_STEP = """
    aA.
    ...
    bB.
"""


def gymnax(bank: LevelBank, params: Params, *lake: Any) -> Face:
    pytest.importorskip("gymnax")
    from jaxlake.adapters.gymnax import CentralLake, join_actions

    env = CentralLake(bank, *lake, params=params)

    def seen(result: tuple) -> AdapterStep:
        _, state, reward, terminated, truncated, info = result
        ended = terminated | truncated
        return AdapterStep(
            cells=None if ended else state.positions,
            observation=info["final_observation"] if ended else result[0],
            rewards=info["rewards"],
            ends=(terminated, truncated),
            mask=info["action_mask"],
        )

    def box() -> tuple[Any, Any]:
        space = env.observation_space(env.default_params)
        return space.low, space.high

    def step(carry: tuple, moves: Any, key: Any) -> tuple:
        return env.step(key, carry[1], join_actions(moves), env.default_params)

    return Face(env, env.reset, step, seen, box)


def jaxued(bank: LevelBank, params: Params, *lake: Any) -> Face:
    pytest.importorskip("jaxued")
    from jaxlake.adapters.gymnax import join_actions
    from jaxlake.adapters.jaxued import EnvParams, UnderspecifiedLake

    env = UnderspecifiedLake(bank.instances.max_agents, *lake)
    settings = EnvParams(max_steps_in_episode=params.max_steps, slip=params.slip)

    def seen(result: tuple) -> AdapterStep:
        observation, state, _, done, info = result
        ends = bool(done) and not info["truncated"], info["truncated"]
        image = np.moveaxis(observation.image, -1, 0)
        return AdapterStep(state.positions, image, info["rewards"], ends, env.lake.legal_actions(state))

    def reset(key: Any) -> tuple:
        return env.reset_to_level(key, bank.draw(key)[0], settings)

    def step(carry: tuple, moves: Any, key: Any) -> tuple:
        return env.step(key, carry[1], join_actions(moves), settings)

    return Face(env, reset, step, seen, lambda: (0, 1))  # JaxUED has no box.


def jaxmarl(bank: LevelBank, params: Params, *lake: Any) -> Face:
    pytest.importorskip("jaxmarl")
    from jaxlake.adapters.jaxmarl import MultiAgentLake

    env = MultiAgentLake(bank, *lake, params=params)

    def by_agent(values: dict[str, Any]) -> np.ndarray:
        return np.stack([values[agent] for agent in env.agents])

    def seen(result: tuple) -> AdapterStep:
        observations, state, rewards, dones, infos = result
        truncated = bool(infos["truncated"][0])
        ended = bool(dones["__all__"])
        return AdapterStep(
            cells=None if ended else state.episode.positions,
            observation=None if ended else by_agent(observations),
            rewards=by_agent(rewards),
            ends=(ended and not truncated, truncated),
            mask=by_agent(env.get_avail_actions(state)),
        )

    def box() -> tuple[Any, Any]:
        space = env.observation_space(env.agents[0])
        return space.low, space.high

    def step(carry: tuple, moves: Any, key: Any) -> tuple:
        return env.step(key, carry[1], dict(zip(env.agents, moves, strict=True)))

    return Face(env, env.reset, step, seen, box)


def jumanji(bank: LevelBank, params: Params, *lake: Any) -> Face:
    pytest.importorskip("jumanji")
    from jaxlake.adapters.jumanji import JumanjiLake

    env = JumanjiLake(bank, *lake, params=params)

    def seen(result: tuple) -> AdapterStep:
        state, timestep = result
        last, going_on = bool(timestep.last()), bool(timestep.discount.any())
        observation = timestep.observation
        assert observation.step_count == state.episode.time
        ends = last and not going_on, last and going_on
        cells = state.episode.positions
        return AdapterStep(cells, observation.agents_view, timestep.reward, ends, observation.action_mask)

    def box() -> tuple[Any, Any]:
        view = env.observation_spec.agents_view
        return getattr(view, "minimum", -np.inf), getattr(view, "maximum", np.inf)

    return Face(env, env.reset, lambda carry, moves, key: env.step(carry[0], moves), seen, box)


def gymnasium(bank: LevelBank, params: Params, *lake: Any, batch: int = 0) -> Face:
    pytest.importorskip("gymnasium")
    from gymnasium.vector import AutoresetMode

    from jaxlake.adapters.gymnasium import CentralLake, VectorLake

    if batch:
        env: Any = VectorLake(bank, batch, *lake, params=params, autoreset_mode=AutoresetMode.DISABLED)
    else:
        env = CentralLake(bank, *lake, params=params)

    def seen(result: tuple) -> AdapterStep:
        if batch:  # Every environment of a batch does the same here.
            result = jax.tree.map(lambda values: values[-1], result)
        observation, reward, terminated, truncated, infos = result
        cells = env.state.positions[-1] if batch else env.episode.state.positions
        return AdapterStep(cells, observation, reward, (terminated, truncated), infos["action_mask"])

    def step(carry: tuple, moves: Any, key: Any) -> tuple:
        return env.step(np.tile(moves, (batch, 1)) if batch else moves)

    def box() -> tuple[Any, Any]:
        space = getattr(env, "single_observation_space", env.observation_space)
        return space.low, space.high

    return Face(env, lambda key: env.reset(seed=0), step, seen, box, on_host=True)


def pettingzoo(bank: LevelBank, params: Params, *lake: Any) -> Face:
    pytest.importorskip("pettingzoo")
    from jaxlake.adapters.pettingzoo import ParallelLake

    env = ParallelLake(bank, *lake, params=params)

    def padded(values: dict[str, Any], absent: Any) -> np.ndarray:
        return np.stack([values.get(agent, absent) for agent in env.possible_agents])

    def seen(result: tuple) -> AdapterStep:
        observations, rewards, terminations, truncations, infos = result
        one = next(iter(observations.values()))
        masks = {agent: info["action_mask"] for agent, info in infos.items()}
        return AdapterStep(
            cells=env.episode.state.positions,
            observation=padded(observations, np.zeros_like(one)),
            rewards=padded(rewards, 0.0),
            ends=(all(terminations.values()), all(truncations.values())),
            mask=padded(masks, np.arange(5) == Action.WAIT),
        )

    def step(carry: tuple, moves: Any, key: Any) -> tuple:
        return env.step(dict(zip(env.agents, np.asarray(moves).tolist(), strict=False)))

    def box() -> tuple[Any, Any]:
        space = env.observation_space(env.possible_agents[0])
        return space.low, space.high

    return Face(env, lambda key: env.reset(seed=0), step, seen, box, on_host=True)


ON_DEVICE = {"gymnax": gymnax, "jaxued": jaxued, "jaxmarl": jaxmarl, "jumanji": jumanji}
FACES = ON_DEVICE | {
    "gymnasium": gymnasium,
    "gymnasium's batches": partial(gymnasium, batch=2),
    "pettingzoo": pettingzoo,
}

"""The gymnax face: joint actions, one step in each direction against the core, and gymnax's own wrappers on it."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("gymnax")

from gymnax.environments.environment import Environment  # noqa: E402
from gymnax.experimental.rollout import RolloutWrapper  # noqa: E402
from gymnax.wrappers import FlattenObservationWrapper, LogWrapper  # noqa: E402

from jaxlake.adapters.gymnax import CentralLake, LakeParams, join_actions, join_masks, split_actions  # noqa: E402
from jaxlake.board_text import from_text  # noqa: E402
from jaxlake.env import CLASSIC_SLIP  # noqa: E402
from jaxlake.levels import LevelBank, stack  # noqa: E402
from jaxlake.state import Params  # noqa: E402
from jaxlake.testing import BOARD, MAX_SIZE, bank  # noqa: E402
from jaxlake.types import Action  # noqa: E402
from tests.support.faces import ONE_STEP  # noqa: E402

UP, DOWN, LEFT, RIGHT, WAIT = Action


@cache  # An environment is a static argument of its own ``step``, so each new one compiles; parameters do not.
def lake() -> CentralLake:
    return CentralLake(bank(ONE_STEP), params=Params(max_steps=4))


def params_of(board: str) -> LakeParams:
    return lake().default_params.replace(bank=bank(board))


def joint(*actions: Action) -> jax.Array:
    return join_actions(jnp.array(actions))


def test_joint_actions_count_in_fives_with_agent_zero_as_the_last_digit():
    assert split_actions(0, 3).tolist() == [0, 0, 0]
    assert split_actions(4, 3).tolist() == [4, 0, 0]
    assert split_actions(5 * 2 + 25 * 3 + 1, 3).tolist() == [1, 2, 3]
    everything = split_actions(jnp.arange(125), 3)
    assert len(set(map(tuple, everything.tolist()))) == 125
    assert join_actions(everything).tolist() == list(range(125))


def test_the_spaces_hold_what_the_environment_gives_and_takes():
    env, params = lake(), params_of(BOARD)
    assert isinstance(env, Environment) and env.name == "CentralLake"
    assert env.num_actions == env.action_space(params).n == 125
    space = env.observation_space(params)
    observation, state = env.reset(jax.random.key(0), params)
    assert space.contains(observation)
    assert (observation.shape, observation.dtype) == (space.shape, space.dtype) == ((3, MAX_SIZE, MAX_SIZE), jnp.int8)
    action = env.action_space(params).sample(jax.random.key(1))
    assert (env.observe(jax.random.key(2), state, action, params) == observation).all()


@pytest.mark.heavy
def test_levels_and_time_limits_differ_within_one_program():
    env = lake()
    limited = [params_of(board).replace(max_steps_in_episode=limit) for board, limit in ((BOARD, 1), (ONE_STEP, 5))]
    params = jax.tree.map(lambda *parts: jnp.stack(parts), *limited)
    keys = jax.random.split(jax.random.key(0), 2)
    _, states = jax.vmap(env.reset)(keys, params)
    assert states.instance.size.tolist() == [4, 3]
    actions = jnp.array([joint(WAIT, WAIT, WAIT)] * 2)
    *_, truncated, _ = jax.vmap(env.step)(keys, states, actions, params)
    assert truncated.tolist() == [True, False]


@pytest.mark.heavy
def test_slip_is_a_parameter():
    env, params = lake(), params_of(BOARD).replace(slip=CLASSIC_SLIP)
    _, state = env.reset(jax.random.key(0), params)
    step = jax.vmap(env.step, (0, None, None, None))
    _, states, *_ = step(jax.random.split(jax.random.key(1), 300), state, joint(UP, WAIT, WAIT), params)
    cells, counts = np.unique(states.positions[:, 0], return_counts=True)
    assert cells.tolist() == [0 * MAX_SIZE + 1, 1 * MAX_SIZE + 0, 1 * MAX_SIZE + 2]
    assert (np.abs(counts - 100) < 40).all()


def test_the_rollout_wrapper_of_gymnax_runs_whole_episodes():
    waiting, solving = joint(WAIT, WAIT, WAIT), joint(RIGHT, RIGHT, WAIT)
    rollout = RolloutWrapper(lambda moves, observation, key: jnp.where(moves, solving, waiting), env=lake())
    keys = jax.random.split(jax.random.key(0), 2)
    *_, done, returns = rollout.population_rollout(keys, jnp.array([True, False]))
    assert returns[..., 0].tolist() == [[2, 2], [0, 0]]
    assert done[1, 0].tolist() == [False, False, False, True]


def test_the_wrappers_of_pure_rl_log_the_returns():
    env = LogWrapper(FlattenObservationWrapper(lake()))
    observation, state = env.reset(jax.random.key(0))
    assert observation.shape == (3 * MAX_SIZE * MAX_SIZE,)
    _, _, _, _, _, info = env.step(jax.random.key(1), state, joint(RIGHT, RIGHT, WAIT))
    assert info["returned_episode"] and info["returned_episode_returns"] == 2


def test_a_joint_action_is_legal_if_each_of_its_actions_is():
    masks = np.random.default_rng(0).random((4, 3, 5)) < 0.5
    joined = jax.jit(join_masks)(masks)
    assert joined.shape == (4, 125) and joined.dtype == bool
    for mask, together in zip(masks, joined.tolist(), strict=True):
        for actions in itertools.product(range(5), repeat=3):
            legal = all(mask[agent, action] for agent, action in enumerate(actions))
            assert together[int(join_actions(np.array(actions)))] == legal


def test_the_mask_beside_an_observation_is_of_the_state_that_is_seen():
    env, params = lake(), params_of(ONE_STEP)
    _, start = env.reset(jax.random.key(0), params)
    assert env.action_mask(start)[:2].tolist() == [[False, True, False, True, True], [True, False, False, True, True]]
    for actions in ((DOWN, WAIT, WAIT), (RIGHT, RIGHT, WAIT)):  # The second ends the episode: the next one's is shown.
        _, state, _, terminated, _, info = env.step(jax.random.key(1), start, joint(*actions), params)
        assert bool(terminated) == (actions[1] == RIGHT)
        assert (info["action_mask"] == env.action_mask(state)).all()
    assert (info["action_mask"] == env.action_mask(start)).all()


def test_more_agents_than_an_int32_can_number_are_refused():
    crowd = LevelBank.build(stack([from_text(BOARD, max_size=4, max_agents=14)]))
    with pytest.raises(ValueError, match="14 agents .* must be at most 13 agents"):
        CentralLake(crowd)

"""Rewards on games worked out by hand, and the sums that they promise over random play."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import rewards
from jaxlake.board_text import from_text
from jaxlake.env import Lake
from jaxlake.levels import distance_fields, stack
from jaxlake.state import Params

BOARD = """
    aA..
    ....
    b#.B
    ....
"""
UP, DOWN, LEFT, RIGHT, WAIT = range(5)


@functools.cache
def level():
    """``BOARD`` with an agent slot too many, and its distances."""
    instance = from_text(BOARD, max_agents=3)
    return instance, distance_fields(stack([instance]))[0]


@functools.partial(jax.jit, static_argnames="reward")
def play(reward, instance, distances, moves):
    """The last state of a game, its first time step, and the rewards of each step, by agent and their sum."""
    lake = Lake(reward=reward)

    def step(state, actions):
        state, time_step = lake.step(state, actions)
        return state, (time_step.rewards, time_step.shared_reward)

    state, first = lake.reset(instance, Params(max_steps=40), distances)
    return *jax.lax.scan(step, state, moves), first


def paid(reward, *joint) -> list[list[float]]:
    """The rewards of each step of a game."""
    moves = np.array([[*moves, WAIT] for moves in joint], np.int32)
    _, (rewarded, shared), first = play(reward, *level(), moves)
    assert not first.rewards.any() and first.shared_reward == 0
    np.testing.assert_allclose(shared, rewarded.sum(axis=1), rtol=1e-6)
    assert not rewarded[:, 2].any()
    return rewarded[:, :2].tolist()


GAME = [(RIGHT, DOWN), (WAIT, RIGHT), (DOWN, RIGHT), (UP, RIGHT), (WAIT, UP), (WAIT, UP)]
# Agent 1's distance to its goal, around the hole: 5 at first, then 4, 3, 2, 1, 0.


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (rewards.sparse, [[0, 0]] * 4 + [[1, 1], [0, 0]]),  # every agent, once, in the step that solves the episode
        (rewards.cost, [[-1, -1], [0, -1], [-1, -1], [-1, -1], [0, -1], [0, 0]]),  # off the goal before or after it
        (rewards.shaped(0.5), [[0.5, 0.5], [0, 0.5], [-0.5, 0.5], [0.5, 0.5], [1, 1.5], [0, 0]]),
        (rewards.shaped(1, 0.9), [[1, 1.4], [0, 1.3], [-0.9, 1.2], [1, 1.1], [1, 2], [0, 0]]),  # 5 - .9 * 4 and so on
    ],
    ids=["sparse", "cost", "shaped", "discounted"],
)
def test_a_game_worked_out_by_hand_is_paid(reward, expected):
    np.testing.assert_allclose(paid(reward, *GAME), expected, rtol=1e-6)


def test_shaped_sums_to_the_distance_that_was_won_whatever_was_played():
    moves = np.random.default_rng(0).integers(0, 5, (64, 30, 3))
    (instance, table), agents, reward = level(), np.arange(2), rewards.shaped(0.1)
    states, (rewarded, _), _ = jax.vmap(lambda moves: play(reward, instance, table, moves))(moves)
    won = table[agents, instance.starts[:2]] - table[agents, states.positions[:, :2]]
    solved = np.asarray(states.terminated)[:, None]
    np.testing.assert_allclose(rewarded.sum(axis=1)[:, :2], 0.1 * won + solved, atol=1e-5)


def test_shaped_without_distances_says_what_it_needs():
    lake = Lake(reward=rewards.shaped())
    with pytest.raises(ValueError, match="the state holds no distances: build the bank with_distances=True"):
        jax.eval_shape(lambda: lake.step(lake.reset(from_text(BOARD))[0], jnp.zeros(2, jnp.int32)))


@pytest.mark.parametrize(
    ("valid", "cost", "optimum", "expected"),
    [
        (True, 6, 6, 1.0),  # optimal
        (True, 9, 6, 1 - 0.7 * 3 / 12),  # three steps too many of at most twelve
        (True, 18, 6, 0.3),  # c = c_max
        (True, 40, 6, 0.3),  # beyond
        (False, 6, 6, 0.0),  # one check failed
        (True, 0, 0, 1.0),  # every agent starts on its goal and stays
        (True, 2, 0, 0.3),  # ... or wanders
    ],
)
def test_accuracy_has_the_papers_breakpoints(valid, cost, optimum, expected):
    assert rewards.accuracy(np.array([valid]), np.array([cost]), np.array([optimum]))[0] == pytest.approx(expected)

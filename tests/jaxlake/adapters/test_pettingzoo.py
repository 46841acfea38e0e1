"""The PettingZoo adapter: PettingZoo's own tests pass, and what it does is what the core does."""

import functools
import warnings

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test
from pettingzoo.test.state_test import state_test

from jaxlake import from_text, observations, to_text
from jaxlake.adapters.pettingzoo import ParallelLake, env, parallel_env
from jaxlake.levels import LevelBank, stack
from jaxlake.state import Params

OPEN = """
....B
.....
..a..
.b...
....A
"""
SMALL = """
a#.
.#A
...
"""


@pytest.fixture(scope="module")
def bank():
    return LevelBank.build(stack([from_text(OPEN), from_text(SMALL)]))


def test_pettingzoo_finds_no_fault():
    env = ParallelLake(LevelBank.build(stack([from_text(OPEN)])), params=Params(max_steps=40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(env, num_cycles=100)


def test_pettingzoo_finds_that_the_seed_decides(bank):
    parallel_seed_test(lambda: ParallelLake(bank))


def test_the_module_has_what_pettingzoos_own_modules_have():
    bank = LevelBank.build(stack([from_text(OPEN)]))
    taking_turns = env(bank, params=Params(max_steps=40), render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api_test(taking_turns, num_cycles=100)
        state_test(taking_turns, parallel_env(bank))
        render_test(functools.partial(env, bank))
    assert taking_turns.possible_agents == parallel_env(bank).possible_agents == ["agent_0", "agent_1"]
    assert taking_turns.metadata["render_fps"] == 4 and taking_turns.metadata["name"] == "jaxlake_v0"
    taking_turns.reset()
    assert taking_turns.render() == to_text(from_text(OPEN))


def test_only_the_agents_of_the_level_play(bank):
    env = ParallelLake(bank)
    seen, infos = env.reset(options={"level": 1})
    assert env.agents == list(seen) == list(infos) == ["agent_0"]
    assert env.possible_agents == ["agent_0", "agent_1"]


def test_the_board_is_rendered_and_seen_whole_by_a_critic(bank):
    env = ParallelLake(bank, render_mode="ansi")
    env.reset(options={"level": 1})
    assert env.render() == "a#.\n.#A\n..."
    np.testing.assert_array_equal(env.state(), observations.planes(env.episode.state))

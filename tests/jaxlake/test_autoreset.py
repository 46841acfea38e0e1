"""The three ways to go on after an episode, against episodes played by hand without them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.autoreset import AutoReset, AutoResetMode
from jaxlake.board_text import from_text
from jaxlake.env import CLASSIC_SLIP, Lake
from jaxlake.levels import LevelBank, stack
from jaxlake.state import Params

# On the first one agent b is walled in on its goal, so that random play solves it.
BOARDS = ("a.# .A#\n.#b .#B\n..# ..#", "a..\n.#A\nbB.", "..a\nA..\nB.b")
BANK = LevelBank.build(stack([from_text(board) for board in BOARDS]))
LAKE, STEPS, PARAMS = Lake(), 40, Params(max_steps=7)


def played(mode: AutoResetMode, params: Params = PARAMS):
    """States before and after each step, time steps and actions of 8 environments, ``[8, steps]``."""
    keys = jax.random.split(jax.random.key(0), (8, STEPS + 1))
    actions = np.random.default_rng(0).integers(0, 5, (8, STEPS, 2), np.int32)
    return jax.device_get(program(mode)(keys, actions, params))


@functools.cache
def program(mode: AutoResetMode):
    episodes = AutoReset(LAKE, mode)

    def one(keys, actions, params):
        state, _ = episodes.reset(BANK, keys[0], params)

        def step(state, given):
            after, time_step = episodes.step(BANK, state, *given)
            return after, (state, after, time_step, given[0])

        return jax.lax.scan(step, state, (actions, keys[1:]))[1]

    return jax.jit(jax.vmap(one, in_axes=(0, 0, None)))


@functools.cache
def by_hand():
    """What the lake itself does from a state, and how it begins on the level of a state."""
    step = jax.jit(lambda state, actions: LAKE.step(state, actions))
    begin = jax.jit(lambda instance: LAKE.reset(instance, PARAMS))
    return step, begin


def each(tree):
    """The steps of the first two environments, one by one."""
    for env in range(2):
        for time in range(STEPS):
            yield jax.tree.map(lambda x, at=(env, time): x[at], tree)


def same(one, other) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


@pytest.mark.heavy
def test_off_stays_done():
    _, _, steps, _ = played(AutoResetMode.OFF)
    done = steps.terminated | steps.truncated
    assert done[:, -1].all() and (np.diff(done.astype(int), axis=1) >= 0).all()
    assert (np.diff(steps.terminated[:, 7:].astype(int), axis=1) == 0).all()
    assert same(steps.observation, steps.final_observation)


@pytest.mark.heavy
@pytest.mark.parametrize("mode", [AutoResetMode.SAME_STEP, AutoResetMode.NEXT_STEP])
def test_the_same_or_the_next_step_begins_an_episode_and_shows_its_first_observation(mode):
    """The same step keeps all else of the last one; the next one ignores its actions."""
    step, begin = by_hand()
    before, after, steps, actions = played(mode)
    resets, at_once = 0, mode is AutoResetMode.SAME_STEP
    for was, now, seen, moves in each((before, after, steps, actions)):
        (plain_state, plain), (fresh, first) = step(was, moves), begin(now.instance)
        begins = (plain.terminated | plain.truncated) if at_once else was.done
        shown, last = first if begins else plain, first if begins and not at_once else plain
        assert same(now, fresh if begins else plain_state)
        assert same(seen.observation, shown.observation) and same(seen.legal_actions, shown.legal_actions)
        assert same(seen.final_observation, last.observation)
        for name in ("rewards", "shared_reward", "terminated", "truncated", "info"):
            assert same(getattr(seen, name), getattr(last, name)), name
        resets += bool(begins)
    assert resets >= 2 * (STEPS // 8)
    assert steps.terminated.any() and steps.truncated.any() and not (steps.terminated & steps.truncated).any()


@pytest.mark.parametrize("mode", [AutoResetMode.SAME_STEP, AutoResetMode.NEXT_STEP])
def test_new_episodes_come_from_the_whole_bank_and_keep_their_params_in_one_program(mode):
    _, after, _, _ = played(mode, Params(max_steps=1))
    first = after.time == 0
    starts = {tuple(pair) for pair in after.instance.starts[first].tolist()}
    assert starts == {tuple(pair) for pair in BANK.instances.starts.tolist()}
    assert (after.params.max_steps == 1).all()
    played(mode, Params(max_steps=9))
    assert program(mode)._cache_size() == 1


def test_a_slip_and_the_next_level_do_not_share_their_key():
    episodes = AutoReset(LAKE)

    def one(key):
        state, _ = LAKE.reset(from_text(BOARDS[1]), Params(max_steps=1, slip=CLASSIC_SLIP))
        after, step = episodes.step(BANK, state, jnp.array([3, 3]), key)
        return step.final_observation, after.instance.starts[0]

    last, starts = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 2000))
    where = np.asarray(last[:, 1].reshape(2000, -1).argmax(axis=1))
    outcomes, levels = np.unique(where), np.unique(starts)
    for outcome in outcomes:
        within = np.asarray(starts)[where == outcome]
        for level in levels:
            share, overall = np.mean(within == level), np.mean(np.asarray(starts) == level)
            assert abs(share - overall) < 5 * np.sqrt(0.25 / len(within))
    assert len(outcomes) == 3 and len(levels) >= 2

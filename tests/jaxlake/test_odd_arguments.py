"""Odd arguments: empty batches, one instance, any number of plans, and what ends in one clear line everywhere."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlake import (
    Instance,
    Lake,
    LakeConfig,
    LevelBank,
    first_failure,
    from_text,
    generate,
    needs_wait,
    solve,
    stack,
    validate,
    verify,
    waits,
    without_waiting,
)
from jaxlake.adapters.text import path_reward, trl_rows
from jaxlake.types import ABSENT

ONE = from_text(["a.B", ".#.", "bA."])
OTHER = from_text(["aB.", "...", ".Ab"])
BATCH = stack([ONE, OTHER] * 4)
CONFIG = LakeConfig.uniform((3,), 0.1, 0.5)
KEY = jax.random.key(0)


@functools.cache
def solved():
    """Not when tests are collected, which each process does."""
    return solve(BATCH)


def at(index):
    """Plans of which some are wrong, with their instances and optima, as many as there are indices."""
    lengths = solved().plan.lengths - (np.arange(8) % 3 == 0)[:, None]
    return BATCH[index], solved().plan.replace(lengths=lengths)[index], solved().cost[index]


def same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)
    return [leaf.dtype for leaf in jax.tree.leaves(first)] == [leaf.dtype for leaf in jax.tree.leaves(second)]


@pytest.mark.heavy
@pytest.mark.parametrize("place", [lambda tree: tree, lambda tree: jax.tree.map(jnp.asarray, tree)])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 8])
def test_verdicts_do_not_depend_on_how_many_there_are(count, place):
    instances, plans, optimum = place(at(np.arange(8) % 8))
    whole = verify(instances, plans, optimum)
    assert not whole.valid.all() and whole.valid.any()
    found = verify(instances[:count], plans[:count], optimum[:count])
    assert same(found, jax.tree.map(lambda leaf: leaf[:count], whole)) and isinstance(found.valid, jax.Array)
    assert same(verify(*(jax.tree.map(lambda leaf: leaf[3], part) for part in at(np.arange(8)))), whole[3])


@pytest.mark.heavy
def test_any_batch_axes_are_judged_and_so_are_those_of_vmap():
    whole = verify(*at(np.arange(6)))
    grid = jax.tree.map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), at(np.arange(6)))
    expected = jax.tree.map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), whole)
    assert same(verify(*grid), expected) and same(jax.vmap(verify)(*grid), expected)
    assert same(jax.jit(verify)(*grid), expected)


def test_empty_batches_are_results():
    none = BATCH[:0]
    solved = solve(none)
    assert solved.plan.paths.shape == (0, 2, 65) and len(solved) == 0
    verdict = verify(none, solved.plan, solved.cost)
    assert verdict.checks.shape == (0, 8) and verdict.valid.shape == verdict.costs.makespan.shape == (0,)
    assert first_failure(verdict.checks).shape == (0,)
    for asked in (needs_wait(none, solved), without_waiting(none, solved), waits(solved)):
        assert asked.shape == (0,)
    assert path_reward([], []) == [] and trl_rows(none, solved.cost) == []
    validate(none)


def test_one_instance_is_solved_as_in_a_batch():
    alone = solve(ONE)
    assert same(alone, solved()[0])
    for ask in (needs_wait, without_waiting):
        one, several = ask(ONE, alone), ask(BATCH, solved())
        assert np.ndim(one) == 0 and one == several[0] and one.dtype == several.dtype
    assert waits(alone) == waits(solved())[0] and np.ndim(waits(alone)) == 0
    assert verify(ONE, alone.plan, alone.cost).optimal


FAULTY = stack([ONE, OTHER]).replace(starts=np.array([[0, 6], [1, 1]], np.int32))
TAKERS = {
    "solve": solve,
    "needs_wait": lambda batch: needs_wait(batch, solved()[:2]),
    "without_waiting": lambda batch: without_waiting(batch, solved()[:2]),
    "generate": lambda batch: generate(CONFIG, KEY, 2, exclude=batch),
    "LevelBank.build": LevelBank.build,
    "trl_rows": lambda batch: trl_rows(batch, solved().cost[:2]),
    "Lake.reset": lambda batch: Lake().reset(batch[1]),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_what_cannot_be_played_is_refused_everywhere(taker):
    with pytest.raises(ValueError, match="the start of agent 1 is also that of an agent before it$"):
        TAKERS[taker](FAULTY)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_validation_says_is_what_the_words_of_an_instance_say(data):
    size, agents = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 3))
    holes = data.draw(st.lists(st.sampled_from([False] * 5 + [True]), min_size=9, max_size=9))
    starts, goals = (data.draw(st.lists(st.integers(-1, 9), min_size=2, max_size=2)) for _ in range(2))

    def on_board(cell):
        return 0 <= cell < 9 and cell // 3 < size and cell % 3 < size

    legal = 1 <= size <= 3 and 1 <= agents <= 2
    legal = legal and all(on_board(cell) for cell in range(9) if holes[cell])
    for cells in (starts, goals):
        legal = legal and all(on_board(cell) and not holes[cell] for cell in cells[:agents])
        legal = legal and len(set(cells[:agents])) == agents and set(cells[agents:]) <= {ABSENT}
    level = Instance(
        size=np.int32(size),
        num_agents=np.int32(agents),
        holes=np.array(holes),
        starts=np.array(starts, np.int32),
        goals=np.array(goals, np.int32),
    )
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), ONE, level, ONE)
    for asked in (level, batch):
        try:
            validate(asked)
            assert legal
        except ValueError as fault:
            assert not legal and "\n" not in str(fault) and (asked is level or str(fault).startswith("instance 1: "))


def test_numbers_of_numpy_make_a_config_of_pythons():
    sizes, data = np.array([3, 4]), np.array([0.5, 0.5], np.float32)
    config = LakeConfig(sizes, data, [np.float32(0.25)] * 2, (np.int64(0), 1))
    assert config == LakeConfig((3, 4), (0.5, 0.5), (0.25, 0.25), (0, 1))
    assert {type(value) for field in ("data", "hole", "wait") for value in getattr(config, field)} == {float}
    assert {type(kind.size) for kind in config.kinds} == {int}
    assert LakeConfig.from_dict(config.to_dict()) == config

"""Levels as data: text and back, padding, every fault by name, and what a bank hands out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.board_text import from_text, to_text
from jaxlake.levels import LevelBank, build, distance_fields, pad, stack, validate
from jaxlake.types import ABSENT

BOARDS = ("a.B\n.#.\nb.A", "ab..\n.##.\nBc.A\n...C", "a#.A.\n.#.#.\n...#.\n.....\n.....")


def test_levels_go_through_text_stack_and_pad_unchanged():
    stacked = pad(stack([from_text(board) for board in BOARDS]), 7, 4)
    assert stacked.holes.shape == (3, 49) and stacked.starts.shape == stacked.goals.shape == (3, 4)
    for index, board in enumerate(BOARDS):
        level = jax.tree.map(lambda x, index=index: x[index], stacked)
        assert to_text(level) == board
        expected = from_text(board, max_size=7, max_agents=4)
        assert jax.tree.all(jax.tree.map(np.array_equal, level, expected))


def test_padding_refuses_to_shrink():
    with pytest.raises(ValueError, match="max_size 3 and max_agents 3 must be at least 4 and 3"):
        pad(from_text(BOARDS[1]), 3, 3)


LEVEL = from_text("a.B\n.#.\nb.A", max_size=4, max_agents=3)


def changed(**fields):
    return LEVEL.replace(**{name: np.asarray(value) for name, value in fields.items()})


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (changed(size=0), "the size must be from 1 to 4"),
        (changed(num_agents=0), "num_agents must be from 1 to 3"),
        (changed(holes=np.arange(16) == 7), r"cell \(1,3\) is a hole off the board"),
        (changed(starts=[0, 5, ABSENT]), "the start of agent 1 is a hole"),
        (changed(starts=[0, 3, ABSENT]), "the start of agent 1 is off the board"),
        (changed(goals=[10, 10, ABSENT]), "the goal of agent 1 is also that of an agent before it"),
        (changed(goals=[10, 2, 0]), "agent 2 has a goal and is beyond num_agents"),
    ],
)
def test_a_fault_is_named(level, message):
    with pytest.raises(ValueError, match=message):
        validate(level)


def test_a_bank_hands_out_its_levels_and_their_distances_by_number():
    levels = stack([from_text(board) for board in BOARDS])
    bank = LevelBank.build(levels, with_distances=True)
    assert len(bank) == 3
    for index in range(3):
        instance, table = bank.at(jnp.int32(index))
        assert jax.tree.all(jax.tree.map(lambda x, y, index=index: np.array_equal(x, y[index]), instance, levels))
        assert table.dtype == np.int8 and (table == distance_fields(levels)[index]).all()
    assert LevelBank.build(levels).at(0)[1] is None


def test_a_bank_draws_every_level_equally_often():
    bank = LevelBank.build(stack([from_text(board) for board in BOARDS]))
    sizes = jax.jit(jax.vmap(lambda key: bank.draw(key)[0].size))(jax.random.split(jax.random.key(1), 6000))
    counts = np.bincount(sizes, minlength=6)[3:]
    assert counts.sum() == 6000 and (np.abs(counts - 2000) < 4 * np.sqrt(6000 * 2 / 9)).all()


def test_a_long_way_round_is_counted_whole_in_a_bank_too():
    """A road of 45 rows, of which each other one is passed from end to end."""
    columns = {0: range(45), 1: [44], 2: range(44, -1, -1), 3: [0]}
    road = np.array([45 * row + column for row in range(45) for column in columns[row % 4]])
    board = build(45, ~np.isin(np.arange(45**2), road), road[:1], road[1:2])
    table = LevelBank.build(stack([board]), with_distances=True).distances
    assert table.dtype == np.int16
    assert table[0, 0, road].tolist() == abs(np.arange(len(road)) - 1).tolist()


def test_boards_whose_distances_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="max_size = 182 must be at most 181"):
        distance_fields(build(182, np.zeros(182**2, bool), [0], [1]))

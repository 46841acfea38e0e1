"""Levels as data: text and back, padding, every fault by name, and what a bank hands out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.board_text import from_text, to_text
from jaxlake.levels import LevelBank, build, distance_fields, pad, stack, validate
from jaxlake.types import ABSENT

pytestmark = pytest.mark.usefixtures("quick_compilation")

BOARDS = ("a.B\n.#.\nb.A", "ab..\n.##.\nBc.A\n...C", "a#.A.\n.#.#.\n...#.\n.....\n.....")


def test_levels_go_through_text_stack_and_pad_unchanged():
    stacked = pad(stack([from_text(board) for board in BOARDS]), 7, 4)
    assert stacked.holes.shape == (3, 49) and stacked.starts.shape == stacked.goals.shape == (3, 4)
    for index, board in enumerate(BOARDS):
        level = jax.tree.map(lambda x, index=index: x[index], stacked)
        assert to_text(level) == board
        expected = from_text(board, max_size=7, max_agents=4)
        assert jax.tree.all(jax.tree.map(np.array_equal, level, expected))


def test_padding_refuses_to_shrink_and_stacking_needs_a_level():
    with pytest.raises(ValueError, match="max_size 3 and max_agents 3 must be at least 4 and 3"):
        pad(from_text(BOARDS[1]), 3, 3)
    with pytest.raises(ValueError, match="no instances to stack"):
        stack([])
    batch = stack([from_text(BOARDS[0])])
    with pytest.raises(ValueError, match=r"instance 1 has batch axes \(1,\): it must have none"):
        stack([from_text(BOARDS[0]), batch])


LEVEL = from_text("a.B\n.#.\nb.A", max_size=4, max_agents=3)


def changed(**fields):
    return LEVEL.replace(**{name: np.asarray(value) for name, value in fields.items()})


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (changed(size=0), "size = 0 must be from 1 to 4"),
        (changed(num_agents=0), "num_agents = 0 must be from 1 to 3"),
        (changed(holes=np.zeros(15, bool)), "holes have 15 cells: it must be a square number"),
        (changed(holes=np.arange(16) == 7), r"hole at \(1,3\), off the board of side 3"),
        (changed(goals=[10, 2]), "goals have 2 agent slots and starts 3"),
        (changed(starts=[0, 3, ABSENT]), "start 3 of agent 1 is off the board of side 3"),
        (changed(goals=[10, 2, 0]), "agent 2 has the goal 0, but there are only 2 agents"),
    ],
)
def test_a_fault_is_named(level, message):
    with pytest.raises(ValueError, match=message) as alone:
        validate(level)
    assert "\n" not in str(alone.value)
    if level.holes.shape == LEVEL.holes.shape and level.goals.shape == LEVEL.goals.shape:
        batch = jax.tree.map(lambda *parts: np.stack(parts), LEVEL, level, LEVEL)
        with pytest.raises(ValueError, match=f"instance 1: .*{message}"):
            validate(batch)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"holes": LEVEL.holes.astype(int)}, "holes is int64: it must be bool"),
        ({"starts": LEVEL.starts.astype(float)}, "starts is float64: it must be int32"),
        ({"goals": 3}, r"goals has the shape \(\): it must be \('n',\)"),
        ({"num_agents": [2, 2]}, r"num_agents has the shape \(2,\): it must be \(\)"),
    ],
)
def test_arrays_of_another_kind_or_shape_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        validate(changed(**fields))
    with pytest.raises(ValueError, match=r"batch axes \(1, 1\): they must have one at most"):
        validate(jax.tree.map(lambda part: np.asarray(part)[None, None], LEVEL))


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


def test_a_bank_refuses_faulty_levels_and_wrong_batch_axes():
    with pytest.raises(ValueError, match="instance 0: size = 9"):
        LevelBank.build(jax.tree.map(lambda x: x[None], changed(size=9)))
    with pytest.raises(ValueError, match=r"batch axes \(\): a bank needs one"):
        LevelBank.build(LEVEL)


def test_a_long_way_round_is_counted_whole_in_a_bank_too():
    """A road of 45 rows, of which each other one is passed from end to end."""
    columns = {0: range(45), 1: [44], 2: range(44, -1, -1), 3: [0]}
    road = np.array([45 * row + column for row in range(45) for column in columns[row % 4]])
    board = build(45, ~np.isin(np.arange(45**2), road), road[:1], road[1:2])
    table = LevelBank.build(stack([board]), with_distances=True).distances
    assert table.dtype == np.int16
    assert table[0, 0, road].tolist() == abs(np.arange(len(road)) - 1).tolist()


@pytest.mark.parametrize("axes", [(1, 1), None])
def test_what_has_no_fields_is_named_in_one_line(axes):
    board = build(182, np.zeros(182**2, bool), [0], [1])
    level = board if axes is None else jax.tree.map(lambda part: np.asarray(part)[None, None], LEVEL)
    with pytest.raises(ValueError, match="one batch axis at most and boards up to 181$"):
        distance_fields(level)

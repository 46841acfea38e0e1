"""Records: counted, indexed and walked through by board, pytrees as before, and neither mappings nor arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxlake import AutoReset, Lake, LevelBank, Params, from_text, stack
from jaxlake.record import Record, record
from jaxlake.solve.driver import undecided

ONE = from_text(["a.B", ".#.", "bA."])
OTHER = from_text(["ab", "BA"], max_size=3)
BATCH = stack([ONE, OTHER, ONE, OTHER])


NESTED = undecided(4, 2, 64)
"""With plans in it."""


def same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)
    return jax.tree.structure(first) == jax.tree.structure(second)


def test_a_batch_counts_its_boards_and_a_whole_number_takes_one():
    assert len(BATCH) == len(NESTED) == len(NESTED.plan) == 4 and len(BATCH[:0]) == 0
    assert same(BATCH[1], OTHER) and same(BATCH[-1], OTHER) and same(BATCH[np.int64(2)], ONE)
    assert NESTED[0].plan.paths.shape == (2, 65)


@pytest.mark.parametrize(
    "index", [slice(1, 3), [1, 2], np.array([1, 2]), jnp.array([1, 2]), np.array([False, True, True, False])]
)
def test_slices_and_arrays_take_several(index):
    assert same(BATCH[index], stack([OTHER, ONE]))


def test_a_loop_goes_board_by_board():
    assert all(same(board, (ONE, OTHER)[number % 2]) for number, board in enumerate(BATCH))
    boards, plans = zip(*zip(BATCH, NESTED.plan, strict=True), strict=True)
    assert same(stack(boards), BATCH) and len(plans) == 4


def test_what_is_none_stays_none():
    bank = LevelBank.build(BATCH)
    assert bank[1].distances is None and len(bank[1:]) == 3
    assert LevelBank.build(BATCH, with_distances=True)[1:].distances.shape == (3, 2, 9)


@pytest.mark.parametrize("ask", [len, iter, lambda record: record[0], lambda record: record[:1]])
@pytest.mark.parametrize("record", [lambda: ONE, lambda: NESTED[0], Params, lambda: LevelBank.build(BATCH)[0]])
def test_without_batch_axes_there_is_no_length_and_no_index(record, ask):
    record = record()
    with pytest.raises(TypeError, match=f"^this {type(record).__name__} has no batch axes: it has no length"):
        list(ask(record))


@pytest.mark.parametrize("batch", [BATCH, jax.tree.map(jnp.asarray, BATCH)])
@pytest.mark.parametrize("beyond", [4, -5, [0, 4], np.array([-5])])
def test_an_index_beyond_the_batch_is_no_other_board(batch, beyond):
    with pytest.raises(IndexError, match=r"must be from -4 to 3: the batch has 4$"):
        batch[beyond]


@pytest.mark.parametrize("asked", [np.asarray, lambda record: np.array([record, record]), jnp.asarray])
def test_a_record_is_no_array(asked):
    with pytest.raises(TypeError, match="this Instance is several arrays and not one"):
        asked(BATCH)


def test_records_are_indexed_under_jit_scan_and_vmap():
    one = jax.jit(lambda batch, index: batch[index])(BATCH, jnp.int32(1))
    constant = jax.jit(lambda index: BATCH[index])(jnp.int32(1))
    assert same(one, OTHER) and same(constant, OTHER)
    assert same(jax.jit(lambda batch: batch[1:3])(BATCH), stack([OTHER, ONE]))
    _, starts = jax.lax.scan(lambda carry, board: (carry, board.starts), None, BATCH)
    assert (starts == BATCH.starts).all() and (jax.vmap(lambda board: board.size)(BATCH) == BATCH.size).all()


def test_an_environment_is_exported_serialized_and_called():
    """In a file of ``jax.export`` records are what they are in the program: reset and step with their states."""
    pytest.importorskip("flatbuffers")  # JAX needs it and does not ask for it.
    bank, episodes = LevelBank.build(BATCH), AutoReset(Lake())
    firm, slippery = (Params(slip=slip).as_arrays() for slip in (None, 0.5))
    state, _ = episodes.reset(bank, jax.random.key(0), slippery)
    actions = jnp.array([1, 0], jnp.int32)
    for function, given in (
        (episodes.reset, (bank, jax.random.key(1), firm)),
        (episodes.step, (bank, state, actions, jax.random.key(2))),
    ):
        stored = export.export(jax.jit(function))(*given).serialize()
        assert same(export.deserialize(stored).call(*given), jax.jit(function)(*given))


def test_a_record_may_be_defined_again():
    """As by a notebook's cell or ``importlib.reload``: ``jax.export`` takes a name once."""
    for _ in range(2):

        @record
        class Pair(Record):
            first: jax.Array

        assert jax.tree.map(lambda leaf: leaf + 1, Pair(first=np.int32(1))).first == 2

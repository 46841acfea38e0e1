"""The constraint tree and its parts: boards worked out by hand, and the bounds and bitboards against enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tree_search import search

from jaxlake.board_text import from_text
from jaxlake.solve import bitboard
from jaxlake.solve.bounds import num_pairs, sum_of_gaps
from jaxlake.solve.tree import UNBOUNDED
from jaxlake.types import Objective, Status
from jaxlake.verify import verify

pytestmark = pytest.mark.heavy  # each number of agents and horizon compiles anew

MAX_SIZE, MAX_AGENTS, MAX_STEPS, LANES = 5, 5, 15, 6
CROSSING = """
    #b#
    a.A
    #B#
"""


def find(boards: list[str], bounds: list[int], iterations: int = 400):
    """One program for all tests: always as many lanes."""
    fill = LANES - len(boards)
    instances = [from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS) for board in boards + [CROSSING] * fill]
    batch = jax.tree.map(lambda *parts: np.stack(parts), *instances)
    costs = np.array(bounds + [UNBOUNDED] * fill, np.int32)
    found = search(batch, costs, np.bool_(True), MAX_STEPS, iterations, Objective.SUM_OF_COSTS)
    valid = np.asarray(verify(batch, found.plan, found.cost, Objective.SUM_OF_COSTS).optimal)
    assert valid[found.status == Status.SOLVED].all()
    return jax.tree.map(lambda part: part[: len(boards)], found)


def test_a_cost_bound_below_the_optimum_refutes():
    assert find([CROSSING] * 2, [4, 5]).status.tolist() == [Status.UNSOLVABLE, Status.SOLVED]


def test_a_path_longer_than_the_horizon_is_undecided_and_not_refuted():
    just, beyond = "a....\n####.\n.....\n.####\n...A.", "a....\n####.\n.....\n.####\n....A"
    found = find([just, beyond], [UNBOUNDED] * 2)
    assert found.status.tolist() == [Status.SOLVED, Status.OUT_OF_BUDGET]
    assert found.lower_bound.tolist() == [15, 16]


def test_crowded_boards_reach_the_optimum_that_w9_finds():
    # Both came out one too dear while a path that had taken its parent's place kept the parent's child's narrow flags.
    boards = ["cdEA\n.#.b\n..CB\nea.D", "A.a.c\n..eEb\n###.D\n.#.CB\n..##d"]
    assert find(boards, [UNBOUNDED] * 2).cost.tolist() == [22, 14]


def test_what_a_lane_finds_does_not_depend_on_its_neighbours():
    crowded = "cdEA\n.#.b\n..CB\nea.D"
    alone = find([crowded], [UNBOUNDED])
    together = find(["A.a.c\n..eEb\n###.D\n.#.CB\n..##d", CROSSING, crowded], [UNBOUNDED] * 3)
    jax.tree.map(lambda one, all: np.testing.assert_array_equal(one[0], all[2]), alone, together)


@pytest.mark.parametrize("agents", [2, 3, 4, 5])
def test_the_bound_on_what_is_to_come_is_a_share_of_each_agent_that_pays_for_all_pairs(agents):
    rng, count = np.random.default_rng(agents), 300
    pairs = list(itertools.combinations(range(agents), 2))
    costs = rng.integers(0, 4, (num_pairs(agents), count)) * (rng.random((num_pairs(agents), count)) < 0.5)
    edges = rng.integers(0, 2 ** len(pairs), count)
    edges = np.where(rng.random(count) < 0.5, edges, 0).astype(np.int32)
    bound = sum_of_gaps(jnp.zeros((agents, count), jnp.int32), jnp.asarray(edges), jnp.asarray(costs, jnp.int32))
    gaps = np.maximum(costs, edges >> np.arange(len(pairs))[:, None] & 1)
    shares = np.array(list(itertools.product(range(4), repeat=agents)))
    pays = np.all([shares[:, i, None] + shares[:, j, None] >= gaps[p] for p, (i, j) in enumerate(pairs)], axis=0)
    least = np.min(np.where(pays, shares.sum(axis=1)[:, None], 99), axis=0)
    assert (bound <= least).all()
    assert (bound == least).mean() > 0.8


@pytest.mark.parametrize("size", [3, 5, 8, 10])
def test_a_shift_moves_every_cell_of_a_set_by_one(size):
    board = np.random.default_rng(size).random((size, size, 7)) < 0.4
    everywhere = bitboard.pack(jnp.ones((size, size, 7), bool))
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    for by, (down, right) in zip(bitboard.offsets(size), moves, strict=True):
        moved = np.zeros_like(board)
        for row, column, lane in np.argwhere(board):
            if 0 <= row + down < size and 0 <= column + right < size:
                moved[row + down, column + right, lane] = True
        shifted = bitboard.shifted(bitboard.pack(jnp.asarray(board)), by) & everywhere
        np.testing.assert_array_equal(shifted, bitboard.pack(jnp.asarray(moved)))


@pytest.mark.parametrize("size", [3, 5, 8, 10])
def test_a_set_of_one_cell_is_told_from_others_and_its_first_cell_is_found(size):
    cells = jnp.arange(-1, size * size)
    one = bitboard.one_hot(bitboard.guarded(cells, size), bitboard.num_words(size))
    assert np.asarray(bitboard.is_single(one)).tolist() == [False] + [True] * size**2
    assert np.asarray(bitboard.is_empty(one)).tolist() == [True] + [False] * size**2
    bits, cell = bitboard.lowest(one | jnp.where(cells >= 0, one[:, -1:], 0).astype(jnp.uint32))
    np.testing.assert_array_equal(bits, one)
    np.testing.assert_array_equal(bitboard.unguarded(np.asarray(cell)[1:], size), cells[1:])
    assert not np.asarray(bitboard.is_single(one[:, 1:-1] | one[:, -1:])).any()

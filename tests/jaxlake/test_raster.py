"""Boards as pixels under jit: each cell of a board drawn in text has its colours."""

import jax
import numpy as np
import pytest

from jaxlake.board_text import from_text
from jaxlake.levels import stack
from jaxlake.render import tiles
from jaxlake.types import ABSENT

BOARD = """
    a.B
    .#.
    b.A
"""
FREE, HOLE, OFF_BOARD = (0xEE, 0xF1, 0xF4), (0x39, 0x42, 0x4E), (255, 255, 255)
BLUE, ORANGE = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)


def pixel(image, row, column, right_of_the_middle, tile_size):
    """The colour in a cell, so many tenths of its side right of its middle."""
    place = tile_size // 2 + right_of_the_middle * tile_size // 10
    return tuple(np.asarray(image)[row * tile_size + tile_size // 2, column * tile_size + place].tolist())


@pytest.mark.parametrize("tile_size", [8, 32])
def test_cells_have_the_colours_of_what_is_on_them(tile_size):
    instance = from_text(BOARD, max_size=4, max_agents=3)
    image = tiles(instance, instance.starts, tile_size)
    assert image.shape == (4 * tile_size, 4 * tile_size, 3) and image.dtype == np.uint8
    middle = {(row, column): pixel(image, row, column, 0, tile_size) for row in range(4) for column in range(4)}
    assert middle[0, 0] == BLUE and middle[2, 0] == ORANGE and middle[1, 1] == HOLE
    assert middle[0, 1] == middle[1, 0] == middle[1, 2] == middle[2, 1] == FREE
    assert middle[0, 2] == middle[2, 2] == FREE  # Goals are rings.
    assert {middle[row, column] for row, column in middle if 3 in (row, column)} == {OFF_BOARD}
    assert pixel(image, 0, 2, 3, tile_size) == ORANGE and pixel(image, 2, 2, 3, tile_size) == BLUE


def test_an_agent_on_a_goal_leaves_the_ring_visible_and_the_larger_number_is_in_front():
    instance = from_text(BOARD)
    image = tiles(instance, np.array([2, 2]), 32)
    assert pixel(image, 0, 2, 0, 32) == ORANGE and pixel(image, 0, 2, 3, 32) == ORANGE
    image = tiles(instance, np.array([2, ABSENT]), 32)
    assert pixel(image, 0, 2, 0, 32) == BLUE and pixel(image, 0, 2, 3, 32) == ORANGE
    assert pixel(image, 2, 0, 0, 32) == FREE


def test_a_batch_of_boards_is_drawn_by_one_program():
    batch = stack([from_text(BOARD), from_text("a...\n....\n....\n...A")])
    images = jax.jit(jax.vmap(tiles, (0, 0, None)), static_argnums=2)(batch, batch.starts, 8)
    for index in range(2):
        one = jax.tree.map(lambda leaf, at=index: leaf[at], batch)
        np.testing.assert_array_equal(images[index], tiles(one, one.starts, 8))

"""Boards, plans and rollouts as SVG and as pixels."""

import io

import jax
import numpy as np
import pytest
from PIL import Image

from jaxlake.board_text import from_text
from jaxlake.render import animate, html, png, rgb, svg
from jaxlake.render.scene import alarms, walks
from jaxlake.text import parse
from jaxlake.types import ABSENT, OUTSIDE

BOARD = """
    a.B.
    .#..
    b..#
    ...A
"""
ANSWER = "0:(0,0)(0,1)(0,2)(1,2)(1,2)(2,2)(3,2)(3,3)\n1:(2,0)(1,0)(1,0)(0,0)(0,1)(0,2)"
LIMITS = {"max_size": 6, "max_agents": 3}

HOLE = (0x39, 0x42, 0x4E)
BLUE, ORANGE = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)


def board():
    return from_text(BOARD, **LIMITS)


def plan():
    return parse(ANSWER, max_steps=9, **LIMITS)


# Agent 0 walks into the hole at step 2; the agents share a cell at step 4 and swap cells after step 5.
CLASHES = np.array([[0, 12, -1], [1, 12, -1], [7, 12, -1], [8, 13, -1], [14, 14, -1], [13, 14, -1], [14, 13, -1]])


PICTURES = {
    "agents-at-positions": lambda: svg(board(), positions=[7, ABSENT, ABSENT]),
    "paths-and-their-waits": lambda: svg(board(), plan()),
    "a-plan-that-is-walked": lambda: animate(board(), plan()),
    "collisions-and-a-fall": lambda: animate(board(), CLASHES),
    "off-the-board-and-back": lambda: animate(board(), parse("0:(0,0)(-1,0)(-1,1)(0,1)", max_steps=9, **LIMITS)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_the_golden_ones(name, golden):
    golden(f"{name.replace(' ', '-')}.svg", PICTURES[name]())


def test_agents_that_follow_one_another_or_rotate_do_not_flash():
    square = from_text("ab\nBA")
    for rows in ([[0, 1], [1, 3], [3, 2]], [[0, 3], [1, 2], [3, 0]]):
        assert not alarms(square, np.array(rows))


def test_an_agent_without_a_path_stays_on_its_start():
    assert walks(board(), parse("1:(2,0)(3,0)", max_steps=9, **LIMITS)).tolist() == [[0, 12], [0, 18]]
    assert walks(board(), parse("nothing", max_steps=9, **LIMITS)).tolist() == [[0, 12]]
    assert walks(board(), parse("0:(0,0)(9,9)\n1:(2,0)", max_steps=9, **LIMITS)).tolist() == [[0, 12], [OUTSIDE, 12]]


def test_pixels_show_what_is_in_each_cell():
    picture = rgb(board())
    assert picture.dtype == np.uint8 and picture.shape == (196, 196, 3)

    def colour(row: float, column: float) -> tuple[int, ...]:
        return tuple(int(x) for x in picture[round((row + 0.54) * 48), round((column + 0.54) * 48)])

    assert colour(1, 1) == colour(2, 3) == HOLE
    assert colour(0 + 0.17, 0) == colour(3 + 0.31, 3) == BLUE
    assert colour(2 + 0.17, 0) == colour(0 + 0.31, 2) == ORANGE
    assert colour(3, 0) == (0xEE, 0xF1, 0xF4)


def test_a_file_holds_the_same_picture():
    with Image.open(io.BytesIO(png(board(), plan()))) as image:
        assert np.array_equal(np.asarray(image.convert("RGB")), rgb(board(), plan()))


def test_a_notebook_shows_an_instance_and_the_first_of_a_batch():
    assert board()._repr_html_() == svg(board())
    batch = jax.tree.map(lambda leaf: np.stack([leaf] * 15).reshape(3, 5, *leaf.shape), board())
    assert batch._repr_html_().count("<svg") == 12 and "and 3 more" in html(batch)

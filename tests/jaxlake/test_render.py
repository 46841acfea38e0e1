"""Boards drawn in text and on axes."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxlake.board_text import from_text, to_text
from jaxlake.render import draw
from jaxlake.text import parse
from jaxlake.types import ABSENT, Instance

BOARD = """
    a.B.
    .#..
    b..#
    ...A
"""
ANSWER = "0:(0,0)(0,1)(0,2)(1,2)(1,2)(2,2)(3,2)(3,3)\n1:(2,0)(1,0)(1,0)(0,0)(0,1)(0,2)"


def test_a_board_is_read_into_padded_arrays():
    instance = from_text(BOARD, max_size=6, max_agents=3)
    assert (instance.size, instance.num_agents, instance.max_size, instance.max_agents) == (4, 2, 6, 3)
    assert np.flatnonzero(instance.holes).tolist() == [1 * 6 + 1, 2 * 6 + 3]
    assert instance.starts.tolist() == [0, 2 * 6, ABSENT]
    assert instance.goals.tolist() == [3 * 6 + 3, 2, ABSENT]


APART = """
    a.#  A.#
    bc.  B.C
    ...  ...
"""


def test_a_start_that_is_a_goal_puts_starts_and_goals_on_two_boards():
    instance = from_text(APART, max_size=5, max_agents=4)
    assert instance.starts.tolist() == [0, 5, 6, ABSENT] and instance.goals.tolist() == [0, 5, 7, ABSENT]
    assert np.flatnonzero(instance.holes).tolist() == [2]
    assert to_text(instance) == "a.# A.#\nbc. B.C\n... ..."
    plan = parse("2:(1,1)(2,1)(2,2)(1,2)", max_size=5, max_agents=4, max_steps=3)
    assert to_text(instance, plan) == "a.# A.#\nbc. BvC\n.>^ .>^"


def test_more_agents_than_letters_are_refused():
    cells = np.arange(27, dtype=np.int32)
    crowd = Instance(
        size=np.int32(6), num_agents=np.int32(27), holes=np.zeros(36, bool), starts=cells, goals=cells[::-1]
    )
    with pytest.raises(ValueError, match="27 agents: a drawing has letters for 26"):
        to_text(crowd)


def test_a_plan_that_leaves_the_board_is_drawn_as_far_as_it_is_on_it():
    plan = parse("0:(0,0)(0,1)(0,2)(0,3)(-1,3)(0,0)", max_size=5, max_agents=1, max_steps=9)
    assert to_text(from_text(["a..", "...", "..A"], max_size=5), plan) == "a>>\n...\n..A"


@pytest.mark.parametrize(
    ("board", "message"),
    [
        ("a.\nA", "must be square"),
        ("ab\nA.", "every agent from a on needs its start and its goal"),
        ("aa\nA.", r"'a' at \(0,1\) of board 1 must be '.', '#' or one of a to Z, each once"),
        ("a?\nA.", r"'\?' at \(0,1\)"),
        ("a..\n.A.\n...", "max_size 2 and max_agents 1 must be at least 3 and 1"),
        ("ab\nAB", "max_size 2 and max_agents 1 must be at least 2 and 2"),
        ("a. A.\n.. .. ..", "must be square, once or twice"),
        ("a. A.\n.# ..", "the two boards have different holes"),
        ("a. a.\n.. ..", r"'a' at \(0,0\) of board 2 must be '.', '#' or one of A to Z"),
    ],
)
def test_a_faulty_board_is_refused_with_the_fault_named(board, message):
    with pytest.raises(ValueError, match=message):
        from_text(board, max_size=2, max_agents=1)


def test_a_drawing_shows_holes_and_stays_within_the_board():
    axes = Figure().add_subplot()
    instance = from_text(BOARD, max_size=6, max_agents=3)
    draw(instance, parse(ANSWER, max_size=6, max_agents=3, max_steps=9), axes)
    dark = [patch for patch in axes.patches if sum(patch.get_facecolor()[:3]) < 1]
    centres = sorted(tuple(np.round(patch.get_xy()[:4].mean(axis=0)).astype(int).tolist()) for patch in dark)
    assert centres == [(1, 1), (3, 2)]  # Columns are x, rows are y.
    for line in axes.lines:
        assert np.min(line.get_xydata()) > -0.5 and np.max(line.get_xydata()) < 3.5
    assert sorted(text.get_text() for text in axes.texts if text.get_text()) == ["+1", "+1", "0", "0", "1", "1"]


def test_paths_on_the_same_cells_are_drawn_side_by_side():
    axes = Figure().add_subplot()
    instance = from_text("a..\nbAB\n...")
    draw(instance, parse("0:(0,0)(0,1)(1,1)\n1:(1,0)(0,0)(0,1)(1,1)(1,2)", max_size=3, max_agents=2, max_steps=9), axes)
    first, second = (line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 2)
    assert np.min(np.linalg.norm(first[:, None] - second, axis=-1)) > 0.05

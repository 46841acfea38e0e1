"""The terminal player: keys move agents by the rules, the screen fits, and the command line says what is wrong."""

import io
import os
import re
import sys

import numpy as np
import pytest

from jaxlake import from_text, play
from jaxlake.play import Board, Game
from jaxlake.text import parse
from jaxlake.types import Solution, Status

ROUND = """
a.B
.#.
b.A
"""
ROUND_PLAN = "0:(0,0)(0,1)(0,2)(1,2)(2,2)\n1:(2,0)(1,0)(0,0)(0,1)(0,2)"
SIDE_BY_SIDE = """
ab..
..BA
....
....
"""


def board(rows, plan="", cost=-1, max_size=5, max_agents=3):
    """A board with an answer as its optimal plan, or without any; padded alike, so that one program plays them."""
    instance = from_text(rows, max_size=max_size, max_agents=max_agents)
    found = parse(plan, max_size=instance.max_size, max_agents=instance.max_agents, max_steps=8)
    status = Status.SOLVED if plan else Status.OUT_OF_BUDGET
    numbers = {"status": status, "cost": cost, "lower_bound": cost, "expansions": 0}
    return Board(
        "a title", instance, Solution(plan=found, **{name: np.int32(number) for name, number in numbers.items()})
    )


def press(game, *keys):
    for key in keys:
        game.press(key)


def at(game):
    """(row, column) of each agent."""
    instance = game.board.instance
    return [divmod(int(cell), instance.max_size) for cell in game.state.positions[: int(instance.num_agents)]]


def message(game):
    """The line above the two lines of keys."""
    return game.lines(colour=False)[-3]


def test_queued_moves_are_made_together_and_nobody_else_moves():
    game = Game(board(ROUND))
    press(game, "right", "up")
    assert at(game) == [(0, 0), (2, 0)]
    press(game, "space")
    assert at(game) == [(0, 1), (1, 0)]
    press(game, "1", "up", "enter")
    assert at(game) == [(0, 1), (0, 0)]


@pytest.mark.parametrize(
    "keys", [("up", "k", "w"), ("down", "j", "s"), ("left", "h", "a"), ("right", "l", "d"), (".",)]
)
def test_arrows_and_letters_move_alike(keys):
    expected = {"up": (0, 1), "down": (2, 1), "left": (1, 0), "right": (1, 2), ".": (1, 1)}[keys[0]]
    game = Game(board("...\n.a.\n..A"))
    for key in keys:
        press(game, key, "space")
        assert at(game) == [expected]
        press(game, "u")
    assert at(game) == [(1, 1)]


def test_one_at_a_time_moves_at_once():
    game = Game(board(ROUND))
    press(game, "m", "right", "right", "tab", "up")
    assert at(game) == [(0, 2), (1, 0)]
    assert "one at a time: on" in game.lines(colour=False)[-1]


def test_undo_takes_back_queued_moves_then_steps():
    game = Game(board(ROUND))
    press(game, "right", "up", "space", "right", "u")
    assert at(game) == [(0, 1), (1, 0)]
    press(game, "u")
    assert at(game) == [(0, 0), (2, 0)]
    press(game, "u")
    assert message(game) == "There is nothing to undo."


def test_restart_begins_again():
    game = Game(board(ROUND))
    press(game, "right", "up", "space", "right", "r")
    assert at(game) == [(0, 0), (2, 0)]
    assert "time 0   sum of costs 0   makespan 0" in "\n".join(game.lines(colour=False))


def test_a_move_into_a_hole_is_refused_and_another_can_be_chosen():
    game = Game(board("a#\n.A"))
    press(game, "right")
    assert message(game) == "Agent 0 cannot go right: a hole or the edge is there."
    press(game, "down", "space")
    assert at(game) == [(1, 0)]


def test_a_conflict_is_told_and_counted():
    game = Game(board(SIDE_BY_SIDE))
    press(game, "right", "left", "space")
    assert at(game) == [(0, 0), (0, 1)]
    assert message(game) == "In each other's way: agents 0, 1 stayed where they were."
    assert "conflicts blocked 1" in "\n".join(game.lines(colour=False))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ([], "Solved with sum of costs 8, which is the optimum!"),
        (["space"], "Solved with sum of costs 10, 2 more than the optimum of 8."),
    ],
)
def test_the_end_compares_with_the_optimum(first, said):
    game = Game(board(ROUND, ROUND_PLAN, cost=8))
    press(game, *first, "d", "w", "space", "d", "w", "space", "s", "d", "space", "s", "d", "space")
    assert message(game) == said
    press(game, "d")
    assert message(game) == said
    press(game, "u")
    assert at(game) == [(1, 2), (0, 1)]


def test_an_unknown_optimum_is_said_to_be_unknown():
    game = Game(board("aA\n.."))
    press(game, "o")
    assert "  optimum not known" in "\n".join(game.lines(colour=False))
    press(game, "right", "space")
    assert message(game) == "Solved with sum of costs 1, and the optimum is not known."


def test_the_optimum_is_shown_as_moves_that_solve_the_board():
    game = Game(board(ROUND, ROUND_PLAN, cost=8))
    press(game, "o")
    screen = "\n".join(game.lines(colour=False))
    assert "optimum 8" in screen
    rows = re.findall(r"  [01] ([<>^v.]+)$", screen, re.MULTILINE)
    assert rows == [">>vv", "^^>>"]
    for step in zip(*rows, strict=True):
        press(game, *({"<": "left", ">": "right", "^": "up", "v": "down", ".": "wait"}[move] for move in step), "enter")
    assert "which is the optimum!" in message(game)


def test_the_screen_shows_the_board_as_it_is():
    game = Game(board(ROUND))
    press(game, "right", "up", "space", "right", "right", "space", "1")
    expected = """\
a title

     0  1  2     agent  at     goal     next   cost
  0  .  .  0B    0      (0,2)  A (2,2)            2
  1 >1  #  .   > 1      (1,0)  B (0,2)            2
  2  .  .  A
                 time 2   sum of costs 4   makespan 2
                 conflicts blocked 0"""
    assert "\n".join(game.lines(colour=False)[:8]) == expected


def test_the_largest_board_fits_a_plain_terminal():
    rows = [f"{start}{'.' * 8}{start.upper()}" for start in "abcde"] + ["." * 10] * 5
    walks = [f"{agent}:" + "".join(f"({agent},{column})" for column in range(8)) for agent in range(5)]
    game = Game(board("\n".join(rows), "\n".join(walks), cost=45, max_size=10, max_agents=5))
    press(game, "o", "up")
    lines = game.lines(colour=False)
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    coloured = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in game.lines(colour=True)]
    assert coloured == lines and game.lines(colour=True) != lines


class Closed(io.StringIO):
    """An output whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError

    def fileno(self):
        return os.open(os.devnull, os.O_WRONLY)


@pytest.mark.heavy
def test_a_reader_that_leaves_ends_the_game_without_a_traceback(tmp_path, monkeypatch):
    (tmp_path / "boards.txt").write_text(f"aA\nbB\n\n{ROUND}")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    monkeypatch.setattr(sys, "stdout", Closed())
    assert play.main([str(tmp_path / "boards.txt")]) == 1


def command(monkeypatch, capsys, typed, *arguments):
    """Exit status, output and errors of the command with lines of keys instead of a terminal."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    try:
        status = play.main(arguments)
    except SystemExit as error:
        status = error.code
    return status, *capsys.readouterr()


@pytest.mark.heavy
def test_a_board_from_a_file_is_played_through_a_pipe(tmp_path, monkeypatch, capsys):
    path = tmp_path / "boards.txt"
    path.write_text(f"aA\nbB\n\n{ROUND}")
    typed = "right up\n\ndw space sd space sd\n\nn right right\n\nq\nnever read"
    status, screens, errors = command(monkeypatch, capsys, typed, str(path), "--level", "1")
    assert (status, errors) == (0, "")
    assert "Solved with sum of costs 8, which is the optimum!" in screens
    assert "Solved with sum of costs 2, which is the optimum!" in screens
    assert "boards.txt, board 0" in screens and "\x1b" not in screens


@pytest.mark.heavy
def test_a_board_of_a_family_is_drawn_and_played_through_a_pipe(monkeypatch, capsys):
    status, screens, errors = command(monkeypatch, capsys, "space\nn\n", "--kind", "corridor5x1", "--seed", "3")
    assert (status, errors) == (0, "")
    titles = [line for line in screens.splitlines() if "seed" in line]
    assert titles == [f"corridor 5x5, 1 agents, seed {seed}" for seed in (3, 3, 4)]
    assert screens.count("time 1 ") == 1


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--kind", "2"], "size of random boards = 2 must be a whole number from 3 to 10"),
        (["--kind", "3x5"], "num_agents on random boards of size 3 = 5 must be a whole number from 1 to 4"),
        (["--kind", "corridor4"], "size of corridor boards = 4 must be a whole number from 5 to 10"),
        (["--kind", "alley8"], "family = 'alley' must be one of 'random', 'rooms', 'maze', "),
        (["--kind", "6-8"], "kind = '6-8' must be a single one"),
        (["--holes", "0.7"], "= 0.7 must be from 0 to 0.5"),
        (["--seed", "-1"], "--seed = -1 must be a whole number from 0 to 4294967295"),
        (["--seed", "4294967296"], "--seed = 4294967296 must be a whole number from 0 to 4294967295"),
        (["board.txt", "--kind", "6"], "--kind = 6 must be left out with a file"),
        (["--level", "1"], "--level = 1 needs a file"),
        (["missing.txt"], "missing.txt"),
        (["board.txt", "--level", "1"], "--level = 1 must be from 0 to 0, the boards of board.txt"),
        (["large.txt"], "large.txt, line 1: size 11"),
        (["board.png"], "board.png must end in .jsonl or .txt"),
    ],
)
def test_a_mistake_on_the_command_line_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "board.txt").write_text("aA\n..")
    (tmp_path / "large.txt").write_text("\n".join(["aA" + "." * 9] + ["." * 11] * 10))
    status, screens, errors = command(monkeypatch, capsys, "", *arguments)
    assert status == 2 and not screens
    assert errors.startswith("python -m jaxlake.play: error: ") and fault in errors and errors.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="keys are read one by one on POSIX systems alone")
def test_a_terminal_gives_keys_one_by_one_and_is_left_as_it_was():
    import termios

    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    with play._unbuffered(theirs):
        assert termios.tcgetattr(theirs) != before
        os.write(ours, b"\x1b[A\x1bOB d\t1\n\x1b")
        assert next(play._typed(theirs)) == ["up", "down", "space", "d", "tab", "1", "enter"]
    assert termios.tcgetattr(theirs) == before

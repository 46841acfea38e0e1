"""Boards played turn by turn, without a server: what is asked, the rules, and what the solver's moves are worth."""

import asyncio

import numpy as np
import pytest
from jaxlake_mapf.taskset import MapfConfig, MapfTaskset
from jaxlake_mapf.turns import Game
from test_taskset import scored

from jaxlake import from_text, solve, view
from jaxlake.adapters.text import tasks
from jaxlake.levels import stack

BOARD = """
    a.A
    .#.
    bB.
"""


def game(text: str, steps: int) -> Game:
    """A game on a drawn board."""
    boards = stack([from_text(text)])
    ((_, level),) = tasks(boards, np.asarray(solve(boards).cost))
    return Game(level, steps)


def played(game: Game, replies: str) -> dict[str, float]:
    """The outcome of a reply for each agent and step, by words."""
    for reply in replies.split():
        assert not game.over
        game.play(reply)
    return game.outcome()


def test_each_agent_is_asked_in_words_and_all_move_when_all_have_answered():
    playing = game(BOARD, 9)
    first, second = (
        "goal in this row, 2 right. up: blocked, then blocked. down: free, then an agent, contested. left: blocked,"
        " then blocked. right: free, then free. 9 to 16 steps left.",
        "goal in this row, 1 right. up: free, then an agent, contested. down: blocked, then blocked. left: blocked,"
        " then blocked. right: free, then free. 9 to 16 steps left.",
    )
    assert playing.message == "Agent 1 of 2: " + first
    playing.play("**Right**, I think: right.")
    assert playing.message == "Agent 2 of 2: " + second  # as before the first one's move
    playing.play("RIGHT")
    assert playing.message.startswith("Agent 1 of 2: goal in this row, 1 right. up: blocked, then blocked. down: b")
    assert playing.message.endswith(" 1 to 8 steps left.")
    assert played(playing, "right wait") == {"solved": 1, "arrived": 1, "steps": 2, "unreadable": 0} and playing.over


@pytest.mark.parametrize(
    ("replies", "steps", "outcome"),
    [
        ("wait wait " * 3, 3, (0, 0, 3, 0)),  # no more steps
        ("right wait down wait", 9, (0, 0, 2, 0)),  # a hole: one falls in and nobody is asked again
        ("down up", 9, (0, 0, 1, 0)),  # a meeting: nobody moves
        ("up right right wait right wait", 9, (1, 1, 3, 1)),  # off the board: waits
        ("left-ish right right wait right wait", 9, (1, 1, 3, 1)),  # no word: waits
    ],
)
def test_rules_are_those_of_the_player(replies, steps, outcome):
    found = played(playing := game(BOARD, steps), replies)
    assert playing.over and tuple(found.values()) == outcome


@pytest.mark.parametrize("boards", ["validation", "families", "3-4,rooms5"])
def test_the_solvers_moves_win_and_nonsense_waits_to_the_end(boards):
    for task in MapfTaskset(MapfConfig(boards=boards, turns=40)).take(24):
        assert task.data.prompt.startswith(view.INSTRUCTIONS + "Agent 1 of ")
        assert asyncio.run(task.validate(None))
        words = task.data.answer.split()
        agents = int(task.data.prompt.partition("Agent 1 of ")[2].partition(":")[0])
        won, lost = scored(task, *words), scored(task, *["I do not know."] * agents * 40)
        assert won.reward == won.metrics["solved"] == won.metrics["arrived"] == 1
        assert (won.metrics["steps"], won.metrics["unreadable"]) == (len(words) / agents, 0)
        assert lost.reward == lost.metrics["solved"] == 0
        assert (lost.metrics["steps"], lost.metrics["unreadable"]) == (40, 40 * agents)
        assert scored(task, *words[:-1]).reward == scored(task).reward == 0  # cut off by a limit

"""The reward by hand: every kind on answers that break the checks one by one, the paper's formula and its weights."""

import jax
import numpy as np
import pytest

from jaxlake.board_text import from_text
from jaxlake.text import parse
from jaxlake.types import Check, Verdict
from jaxlake.verify import verify
from rl.config import RewardSection
from rl.config.choices import RewardKind
from rl.learn.reward import length_penalty, rewards, weight_accuracy

BOARD = from_text("""
    a..A
    .#..
    b..B
    ....
""")
LADDER = {  # each answer breaks the check it is named for, and none before it
    "PARSABLE": "I do not know",
    "AGENT_COUNT": "0:(0,0)(0,1)(0,2)(0,3)",
    "START_CORRECT": "0:(0,1)(0,2)(0,3)\n1:(2,0)(2,1)(2,2)(2,3)",
    "IN_BOUNDS": "0:(0,0)(0,1)(0,2)(0,3)\n1:(2,0)(2,-1)(2,0)(2,1)(2,2)(2,3)",
    "HOLE_FREE": "0:(0,0)(0,1)(1,1)(1,2)(0,2)(0,3)\n1:(2,0)(2,1)(2,2)(2,3)",
    "LEGAL_MOVE": "0:(0,0)(0,2)(0,3)\n1:(2,0)(2,1)(2,2)(2,3)",
    "CONFLICT_FREE": "0:(0,0)(0,0)(0,0)(0,1)(0,2)(0,3)\n1:(2,0)(1,0)(0,0)(1,0)(2,0)(2,1)(2,2)(2,3)",
    "GOAL_REACHED": "0:(0,0)\n1:(2,0)",
    "optimality": "0:(0,0)(0,0)(0,1)(0,2)(0,3)\n1:(2,0)(2,1)(2,2)(2,3)",
    "nothing": "0:(0,0)(0,1)(0,2)(0,3)\n1:(2,0)(2,1)(2,2)(2,3)",
}


def judge(*answers: str) -> Verdict:
    """Verdicts ``[answers]`` on the board."""
    room = {"max_size": BOARD.max_size, "max_agents": BOARD.max_agents, "max_steps": 12}
    found = [verify(BOARD, parse(answer, **room), np.int32(6)) for answer in answers]
    return jax.tree.map(lambda *x: np.stack(x), *found)


def reward(kind: RewardKind, verdict: Verdict, tokens: int, short_share: float = 0.0):
    settings = RewardSection(kind=kind, free_tokens=20, limit_tokens=40)
    count = len(verdict.valid)
    return rewards(settings, verdict, np.full(count, 6), np.full(count, tokens), short_share)


@pytest.fixture(scope="module")
def ladder() -> Verdict:
    return judge(*LADDER.values())


def test_the_answers_break_what_they_are_named_for(ladder):
    first = [np.flatnonzero(~checks)[:1].tolist() for checks in ladder.checks]
    assert first == [*([check] for check in Check), [], []]
    assert ladder.optimal.tolist() == [False] * 9 + [True]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # A ninth for each step up to the first that fails; a plain share of checks would pay unreadable text 6/8.
        ("checks", np.arange(10) / 9),
        ("valid", [0] * 8 + [1, 1]),
        ("optimal", [0] * 9 + [1]),
        ("accuracy", [0] * 8 + [1 - 0.7 * 1 / 12, 1]),  # one step more than 6, of 12 allowed
    ],
)
def test_kinds_that_see_no_length(ladder, kind, expected):
    found = reward(kind, ladder, tokens=100)
    assert found.total == pytest.approx(np.array(expected))
    assert found.weight_accuracy == 1 and not found.length.any()


def test_the_papers_reward_adds_a_penalty_on_length_by_moving_weights(ladder):
    found = reward("paper", ladder, tokens=35, short_share=0.7)
    assert found.weight_accuracy == pytest.approx(0.65)
    assert found.length == pytest.approx(np.full(10, -0.75))
    expected = [-0.35 * 0.75] * 8 + [0.65 * (1 - 0.7 / 12) - 0.35 * 0.75, 0.65 - 0.35 * 0.75]
    assert found.total == pytest.approx(expected)
    assert found.total.dtype == found.accuracy.dtype == found.length.dtype == np.float32


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0.0), (1500, 0.0), (2798, -0.5), (4096, -1.0), (9000, -1.0)])
def test_length_penalty_at_the_papers_lengths(tokens, expected):
    assert length_penalty(np.array([tokens]), 1500, 4096)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("short_share", "expected"), [(0.0, 0.5), (0.49, 0.5), (0.5, 0.5), (0.7, 0.65), (0.9, 0.8), (1.0, 0.8)]
)
def test_the_weight_of_accuracy_follows_the_share_of_short_answers(short_share, expected):
    assert weight_accuracy(short_share) == pytest.approx(expected)

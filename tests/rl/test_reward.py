"""The reward by hand, on answers that break the checks one by one; and a step's metrics, counted one by one."""

import math
from collections.abc import Iterable

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlake.board_text import from_text
from jaxlake.kinds import Kind
from jaxlake.text import parse
from jaxlake.types import ABSENT, Check, Costs, Verdict
from jaxlake.verify import verify
from rl.config import RewardSection
from rl.config.choices import RewardKind
from rl.learn.metrics import describe
from rl.learn.reward import Rewards, length_penalty, rewards, weight_accuracy

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
    section = RewardSection(kind=kind, free_tokens=20, limit_tokens=40)
    count = len(verdict.valid)
    return rewards(section, verdict, np.full(count, 6), np.full(count, tokens), short_share)


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


FAILURES = [f"failure/{check.name.lower()}" for check in Check]


def verdict_of(failed: list[set[Check]], optimal: list[bool]) -> Verdict:
    """Verdicts on answers that fail these checks."""
    checks = np.array([[check not in names for check in Check] for names in failed])
    cost = np.where(checks.all(axis=1), 9, ABSENT).astype(np.int32)
    costs = Costs(sum_of_costs=cost, sum_of_loss=cost, makespan=cost)
    return Verdict(checks=checks, valid=checks.all(axis=1), cost=cost, costs=costs, optimal=np.array(optimal))


def kinds_of(names: Iterable[int | str]) -> np.ndarray:
    return np.array([Kind.of(name) for name in names], object)


def rewards_of(count: int) -> Rewards:
    accuracy = np.linspace(0, 1, count, dtype=np.float32)
    length = np.linspace(-1, 0, count, dtype=np.float32)
    return Rewards(accuracy, length, 0.8)


KINDS = {3: "size_3", 4: "size_4", "4x3": "kind_4x3", "rooms5": "kind_rooms5"}
"""Kinds of boards, and what the metrics call them."""

answers = st.lists(
    st.tuples(
        st.sampled_from([*KINDS]),
        st.sets(st.sampled_from(Check)),  # what fails
        st.booleans(),  # optimal, if valid
        st.integers(0, 40),  # tokens
        st.booleans(),  # truncated
        st.integers(0, 4),  # group
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=200)
@given(answers)
def test_any_answers_are_counted_as_one_by_one(rows):
    kinds, failed, wish, tokens, truncated, groups = zip(*rows, strict=True)
    optimal = [best and not names for best, names in zip(wish, failed, strict=True)]
    found = describe(
        kinds_of(kinds),
        verdict_of(failed, optimal),
        rewards_of(len(rows)),
        np.array(tokens),
        np.array(truncated),
        np.array(groups),
        kinds_of(KINDS),
    )
    expected = {}
    for kind, name in KINDS.items():
        valid, best = (
            [not x for k, x in zip(kinds, failed, strict=True) if k == kind],
            [o for k, o in zip(kinds, optimal, strict=True) if k == kind],
        )
        expected[f"valid/{name}"] = sum(valid) / len(valid) if valid else math.nan
        expected[f"optimal/{name}"] = sum(best) / len(best) if best else math.nan
    for check in Check:
        expected[f"failure/{check.name.lower()}"] = sum(min(f, default=None) == check for f in failed) / len(rows)
    shares = []
    for group in set(groups):
        here = [not names for g, names in zip(groups, failed, strict=True) if g == group]
        shares.append(sum(here) / len(here))
    expected["all_valid_groups"] = sum(share == 1 for share in shares) / len(shares)
    expected["all_invalid_groups"] = sum(share == 0 for share in shares) / len(shares)
    expected["learnable"] = sum(0.2 <= share <= 0.8 for share in shares) / len(shares)
    ended = [length for length, cut in zip(tokens, truncated, strict=True) if not cut]
    expected["answer_tokens_ended"] = sum(ended) / len(ended) if ended else math.nan
    good = sum(not names for names in failed)
    expected |= {"answer_tokens": np.mean(tokens), "answer_tokens_max": max(tokens), "truncated": np.mean(truncated)}
    expected["optimal_given_valid"] = sum(optimal) / good if good else math.nan
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    assert found["valid"] + sum(found[name] for name in FAILURES) == pytest.approx(1)

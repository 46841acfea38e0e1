"""The metrics of a step: worked by hand on eight answers, counted one by one on any, and quick enough to be logged."""

import math
import time
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlake.kinds import Kind
from jaxlake.types import ABSENT, Check, Costs, Verdict
from rl.metrics import describe
from rl.reward import Rewards

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
    return Rewards(0.8 * accuracy + 0.2 * length, accuracy, length, 0.8, 0.2)


@pytest.fixture
def step() -> dict[str, float]:
    """Two prompts on boards of 3 and one on a board of 5, with four, two and two answers."""
    return describe(
        kinds=kinds_of([3, 3, 3, 3, 5, 5, 3, 3]),
        verdict=verdict_of(
            [
                set(),
                {Check.HOLE_FREE},
                {Check.HOLE_FREE, Check.CONFLICT_FREE},
                {Check.CONFLICT_FREE, Check.GOAL_REACHED},
                {Check.PARSABLE},
                {Check.HOLE_FREE},
                set(),
                set(),
            ],
            optimal=[True, False, False, False, False, False, False, True],
        ),
        rewards=rewards_of(8),
        tokens=np.array([10, 20, 30, 40, 40, 12, 8, 16], np.int32),
        truncated=np.array([False, False, False, True, True, False, False, False]),
        groups=np.array([7, 7, 7, 7, 2, 2, 9, 9]),
        lake_kinds=kinds_of([3, 4, 5]),
    )


def test_each_failing_answer_counts_for_its_first_failing_check_alone(step):
    shares = {"failure/parsable": 1 / 8, "failure/hole_free": 3 / 8, "failure/conflict_free": 1 / 8}
    assert {name: step[name] for name in FAILURES} == {name: shares.get(name, 0) for name in FAILURES}


def test_valid_and_optimal_shares_over_all_and_per_size(step):
    assert (step["valid"], step["optimal"], step["optimal_given_valid"]) == (3 / 8, 2 / 8, 2 / 3)
    assert (step["valid/size_3"], step["optimal/size_3"]) == (3 / 6, 2 / 6)
    assert (step["valid/size_5"], step["optimal/size_5"]) == (0, 0)


def test_a_size_without_a_board_in_the_step_is_not_a_number_and_its_metric_is_still_there(step):
    assert math.isnan(step["valid/size_4"])
    assert math.isnan(step["optimal/size_4"])


def test_kinds_of_one_size_have_metrics_of_their_own():
    found = describe(
        kinds_of(["4x3", 4, "rooms5", 4]),
        verdict_of([set(), set(), set(), {Check.HOLE_FREE}], [True, False, False, False]),
        rewards_of(4),
        np.ones(4, int),
        np.zeros(4, bool),
        np.arange(4),
        kinds_of([4, "4x3", "rooms5"]),
    )
    assert {name: found[f"valid/{name}"] for name in ("size_4", "kind_4x3", "kind_rooms5")} == {
        "size_4": 0.5,
        "kind_4x3": 1,
        "kind_rooms5": 1,
    }
    assert (found["optimal/size_4"], found["optimal/kind_4x3"], found["optimal/kind_rooms5"]) == (0, 1, 0)


def test_lengths_over_all_answers_and_over_those_that_ended(step):
    assert (step["answer_tokens"], step["answer_tokens_ended"], step["answer_tokens_max"]) == (22, 16, 40)
    assert step["truncated"] == 2 / 8


def test_groups_are_counted_by_validity_though_the_rewards_in_the_invalid_one_differ(step):
    assert (step["all_valid_groups"], step["all_invalid_groups"], step["learnable"]) == (1 / 3, 1 / 3, 1 / 3)


def test_reward_is_the_weighted_sum_of_its_parts(step):
    parts = step["weight_accuracy"] * step["reward_accuracy"] + step["weight_length"] * step["reward_length"]
    assert step["reward"] == pytest.approx(parts, abs=1e-7)
    assert (step["reward_accuracy"], step["reward_length"]) == (pytest.approx(0.5), pytest.approx(-0.5))


@pytest.mark.parametrize("valid, learnable", [(0, 0), (1, 1), (4, 1), (5, 0)])
def test_a_group_is_learnable_from_one_valid_answer_in_five_to_four(valid, learnable):
    failed = [set()] * valid + [{Check.GOAL_REACHED}] * (5 - valid)
    found = describe(
        kinds_of([3] * 5),
        verdict_of(failed, [False] * 5),
        rewards_of(5),
        np.ones(5, int),
        np.zeros(5, bool),
        np.zeros(5),
        kinds_of([3]),
    )
    assert found["learnable"] == learnable


answers = st.lists(
    st.tuples(
        st.integers(3, 6),  # size
        st.sets(st.sampled_from(Check)),  # what fails
        st.booleans(),  # optimal, if valid
        st.integers(0, 40),  # tokens
        st.booleans(),  # truncated
        st.integers(0, 4),  # group
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(answers)
def test_any_answers_are_counted_as_one_by_one(rows):
    sizes, failed, wish, tokens, truncated, groups = zip(*rows, strict=True)
    optimal = [best and not names for best, names in zip(wish, failed, strict=True)]
    found = describe(
        kinds_of(sizes),
        verdict_of(failed, optimal),
        rewards_of(len(rows)),
        np.array(tokens),
        np.array(truncated),
        np.array(groups),
        kinds_of([3, 4, 5, 6]),
    )
    expected = {}
    for size in (3, 4, 5, 6):
        here = [not names for s, names in zip(sizes, failed, strict=True) if s == size]
        expected[f"valid/size_{size}"] = sum(here) / len(here) if here else math.nan
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
    expected["optimal_given_valid"] = sum(optimal) / good if good else math.nan
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    assert found["valid"] + sum(found[name] for name in FAILURES) == pytest.approx(1)


def test_every_step_of_a_run_has_the_same_metrics_and_they_are_plain_numbers(step):
    other = describe(
        kinds_of([4]),
        verdict_of([{Check.PARSABLE}], [False]),
        rewards_of(1),
        np.array([3]),
        np.array([True]),
        np.array([0]),
        kinds_of([3, 4, 5]),
    )
    assert list(other) == list(step)
    assert {type(value) for value in (step | other).values()} == {float}


def test_128_answers_are_described_in_less_than_3_ms():
    rng = np.random.default_rng(0)
    failed = [{Check(c)} if c < 8 else set() for c in rng.integers(0, 10, 128)]
    arguments = (
        kinds_of(rng.integers(3, 11, 128).tolist()),
        verdict_of(failed, [False] * 128),
        rewards_of(128),
        rng.integers(1, 128, 128),
        rng.random(128) < 0.1,
        np.repeat(np.arange(16), 8),
        kinds_of(range(3, 11)),
    )

    def seconds() -> float:
        begun = time.perf_counter()
        describe(*arguments)
        return time.perf_counter() - begun

    assert min(seconds() for _ in range(20)) < 3e-3

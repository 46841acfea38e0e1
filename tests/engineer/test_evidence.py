"""Evidence against counting by hand and against the textbook's interval."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer.evidence import CHECKS, Evidence, gather, wilson
from jaxlake.types import Check

# Five answers: which checks each fails, whether it is optimal, its size.
ANSWERS = (
    (set(), True, 3),
    (set(), False, 3),
    ({Check.HOLE_FREE, Check.GOAL_REACHED}, False, 4),
    ({Check.CONFLICT_FREE, Check.HOLE_FREE}, False, 4),
    ({Check.PARSABLE}, True, 4),
)


def five_answers(**changed) -> Evidence:
    arguments = {
        "sizes": np.array([size for _, _, size in ANSWERS]),
        "checks": np.array([[check not in failed for check in Check] for failed, _, _ in ANSWERS]),
        "optimal": np.array([optimal for _, optimal, _ in ANSWERS]),
        "tokens": np.array([10, 20, 30, 40, 50]),
        "truncated": np.array([False, False, False, False, True]),
        "sampled_valid": np.array([1.0, 0.5, 0.5, 0.0, 0.0]),
        "samples_per_prompt": 4,
    }
    return gather(**{**arguments, **changed})


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662), (0, 0, 0, 1)],
)
def test_wilson_interval_matches_published_values(successes, n, low, high):
    # 81 of 263 is Newcombe's (1998) worked example; the others follow from the quadratic solved by hand.
    assert wilson(successes, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_wilson_ends_are_where_the_normal_test_just_rejects(n, data):
    successes = data.draw(st.integers(0, n))
    for end in wilson(successes, n):
        assert (successes / n - end) ** 2 == pytest.approx(1.96**2 * end * (1 - end) / n, abs=1e-9)


def test_rows_hold_hand_counted_answers_per_size():
    three, four = five_answers().by_size
    assert (three.size, three.n, three.valid, three.optimal) == (3, 2, 2, 1)
    assert (four.size, four.n, four.valid, four.optimal) == (4, 3, 0, 0)
    assert three.sampled_valid == 0.75
    assert four.sampled_valid == pytest.approx(0.5 / 3)


def test_an_answer_is_filed_under_its_first_failing_check_only():
    four = five_answers().by_size[1]
    assert {check: k for check, k in four.first_failures.items() if k} == {"hole_free": 2, "parsable": 1}
    assert {check: k for check, k in four.any_failures.items() if k} == {
        "parsable": 1,
        "hole_free": 2,
        "conflict_free": 1,
        "goal_reached": 1,
    }


def test_an_invalid_answer_is_never_counted_optimal():
    assert five_answers().optimal == 1


def test_totals_means_and_standard_error():
    evidence = five_answers()
    assert (evidence.n, evidence.valid) == (5, 2)
    assert evidence.first_failures["hole_free"] == 2
    assert (evidence.answer_tokens, evidence.truncated) == (30.0, 0.2)
    assert evidence.sampled_valid == pytest.approx(0.4)
    # Deviations .6 .1 .1 -.4 -.4: variance .70 / 4, over 5 prompts.
    assert evidence.sampled_se == pytest.approx(math.sqrt(0.70 / 4 / 5))


def test_without_samples_the_sampled_values_are_none():
    evidence = five_answers(sampled_valid=None)
    assert (evidence.sampled_valid, evidence.sampled_se, evidence.samples_per_prompt) == (None, None, 0)
    assert all(row.sampled_valid is None for row in evidence.by_size)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**31))
def test_counts_add_up_and_survive_json(n, seed):
    rng = np.random.default_rng(seed)
    evidence = gather(
        sizes=rng.integers(3, 7, n),
        checks=rng.random((n, 8)) < 0.8,
        optimal=rng.random(n) < 0.5,
        tokens=rng.integers(0, 99, n),
        truncated=rng.random(n) < 0.1,
        sampled_valid=rng.random(n),
        samples_per_prompt=4,
    )
    assert evidence.n == n
    for row in evidence.by_size:
        assert row.valid + sum(row.first_failures.values()) == row.n
        assert all(row.first_failures[check] <= row.any_failures[check] for check in CHECKS)
    assert Evidence.from_json(json.loads(json.dumps(evidence.to_json()))) == evidence


@pytest.mark.parametrize(
    ("change", "message"),
    [({"version": 2}, "version 2; this program reads version 1"), ({"by_size": None}, "fields"), ({"x": 1}, "x")],
)
def test_another_form_of_json_is_refused_in_one_line(change, message):
    with pytest.raises(ValueError, match=message) as error:
        Evidence.from_json({**five_answers().to_json(), **change})
    assert "\n" not in str(error.value)


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"tokens has shape \(2,\), expected \(5,\)"):
        five_answers(tokens=np.array([1, 2]))


def test_no_prompts_are_no_evidence():
    with pytest.raises(ValueError, match="0 prompts"):
        five_answers(sizes=np.zeros(0, int))

"""Advantages worked by hand, in groups of all sizes, and the laws that each kind keeps."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.config.choices import Advantage
from rl.learn.advantages import advantages, token_advantages

EVEN = [0.0, 1.0, 1.0, 0.0, 3.0, 1.0, 1.0, 3.0], [0, 0, 0, 0, 1, 1, 1, 1]
RAGGED = [1.0, 0.0, 5.0, 4.0, 2.0, 7.0], [4, 4, 9, 9, 9, 2]  # of two, three and one; means .5, 11/3 and 7


def found(given, kind, **rest):
    return advantages(np.array(given[0], np.float32), np.array(given[1]), kind, **rest)


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        (EVEN, "group_std", [-1, 1, 1, -1, 1, -1, -1, 1]),  # population deviations .5 and 1
        (EVEN, "centered", [-0.5, 0.5, 0.5, -0.5, 1, -1, -1, 1]),
        (EVEN, "batch_std", np.array([-0.5, 0.5, 0.5, -0.5, 1, -1, -1, 1]) / 1.0897247),  # variance 19/16
        (EVEN, "rloo", [-2 / 3, 2 / 3, 2 / 3, -2 / 3, 4 / 3, -4 / 3, -4 / 3, 4 / 3]),
        (
            RAGGED,
            "group_std",
            np.array([1, -1, 4 / 1.2472191, 1 / 1.2472191, -5 / 1.2472191, 0]) / [1, 1, 3, 3, 3, 1],
        ),
        (RAGGED, "centered", [0.5, -0.5, 4 / 3, 1 / 3, -5 / 3, 0]),
        (RAGGED, "batch_std", np.array([0.5, -0.5, 4 / 3, 1 / 3, -5 / 3, 0]) / 2.4094720),
        (RAGGED, "rloo", [1, -1, 2, 0.5, -2.5, 0]),  # 5 against the mean of 4 and 2, and so on
    ],
)
def test_advantages_by_hand(given, kind, expected):
    np.testing.assert_allclose(found(given, kind, epsilon=1e-9), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", get_args(Advantage))
def test_a_group_of_equals_and_a_group_of_one_teach_exactly_nothing(kind):
    given = [0.1, 0.1, 0.1, 0.7, 0.3, 0.9], [0, 0, 0, 1, 2, 2]
    values = found(given, kind)
    np.testing.assert_array_equal(values[:4], 0)
    assert values[5] > 0 > values[4]


def test_a_deviation_as_small_as_what_is_added_to_it_halves_the_advantage():
    np.testing.assert_allclose(found(([0.0, 2e-4], [0, 0]), "group_std"), [-0.5, 0.5], rtol=1e-3)


@given(
    st.lists(st.tuples(st.floats(-100, 100, width=32), st.integers(0, 4)), min_size=1, max_size=30),
    st.sampled_from(get_args(Advantage)),
    st.randoms(use_true_random=False),
)
def test_groups_sum_to_zero_whatever_the_order(answers, kind, random):
    rewards, ids = np.array([r for r, _ in answers], np.float32), np.array([g for _, g in answers])
    values = advantages(rewards, ids, kind)
    assert values.dtype == np.float32
    for group in np.unique(ids):
        assert abs(values[ids == group].sum()) <= 1e-4 * (1 + np.abs(values).max()) * len(ids)
    order = np.array(random.sample(range(len(ids)), len(ids)))
    np.testing.assert_allclose(advantages(rewards[order], ids[order], kind), values[order], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("right", [0.02, 0.3, 0.5, 0.9, 0.98])
def test_between_two_tokens_the_gradient_of_credit_is_that_of_twice_the_square_root(right):
    logits = np.log(np.array([right, 1 - right], np.float64))
    given = token_advantages(np.array([[1], [-1]], np.int8), logits[:, None].astype(np.float32))[:, 0]
    by_logit = np.eye(2) - np.exp(logits)  # of the log-probability of each token
    expected = np.exp(logits) * given @ by_logit

    def twice_the_root(logits):
        return 2 * np.sqrt(np.exp(logits[0]) / np.exp(logits).sum())

    numerical = [(twice_the_root(logits + d) - twice_the_root(logits - d)) / 2e-6 for d in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(expected, numerical, rtol=1e-4)

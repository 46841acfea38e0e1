"""The reward by hand: every breakpoint of the paper's formula, and a whole episode of its moving weight."""

import numpy as np
import pytest

from rl.reward import length_penalty, moving_share, weights


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0.0), (1500, 0.0), (2798, -0.5), (4096, -1.0), (9000, -1.0)])
def test_length_penalty_at_the_papers_lengths(tokens, expected):
    assert length_penalty(np.array([tokens]), 1500, 4096)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("short_share", "expected"), [(0.0, 0.5), (0.49, 0.5), (0.5, 0.5), (0.7, 0.65), (0.9, 0.8), (1.0, 0.8)]
)
def test_weights_follow_the_share_of_short_answers(short_share, expected):
    w_acc, w_len = weights(short_share)
    assert w_acc == pytest.approx(expected)
    assert w_acc + w_len == pytest.approx(1)


def test_the_moving_share_starts_at_the_first_and_then_moves_slowly():
    first = moving_share(None, np.array([10, 20, 30, 40]), free=20, decay=0.9)
    assert first == 0.5
    assert moving_share(first, np.array([10, 10, 10, 10]), free=20, decay=0.9) == pytest.approx(0.9 * 0.5 + 0.1)

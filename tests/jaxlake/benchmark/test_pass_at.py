"""The unbiased chance that one of k answers is correct: hand-worked, by enumeration, and in whole scores."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake.benchmark import load, pass_at, score, take
from jaxlake.solve import solve
from jaxlake.text import answer


@given(st.integers(1, 7).flatmap(lambda t: st.tuples(st.just(t), st.integers(0, t), st.integers(1, t))))
def test_it_is_the_share_of_draws_that_hit(drawn):
    total, correct, k = drawn
    hits = [min(draw) < correct for draw in itertools.combinations(range(total), k)]
    assert pass_at(k, np.array([correct]), np.array([total]))[0] == pytest.approx(np.mean(hits))


def test_many_answers_do_not_overflow():
    (chance,) = pass_at(500, np.array([1]), np.array([1000]))
    assert chance == pytest.approx(0.5)


@pytest.mark.heavy
def test_scores_at_k_are_chances_of_each_instance():
    part = take(load("validation"), [0, 5, 9])
    plans = solve(part.instances).plan
    right = [answer(jax.tree.map(lambda leaf, i=i: leaf[i], plans), part.instances.max_size) for i in range(3)]
    answers = {part.ids[0]: [right[0], "", "", ""], part.ids[1]: [right[1]] * 4, part.ids[2]: [""] * 4}
    scores = score(answers, part)
    assert scores.at(1).valid.tolist() == scores.valid.tolist() == [0.25, 1, 0]
    assert scores.at(2).valid == pytest.approx([0.5, 1, 0]) and scores.at(2).optimal == pytest.approx([0.5, 1, 0])
    assert scores.at(4).valid == pytest.approx([1, 1, 0])
    assert scores.at(2).rows[0].by_size[3].valid == pytest.approx(50)  # the mean over the three
    # One of two answers is right: drawn three times there is a third, wrong one, and the right one is among them.
    assert score({part.ids[1]: [right[1], ""]}, part).at(3).valid == pytest.approx([0, 1, 0])

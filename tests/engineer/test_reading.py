"""What an engineer says is marked by the table alone; changed tables hold together and change nothing else."""

import dataclasses

import numpy as np
import pytest

from engineer import Evidence
from engineer.context import PastRound, modules, percent
from engineer.engineers.rules import frontier_design, known_rows
from engineer.engineers.shuffle import permutation, permuted, renamed
from engineer.evidence import CHECKS, KindEvidence, TrainingEvidence
from engineer.examples import draw_history, think
from engineer.reading import leading_failures, mark, resampled
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

KINDS = tuple(map(Kind.of, (3, 4, 5, 6)))
LAB = tuple(sorted(map(Kind.of, ("3", "4", "6", "4x3", "5x4", "8x5"))))


def table(sampled=(0.58, 0.46, 0.4, 0.23), kinds=KINDS, **failures) -> Evidence:
    """100 boards of each kind, 60 valid; the failures given, the rest at the goal."""
    first = {**dict.fromkeys(CHECKS, 0), "goal_reached": 40 - sum(failures.values()), **failures}
    rows = tuple(
        KindEvidence(kind, 100, 60, 50, first, first, p, 0.01, 100) for kind, p in zip(kinds, sampled, strict=True)
    )
    return Evidence(rows, float(np.mean(sampled)), 0.01, 4, 20.0, 0.0)


def marks(thought, evidence=None, kinds=LAB + KINDS):
    m = mark(thought, evidence or table(hole_free=30), kinds)
    return (m.weakest, m.learnable, m.failure), (m.right, m.quotes)


def test_the_words_of_the_examples_are_right():
    assert marks(think(table(hole_free=30), KINDS)) == ((True, True, True), (8, 8))


def test_what_the_first_command_used_to_print_is_wrong():
    said = "Weakest size 5 (4% valid), most learnable size 6 (21%). Leading failure: conflict."
    assert marks(said) == ((False, False, False), (0, 2))


@pytest.mark.parametrize(
    ("thought", "right", "quotes"),
    [
        ("", (False, False, False), (0, 0)),
        ("weakest 6 23, most learnable 4 46, leading failure hole 30", (True, True, True), (3, 3)),
        ("3 58 hole 30; 4 46 goal 10; 6 23\nWeakest 6. Failure: hole", (True, False, True), (5, 5)),
        ("Weakest size 6 (60% valid)", (True, False, False), (1, 1)),  # greedily it is
        ("Weakest size 3 (23% valid)", (False, False, False), (0, 1)),  # another row's number
        ("Weakest size 7 (23% valid)", (False, False, False), (0, 2)),  # no such size: a number like any other
        ("Weakest 3. No: weakest 6", (True, False, False), (0, 0)),  # the last word counts
        ("The weakest one is size 6 with 23.0 percent valid", (True, False, False), (1, 1)),
        ("leading failure goal 30", (False, False, False), (0, 1)),
        ("leading failure none 0", (False, False, False), (1, 1)),
    ],
)
def test_claims_and_quotes_are_checked_row_by_row(thought, right, quotes):
    assert marks(thought) == (right, quotes)


@pytest.mark.parametrize(
    ("thought", "right"),
    [
        ("Weakest:6 23;5 40;4 46;3 58;most learnable:4 46;3 58;5 40;6 23;leading failure:hole", True),
        ("Weakest:6 23;5 40;most learnable:4 46;leading failure:hole", True),  # as far as it goes
        ("Weakest:6 23;4 46;5 40;3 58;most learnable:4 46;3 58", False),  # begins well
        ("Weakest:6 23;5 40;most learnable:4 46;5 40", False),
        ("Weakest:6 23;6 23;most learnable:4 46", False),
        ("Weakest:6 23;5 40", False),  # says nothing of the other
    ],
)
def test_a_ranking_is_right_if_all_that_it_names_is_in_order(thought, right):
    assert mark(thought, table(hole_free=30), KINDS).ranking == right


def test_kinds_whose_numbers_are_printed_alike_are_equally_right():
    evidence = table(sampled=(0.231, 0.46, 0.54, 0.234), hole_free=20)
    for weakest, learnable, failure in ((3, 4, "hole"), (6, 5, "goal")):
        said = f"Weakest {weakest}, most learnable {learnable}, leading failure {failure}"
        assert marks(said, evidence)[0] == (True, True, True)


def test_no_failure_is_named_where_all_is_solved():
    zero = dict.fromkeys(CHECKS, 0)
    evidence = Evidence((KindEvidence(KINDS[0], 5, 5, 5, zero, zero),), None, None, 0, 20.0, 0.0)
    assert leading_failures(evidence) == {"none"}
    assert mark("leading failure: none", evidence, KINDS).failure
    assert not mark("leading failure: hole", evidence, KINDS).failure


def test_what_is_learnable_is_among_what_can_be_designed_and_was_trained_or_validated():
    evidence = table(sampled=(0.5, 0.4), kinds=KINDS[:2])
    trained = table(sampled=(0.48,), kinds=(Kind.of("8x5"),)).by_kind
    seen = dataclasses.replace(evidence, training=TrainingEvidence(trained, ()))
    assert marks("learnable 3", seen, kinds=KINDS)[0][1] and not marks("learnable 3", seen, kinds=LAB[1:])[0][1]
    assert marks("learnable 8x5 60", seen, kinds=LAB[1:]) == ((False, True, False), (1, 1))
    assert marks("learnable none", seen, kinds=[Kind.of("9")])[0][1]


def test_kinds_with_agents_are_named_whole():
    evidence = table(sampled=(0.5, 0.4, 0.3, 0.2, 0.1, 0.0), kinds=LAB, hole_free=30)
    assert marks("Weakest kind 8x5 (0% valid), most learnable kind 3 (50%)", evidence) == ((True, True, False), (2, 2))
    assert marks("Weakest kind 5x4 (0% valid)", evidence) == ((False, False, False), (0, 1))


def test_another_validation_varies_as_its_answers_would_and_its_tables_hold_together():
    trained = TrainingEvidence(table((0.5,), LAB[-1:], hole_free=30).by_kind, ())
    old = dataclasses.replace(table(sampled=(0.9, 0.5, 0.2, 0.0), hole_free=30), training=trained)
    past = [PastRound(k, LakeConfig.uniform(KINDS, 0.2, 0.1), old) for k in range(3)]
    rng, shares = np.random.default_rng(0), []
    for _ in range(1000):
        *before, last = resampled(past, rng)
        rows = (*last.evidence.by_kind, *last.evidence.training.by_kind)
        for row in rows:
            invalid = sum(row.first_failures.values())
            assert row.n == 100 and row.valid == 100 - invalid == round(100 * row.sampled_valid) >= row.optimal
            assert row.first_failures == row.any_failures and min(row.first_failures.values()) >= 0
            assert abs(row.first_failures["hole_free"] - 0.75 * invalid) <= 1  # 30 of 40 before
            assert row.learnable == row.all_valid == row.all_invalid == row.truncated == 0
        shares.append([row.sampled_valid for row in rows])
    assert before == past[:2] and last.config is past[2].config
    p, answers = np.array([0.9, 0.5, 0.2, 0, 0.5]), np.array([400, 400, 400, 400, 100])
    np.testing.assert_allclose(np.mean(shares, axis=0), p, atol=0.005)
    np.testing.assert_allclose(np.std(shares, axis=0), (p * (1 - p) / answers) ** 0.5, rtol=0.1)


@pytest.mark.parametrize("context", ["V6", "F+R"])
@pytest.mark.parametrize("seed", range(5))
def test_a_rule_is_equivariant_and_a_name_exchanged_twice_around_is_its_own(context, seed):
    rng = np.random.default_rng(seed)
    history = draw_history(rng, LAB, 4, modules(context), LAB[-3:])
    labels = permutation(history, rng)
    assert sorted(labels) == sorted(labels.values()) and all(one != other for one, other in labels.items())
    assert {labels[kind] for kind in LAB[-3:]} == {*LAB[-3:]}  # what is validated stays what is validated
    other = permuted(history, labels)
    designed, exchanged = (frontier_design(h[-1].evidence, LAB) for h in (history, other))
    for field in ("hole", "wait"):
        assert getattr(renamed(designed, labels), field) == getattr(exchanged, field)
    distance = {kind: abs(percent(row.valid_share, 1) - 50) for kind, row in known_rows(other[-1].evidence).items()}
    by_data = [
        sorted(zip(c.data, map(distance.get, LAB), strict=True), reverse=True)
        for c in (renamed(designed, labels), exchanged)
    ]
    given = [[(data, far) for data, far in rows if data] for rows in by_data]
    assert given[0] == given[1]  # of equal distances the first gets more
    back = permuted(other, {new: old for old, new in labels.items()})
    assert [past.evidence for past in back] == [past.evidence for past in history]
    assert [past.config for past in back] == [past.config for past in history]

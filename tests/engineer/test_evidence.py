"""Evidence against counting by hand and against the textbook's interval."""

import copy
import dataclasses
import hashlib
import json
import math
import statistics
from collections.abc import Iterable
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer.evidence import (
    CHECKS,
    VERSION,
    Evidence,
    add,
    environment,
    evidence_from_verdicts,
    training_evidence,
    trajectory,
    typical_failures,
    wilson,
)
from jaxlake.board_text import from_text
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, KindReport
from jaxlake.kinds import Kind
from jaxlake.text import parse
from jaxlake.types import Check

# Five answers: which checks each fails, whether it is optimal, its size.
ANSWERS = (
    (set(), True, 3),
    (set(), False, 3),
    ({Check.HOLE_FREE, Check.GOAL_REACHED}, False, 4),
    ({Check.CONFLICT_FREE, Check.HOLE_FREE}, False, 4),
    ({Check.PARSABLE}, True, 4),
)


def kinds_of(names: Iterable[int | str]) -> np.ndarray:
    return np.array([Kind.of(name) for name in names], object)


def five_answers(**changed) -> Evidence:
    arguments = {
        "kinds": kinds_of(size for _, _, size in ANSWERS),
        "checks": np.array([[check not in failed for check in Check] for failed, _, _ in ANSWERS]),
        "optimal": np.array([optimal for _, optimal, _ in ANSWERS]),
        "tokens": np.array([10, 20, 30, 40, 50]),
        "truncated": np.array([False, False, False, False, True]),
        "sampled_valid": np.array([1.0, 0.5, 0.5, 0.0, 0.0]),
        "samples_per_prompt": 4,
    }
    return evidence_from_verdicts(**{**arguments, **changed})


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662), (0, 0, 0, 1)],
)
def test_wilson_interval_matches_published_values(successes, n, low, high):
    # 81 of 263 is Newcombe's (1998) worked example; the others follow from the quadratic solved by hand.
    assert wilson(successes, n) == pytest.approx((low, high), abs=1e-4)


def test_rows_hold_the_groups_of_samples_counted_by_hand():
    three, four = five_answers().by_kind
    # Valid shares 1 .5 and .5 0 0.
    assert (three.sampled_valid, four.sampled_valid) == (0.75, pytest.approx(0.5 / 3))
    assert (three.groups, three.all_valid, three.learnable, three.all_invalid) == (2, 1, 1, 0)
    assert (four.groups, four.all_valid, four.learnable, four.all_invalid) == (3, 0, 1, 2)
    assert three.sampled_se == pytest.approx(0.25)
    assert four.sampled_se == pytest.approx(math.sqrt((1 / 9 + 1 / 36 + 1 / 36) / 2 / 3))
    assert three.advantage is four.advantage is None


def test_rows_ascend_by_family_size_and_agents_and_json_names_what_is_no_size():
    mixed = ["corridor8x3", "rooms6", 10, "3x3", 3]
    evidence = five_answers(kinds=kinds_of(mixed))
    assert [row.answer_tokens for row in evidence.by_kind] == [50, 40, 30, 20, 10]
    data = json.loads(json.dumps(evidence.to_json()))
    assert [{name: row[name] for name in ("size", "kind") if name in row} for row in data["by_kind"]] == [
        *({"size": 3}, {"kind": "3x3"}, {"size": 10}, {"kind": "rooms6"}, {"kind": "corridor8x3"})
    ]
    assert Evidence.from_json(data) == evidence


def test_totals_means_and_standard_error():
    evidence = five_answers()
    assert (evidence.n, evidence.valid, evidence.optimal) == (5, 2, 1)  # an invalid answer is none that is optimal
    assert evidence.first_failures["hole_free"] == 2
    assert (evidence.answer_tokens, evidence.truncated) == (30.0, 0.2)
    assert evidence.sampled_valid == pytest.approx(0.4)
    # Deviations .6 .1 .1 -.4 -.4: variance .70 / 4, over 5 prompts.
    assert evidence.sampled_se == pytest.approx(math.sqrt(0.70 / 4 / 5))


def answers(rng: np.random.Generator, groups: int, samples: int = 4) -> dict[str, np.ndarray]:
    """Random groups of answers, as `add` takes them."""
    return {
        "kinds": kinds_of(rng.integers(3, 6, groups).tolist()),
        "checks": rng.random((groups, samples, 8)) < 0.9,
        "optimal": rng.random((groups, samples)) < 0.5,
        "tokens": rng.integers(0, 99, (groups, samples)),
        "truncated": rng.random((groups, samples)) < 0.1,
        "advantages": rng.normal(size=(groups, samples)).astype(np.float32),
    }


REQUESTED = LakeConfig.uniform((3, 4, 5), 0.25, 0.5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_sums_of_steps_that_were_saved_in_between_are_those_of_all_answers_counted_one_by_one(seed, steps):
    rng, sums, taken = np.random.default_rng(seed), None, []
    for groups in steps:
        taken.append(answers(rng, groups))
        before = copy.deepcopy(sums)
        new = add(sums, **taken[-1])
        assert sums == before
        sums = json.loads(json.dumps(new))
        assert sums == new
    everything = {name: np.concatenate([step[name] for step in taken]) for name in taken[0]}
    rows = training_evidence(sums, environment(dataset([], [], []), REQUESTED)).by_kind
    assert [row.kind for row in rows] == sorted(set(everything["kinds"].tolist()))
    for row in rows:
        here = [i for i, kind in enumerate(everything["kinds"]) if kind == row.kind]
        said = [(i, k) for i in here for k in range(4)]
        failed = [[c for c in Check if not everything["checks"][i, k, c]] for i, k in said]
        assert row.n == len(said) and row.valid == sum(not checks for checks in failed)
        assert row.optimal == sum(everything["optimal"][place] and not f for place, f in zip(said, failed, strict=True))
        for check in Check:
            assert row.first_failures[CHECKS[check]] == sum(checks[:1] == [check] for checks in failed)
            assert row.any_failures[CHECKS[check]] == sum(check in checks for checks in failed)
        shares = [everything["checks"][i].all(axis=-1).mean() for i in here]
        lengths = [everything["tokens"][i].mean() for i in here]
        for values, mean, error in (
            (shares, row.sampled_valid, row.sampled_se),
            (lengths, row.answer_tokens, row.answer_tokens_se),
        ):
            assert mean == pytest.approx(statistics.mean(values))
            expected = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0
            assert error == pytest.approx(expected, abs=1e-9)
        assert (row.groups, row.all_valid, row.all_invalid) == (len(here), shares.count(1), shares.count(0))
        assert row.learnable == sum(0.2 <= share <= 0.8 for share in shares)
        assert row.truncated == sum(everything["truncated"][place] for place in said)
        assert row.advantage == pytest.approx(np.mean([abs(everything["advantages"][place]) for place in said]))


def report(kind: int | str, realised: int, waits: int, hole_ratio: float, candidates: int, solvable: float):
    numbers = {"requested": realised, "realised": realised, "requested_waits": waits, "realised_waits": waits}
    numbers |= {"requested_interacting": None, "realised_interacting": waits, "repeated": 0, "holes": 0}
    numbers |= {"hole_ratio": hole_ratio, "candidates": candidates, "known": 10, "solvable": solvable, "undecided": 0}
    return KindReport(kind=Kind.of(kind), **numbers)


def dataset(kinds: list[int | str], costs: list[int], bounds: list[int], *reports: KindReport) -> Dataset:
    return Dataset(
        instances=SimpleNamespace(size=np.array([Kind.of(kind).size for kind in kinds])),
        solutions=SimpleNamespace(cost=np.array(costs), lower_bound=np.array(bounds)),
        needs_wait=np.zeros(len(kinds), bool),
        kinds=kinds_of(kinds),
        report=reports,
    )


def test_the_environment_joins_the_parts_of_a_set_that_have_the_same_kind():
    boards = dataset(
        [3, 4, 3, 3, 4],
        [5, 8, 6, 7, 9],
        [5, 8, 4, 6, 9],
        report(3, realised=1, waits=1, hole_ratio=0.2, candidates=110, solvable=0.5),
        report(4, realised=1, waits=0, hole_ratio=0.1, candidates=110, solvable=1.0),
        report(3, realised=2, waits=1, hole_ratio=0.4, candidates=310, solvable=0.9),
        report(4, realised=1, waits=0, hole_ratio=0.3, candidates=10, solvable=0.0),
        report(5, realised=0, waits=0, hole_ratio=0.25, candidates=10, solvable=0.0),
    )
    three, four, five = environment(boards)
    assert (three.kind.label, three.instances, three.requested) == (3, 3, None)
    assert three.realised == pytest.approx({"data": 3 / 5, "hole": 1 / 3, "wait": 2 / 3})
    assert (three.optimal_cost, three.interaction_gap) == (6, 1)
    assert three.solvable == pytest.approx((50 + 270) / 400)
    assert (four.optimal_cost, four.interaction_gap, four.solvable) == (8.5, 0, 1)
    assert five.realised == {"data": 0, "hole": 0.25, "wait": 0}
    assert five.optimal_cost is five.interaction_gap is five.solvable is None


def test_one_failure_of_each_of_the_most_frequent_sorts_is_shown():
    failures = [(3, set()), (4, {2}), (3, {4, 7}), (4, {2, 4}), (3, {7}), (5, {0}), (4, {4}), (3, {4})]
    kinds = kinds_of(size for size, _ in failures)
    checks = np.array([[check not in failed for check in Check] for _, failed in failures])
    assert typical_failures(kinds, checks).tolist() == [2, 1, 4, 6, 5]  # two of (3, 4) and of (4, 2), one of the others
    assert typical_failures(kinds, checks, most=1).tolist() == [2]
    assert typical_failures(kinds[:1], checks[:1]).tolist() == []


def fails(check: Check) -> np.ndarray:
    return np.array([c != check for c in Check])


def test_a_trajectory_is_the_board_with_the_paths_that_were_answered():
    """An answer that cannot be read leaves the board bare, and of a long one the end is kept."""
    board = from_text("a#.\n.#B\nb.A")
    answer = "0:(0,0)(1,0)(1,1)(2,1)(2,2)\n1:(2,0)(2,1)(2,2)(1,2)"
    plan, none = (parse(text, max_size=3, max_agents=2, max_steps=9) for text in (answer, "no"))
    drawn = trajectory(Kind.of(3), board, plan, fails(Check.HOLE_FREE), f"<think>\n0:(0,0)\n</think>\n\n{answer}\n")
    assert (drawn.kind, drawn.check, drawn.answer) == (Kind.of(3), "hole_free", answer)
    assert drawn.board.split() == ["a#.", ">vB", "b+A"]
    bare = trajectory(Kind.of(3), board, none, fails(Check.PARSABLE), "so " * 1000 + "the end")
    assert bare.board.split() == ["a#.", ".#B", "b.A"]
    assert len(bare.answer) == 1000 and bare.answer.startswith("...") and bare.answer.endswith("so the end")


def whole_evidence() -> Evidence:
    """With something in every field."""
    rng = np.random.default_rng(0)
    boards = dataset([3, 4], [4, 5], [4, 4], *(report(size, 1, 0, 0.2, 110, 0.5) for size in (3, 4)))
    sums = add(None, **answers(rng, 9))
    plan = parse("no", max_size=2, max_agents=1, max_steps=9)
    return dataclasses.replace(
        five_answers(),
        environment=environment(boards),
        training=training_evidence(sums, environment(boards, LakeConfig.uniform((3, 4), 0.25, 0.5))),
        trajectories=tuple(
            trajectory(Kind.of(kind), from_text("a.\n.A"), plan, fails(Check.PARSABLE), "no") for kind in (3, "rooms5")
        ),
    )


def test_whole_evidence_survives_json():
    evidence = whole_evidence()
    data = json.loads(json.dumps(evidence.to_json(), allow_nan=False))
    assert data["version"] == 3 and Evidence.from_json(data) == evidence
    with pytest.raises(ValueError, match="evidence of version 1: this program reads version 3"):
        Evidence.from_json(data | {"version": 1})


def test_the_evidence_is_that_of_its_number():
    """Rounded, because a sum of floats may end otherwise on another processor."""
    plain = json.loads(json.dumps(whole_evidence().to_json()), parse_float=lambda text: f"{float(text):.9g}")
    found = hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
    assert (VERSION, found) == (3, "03459eca3a270b80"), "raise VERSION of engineer.evidence, and write both here"

"""The examples' answers are legal, vary, and follow from what their context shows."""

import dataclasses

import numpy as np
import pytest

from engineer.evidence import CHECKS, Evidence, SizeEvidence
from engineer.examples import example, rule, think
from engineer.proposal import parse
from jaxlake.config import LakeConfig

SIZES = (3, 4, 5, 6)


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, str, str, LakeConfig]]:
    rng = np.random.default_rng(0)
    return [example(rng, SIZES, rounds=3, epochs_per_round=2) for _ in range(200)]


def evidence(sampled: tuple[float, ...], **failures: int) -> Evidence:
    """100 boards a size with 40 failures: those given, the rest at the goal."""
    first = {**dict.fromkeys(CHECKS, 0), "goal_reached": 40 - sum(failures.values()), **failures}
    rows = tuple(SizeEvidence(size, 100, 60, 50, first, first, p) for size, p in zip(SIZES, sampled, strict=True))
    return Evidence(rows, float(np.mean(sampled)), 0.01, 4, 20.0, 0.0)


def in_steps(ratios: tuple[float, ...]) -> bool:
    return bool(np.allclose(np.asarray(ratios) * 200, np.round(np.asarray(ratios) * 200), atol=1e-6))


def test_answers_hold_the_configuration_in_multiples_of_0_005(examples):
    for _, _, answer, config in examples:
        assert in_steps(config.data) and in_steps(config.hole) and in_steps(config.wait)
        assert sum(round(200 * d) for d in config.data) == 200
        assert parse(answer) == config.to_dict()


def test_thinking_is_short(examples):
    assert all(0 < len(thinking.split()) <= 40 for _, thinking, _, _ in examples)


def test_thinking_can_be_read_off_the_table(examples):
    for context, thinking, _, _ in examples:
        rows = [line.split() for line in context.splitlines() if line[:2] in ("3 ", "4 ", "5 ", "6 ")]
        sampled = {int(row[0]): int(row[5]) for row in rows}
        weakest = int(thinking.split("Weakest size ")[1].split()[0])
        assert sampled[weakest] == min(sampled.values())


def test_some_examples_have_a_history_and_some_have_none(examples):
    assert 0.3 < np.mean(["History" in context for context, _, _, _ in examples]) < 0.7


def test_one_seed_gives_one_example_and_another_seed_another():
    first, again, other = (example(np.random.default_rng(seed), SIZES, 3, 2) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_answers_vary_around_the_rule_for_the_same_context(examples):
    assert len({answer for _, _, answer, _ in examples}) == len(examples)


def test_data_follows_learnability():
    config = rule(evidence((0.02, 0.5, 0.9, 0.3)))
    # p (1 - p) + .05 = .0696 .30 .14 .26; their sum .7696.
    assert config.data == pytest.approx((0.09, 0.39, 0.18, 0.34), abs=0.005)


def test_greedy_shares_stand_in_where_nothing_was_sampled():
    drawn = evidence((0.02, 0.5, 0.9, 0.3))
    unsampled = dataclasses.replace(
        drawn, by_size=tuple(dataclasses.replace(row, sampled_valid=None) for row in drawn.by_size)
    )
    assert rule(unsampled).data == (0.25, 0.25, 0.25, 0.25)


def test_holes_thin_out_where_they_hurt_and_thicken_where_mastered():
    previous = LakeConfig.uniform(SIZES, hole=0.3, wait=0.3)
    assert rule(evidence((0.2, 0.4, 0.6, 0.9), hole_free=30), previous).hole == pytest.approx((0.2, 0.2, 0.3, 0.4))
    assert rule(evidence((0.2, 0.4, 0.6, 0.9), hole_free=5), previous).hole == pytest.approx((0.3, 0.3, 0.3, 0.4))


def test_holes_stay_within_the_legal_range():
    thick, thin = (LakeConfig.uniform(SIZES, hole=hole, wait=0.3) for hole in (0.5, 0.0))
    assert max(rule(evidence((0.9,) * 4), thick).hole) == 0.5
    assert min(rule(evidence((0.1,) * 4, hole_free=40), thin).hole) == 0.0


def test_waits_follow_the_share_of_conflicts():
    previous = LakeConfig.uniform(SIZES, hole=0.3, wait=0.3)
    assert rule(evidence((0.5,) * 4, conflict_free=40), previous).wait == pytest.approx((0.65,) * 4)
    assert rule(evidence((0.5,) * 4, conflict_free=0), previous).wait == pytest.approx((0.15,) * 4)


def test_thinking_names_weakest_size_most_learnable_size_and_leading_failure():
    assert think(evidence((0.02, 0.5, 0.9, 0.3), conflict_free=30)) == (
        "Weakest size 3 (2% valid), most learnable size 4 (50%). Leading failure: conflict."
    )

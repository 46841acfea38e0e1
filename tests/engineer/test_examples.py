"""The examples' answers are legal, vary, and follow from what their context shows."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from engineer.context import VARIANTS, Context
from engineer.evidence import CHECKS, Evidence, KindEvidence
from engineer.examples import example, rule, think
from engineer.proposal import parse
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

KINDS = tuple(map(Kind.of, (3, 4, 5, 6)))


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, str, str, LakeConfig]]:
    rng = np.random.default_rng(0)
    return [example(rng, KINDS, rounds=3, epochs_per_round=2) for _ in range(200)]


def evidence(sampled: tuple[float, ...], **failures: int) -> Evidence:
    """100 boards a kind with 40 failures: those given, the rest at the goal."""
    first = {**dict.fromkeys(CHECKS, 0), "goal_reached": 40 - sum(failures.values()), **failures}
    rows = tuple(KindEvidence(kind, 100, 60, 50, first, first, p) for kind, p in zip(KINDS, sampled, strict=True))
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
    first, again, other = (example(np.random.default_rng(seed), KINDS, 3, 2) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_answers_vary_around_the_rule_for_the_same_context(examples):
    assert len({answer for _, _, answer, _ in examples}) == len(examples)


def test_data_follows_learnability():
    config = rule(evidence((0.02, 0.5, 0.9, 0.3)), KINDS)
    # p (1 - p) + .05 = .0696 .30 .14 .26; their sum .7696.
    assert config.data == pytest.approx((0.09, 0.39, 0.18, 0.34), abs=0.005)


def test_greedy_shares_stand_in_where_nothing_was_sampled():
    drawn = evidence((0.02, 0.5, 0.9, 0.3))
    unsampled = dataclasses.replace(
        drawn, by_kind=tuple(dataclasses.replace(row, sampled_valid=None) for row in drawn.by_kind)
    )
    assert rule(unsampled, KINDS).data == (0.25, 0.25, 0.25, 0.25)


def test_holes_thin_out_where_they_hurt_and_thicken_where_mastered():
    previous = LakeConfig.uniform(KINDS, hole=0.3, wait=0.3)
    many, few = (evidence((0.2, 0.4, 0.6, 0.9), hole_free=count) for count in (30, 5))
    assert rule(many, KINDS, previous).hole == pytest.approx((0.2, 0.2, 0.3, 0.4))
    assert rule(few, KINDS, previous).hole == pytest.approx((0.3, 0.3, 0.3, 0.4))


def test_holes_stay_within_the_legal_range():
    thick, thin = (LakeConfig.uniform(KINDS, hole=hole, wait=0.3) for hole in (0.5, 0.0))
    assert max(rule(evidence((0.9,) * 4), KINDS, thick).hole) == 0.5
    assert min(rule(evidence((0.1,) * 4, hole_free=40), KINDS, thin).hole) == 0.0


def test_waits_follow_the_share_of_conflicts():
    previous = LakeConfig.uniform(KINDS, hole=0.3, wait=0.3)
    assert rule(evidence((0.5,) * 4, conflict_free=40), KINDS, previous).wait == pytest.approx((0.65,) * 4)
    assert rule(evidence((0.5,) * 4, conflict_free=0), KINDS, previous).wait == pytest.approx((0.15,) * 4)


def test_thinking_names_weakest_size_most_learnable_size_and_leading_failure():
    assert think(evidence((0.02, 0.5, 0.9, 0.3), conflict_free=30)) == (
        "Weakest size 3 (2% valid), most learnable size 4 (50%). Leading failure: conflict."
    )


DESIGNED, TARGETS = (tuple(map(Kind.of, names)) for names in ((3, "4x3", "rooms5"), ("rooms5", "corridor5x3")))


def test_the_rule_takes_what_is_not_validated_for_half_solved_and_leaves_the_rest_of_it():
    first = {**dict.fromkeys(CHECKS, 0), "hole_free": 60, "conflict_free": 20}
    rows = tuple(KindEvidence(kind, 100, 20, 10, first, first, 0.2) for kind in TARGETS)
    validation = Evidence(rows, 0.2, 0.01, 4, 20.0, 0.0)
    config = rule(validation, DESIGNED, LakeConfig.uniform(DESIGNED, 0.3, 0.45))
    weights = np.array([0.25, 0.25, 0.16]) + 0.05
    assert config.kinds == DESIGNED and config.data == pytest.approx(weights / weights.sum(), abs=0.005)
    assert config.hole == pytest.approx((0.3, 0.3, 0.2))  # holes lead, few valid
    assert config.wait == pytest.approx((0.45, 0.45, 0.35))  # half way to a quarter of the failures
    assert think(validation).startswith("Weakest kind rooms5 (20% valid), most learnable kind rooms5 (20%).")


def test_examples_design_kinds_and_reason_about_those_that_are_validated():
    rng, shown = np.random.default_rng(0), set()
    for _ in range(40):
        context, thinking, answer, config = example(rng, DESIGNED, 4, 2, ("V6+E+X",), targets=TARGETS)
        assert config.kinds == DESIGNED and parse(answer) == config.to_dict()
        assert {row[0] for row in table(context, "kind n valid")} == {"rooms5", "corridor5x3", "all"}
        assert {row[1] for row in table(context, "round kind data")} <= {"3", "4x3", "rooms5"}
        assert {*re.findall(r"kind (\w+)", thinking)} <= {"rooms5", "corridor5x3"}
        trained = [row[1] for row in table(context, "set kind boards") if row[0] == "training"]
        shown.update(trained)
        assert trained == sorted(trained, key=Kind.of)
    assert shown == {"3", "4x3", "rooms5"}


LADDER = tuple(Kind.of(f"{size}x{agents}") for size in range(4, 11) for agents in (2, 3, 4))


def test_a_kind_that_only_trained_gets_data_by_its_training_answers():
    rng, checked = np.random.default_rng(0), Counter()
    for _ in range(40):
        context, _, _, config = example(rng, LADDER, 4, 2, ("F+R",), targets=LADDER[-2:])
        trained = {row[0]: int(row[1]) / 100 for row in table(context, "kind valid")}
        validated = {row[0]: int(row[5]) / 100 for row in table(context, "kind n valid")}
        shares = [(trained | validated).get(str(kind)) for kind in LADDER]
        p = np.array([0.5 if share is None else share for share in shares])
        weights = p * (1 - p) + 0.05
        assert abs(config.data - weights / weights.sum()).max() < 0.035  # four standard deviations of the noise
        checked.update(share if share is None else round(share, 1) for share in shares)
    assert min(checked[share] for share in (None, 0, 0.5, 1)) > 10


def test_an_example_of_v6_is_what_the_tiny_run_has_always_been_taught():
    rng = np.random.default_rng(3)
    drawn = [example(rng, KINDS[:2], rounds=3, epochs_per_round=2) for _ in range(3)][-1]
    assert "\n\n".join(drawn[:3]) + "\n" == Path(__file__).with_name("example.txt").read_text(encoding="utf-8")


def drawn(*contexts: str, count: int = 60, rounds: int = 4) -> list[tuple[str, str, str, LakeConfig]]:
    rng = np.random.default_rng(1)
    return [example(rng, KINDS, rounds, 2, contexts) for _ in range(count)]


def test_every_context_is_drawn_about_as_often_as_the_others():
    kinds = Counter(
        (context.count("Guideline:"), context.count("Training:")) for context, *_ in drawn("V1", "V2", "V6", count=300)
    )
    assert set(kinds) == {(0, 0), (1, 0), (1, 1)}
    assert all(70 < count < 130 for count in kinds.values())


def table(context: str, header: str) -> list[list[str]]:
    """Cells of the rows under the line that begins so."""
    _, found, rest = context.partition(f"\n{header}")
    block = rest.partition("\n\n")[0].splitlines()[1:] if found else []
    return [line.replace("|", " ").split() for line in block]


@pytest.mark.parametrize("name", [*VARIANTS, "V6+E+X"])
def test_holes_and_waits_follow_from_what_the_context_shows(name):
    checked = 0
    for context, _, _, config in drawn(name):
        past = {row[1]: (float(row[3]), float(row[4])) for row in table(context, "round size data")}
        for i, row in enumerate(table(context, "size n valid")[:-1]):
            valid, sampled, first = int(row[2]), int(row[5]), list(map(int, row[6:]))
            hole, wait = past.get(row[0], (0.25, 0.3))  # the last of the size's rows, where there is one
            leads = first[4] == max(first) and first.count(max(first)) == 1
            if abs(sampled - 50) > 1 and abs(sampled - 80) > 1 and (leads or first[4] < max(first) - 1):
                hole = np.clip(hole + 0.1 * ((sampled > 80) - (sampled < 50 and leads)), 0, 0.5)
                assert abs(config.hole[i] - hole) < 0.085  # four standard deviations of the noise
                checked += 1
            if valid < 80:
                wait = (wait + first[6] / (100 - valid)) / 2
                assert abs(config.wait[i] - wait) < 0.11
    assert checked > 150


def test_round_zero_is_drawn_at_random_where_it_is_shown():
    shown = {tuple(map(tuple, table(context, "round size data")[: len(KINDS)])) for context, *_ in drawn("V3")}
    assert len(shown) == 60 and all(row[0] == "0" for rows in shown for row in rows)


def test_the_reasons_of_past_rounds_are_what_examples_think():
    contexts = [context for context, *_ in drawn("V5") if "Your reasons" in context]
    assert 20 < len(contexts) < 60
    for context in contexts:
        reasons = re.findall(r"^round (\d): (.*)$", context, re.MULTILINE)
        assert [number for number, _ in reasons] == sorted({row[0] for row in table(context, "round size data")})
        assert all(re.match(r"Weakest size \d \(\d+% valid\), most learnable size", reason) for _, reason in reasons)


def test_extended_evidence_agrees_with_the_failure_table():
    for context, *_ in drawn("V6+E"):
        rows = {row[0]: row for row in table(context, "size n valid")}
        statistics = [row for row in table(context, "set size n tokens") if row[0] == "validation" and len(row) > 20]
        assert len(statistics) == len(KINDS)
        for row in statistics:
            failures = rows[row[1]]
            assert (row[2], row[7]) == (failures[1], failures[5])
            assert all(int(any_) >= int(first) for any_, first in zip(row[-8:], failures[-8:], strict=True))


def test_extended_evidence_could_have_been_saved(monkeypatch):
    seen = []
    monkeypatch.setattr(Context, "build", lambda self, evidence, *rest: seen.append(evidence) or "")
    drawn("V6+E+X")
    for extended in seen:
        assert Evidence.from_json(json.loads(json.dumps(extended.to_json()))) == extended
        assert [row.kind for row in extended.training.environment] == [row.kind for row in extended.training.by_kind]
    assert {failure.check for extended in seen for failure in extended.trajectories} == {"hole_free", "conflict_free"}


def test_failed_answers_fail_as_they_say():
    found = re.compile(r"^(\d) (hole|conflict)\n((?:[a-zA-Z.#<>^v+]+\n)+)0:(\S+)\n1:(\S+)$", re.MULTILINE)
    failures = [failure for context, *_ in drawn("V1+X") for failure in found.findall(context)]
    assert len(failures) > 60
    for size, check, board, *paths in failures:
        rows = board.split()
        assert len(rows) == int(size)
        walks = [[tuple(map(int, cell.split(","))) for cell in path[1:-1].split(")(")] for path in paths]
        for walk, letter in zip(walks, "ab", strict=True):
            (top, left), (bottom, right) = walk[0], walk[-1]
            assert rows[top][left] == letter and rows[bottom][right] == letter.upper()
        meet = any(one == other for one, other in zip(*walks, strict=True))
        assert meet == (check == "conflict")

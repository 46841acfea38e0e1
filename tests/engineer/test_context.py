"""The context says what the evidence says, and nothing that variant V6 leaves out."""

import re

import pytest

from engineer.context import PastRound, Training, build
from engineer.evidence import CHECKS, Evidence, SizeEvidence
from engineer.proposal import grammar
from jaxlake.config import LakeConfig


def row(size: int, n: int, valid: int, sampled: float | None = 0.25, **failures: int) -> SizeEvidence:
    first = {**dict.fromkeys(CHECKS, 0), **failures}
    return SizeEvidence(size, n, valid, valid // 2, first, first, sampled)


def evidence(*rows: SizeEvidence) -> Evidence:
    return Evidence(rows, 0.25, 0.01, 4, 20.0, 0.0)


NOW = evidence(row(3, 40, 30, hole_free=8, goal_reached=2), row(4, 40, 10, conflict_free=20, parsable=10))
BEFORE = evidence(row(3, 40, 20, hole_free=20), row(4, 40, 4, conflict_free=36))
RANDOM = LakeConfig(sizes=(3, 4), data=(0.915, 0.085), hole=(0.435, 0.015), wait=(0.775, 0.995))
DESIGNED = LakeConfig(sizes=(3, 4), data=(0.6, 0.4), hole=(0.2, 0.1), wait=(0.55, 0.35))


def rounds(number: int) -> list[PastRound]:
    history = [PastRound(0, RANDOM, BEFORE), PastRound(1, DESIGNED, NOW)]
    return history[:number]


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_failure_table_has_one_row_per_size_and_one_for_all():
    text = lines(build(NOW, rounds(1), Training(1, 3, 2)))
    header = text.index("size n valid +- optimal sampled | parse agents start bounds hole move conflict goal")
    # 30 of 40: Wilson .598 to .858, half of it 13 points. 8 and 2 of 40 are 20 and 5 %.
    assert text[header + 1] == "3 40 75 13 38 25 | 0 0 0 0 20 0 0 5"
    assert text[header + 2] == "4 40 25 13 12 25 | 25 0 0 0 0 0 50 0"
    assert text[header + 3] == "all 80 50 11 25 25 | 12 0 0 0 10 0 25 2"
    assert text[header + 4] == ""


def test_what_was_not_sampled_is_a_dash():
    assert "3 40 75 13 38 - | 0" in build(evidence(row(3, 40, 30, None, hole_free=10)), rounds(1), Training(1, 3, 2))


def test_round_zeros_random_configuration_never_appears():
    for number in (1, 2):
        text = build(NOW, rounds(number), Training(number, 3, 2))
        for ratio in (*RANDOM.data, *RANDOM.hole, *RANDOM.wait):
            assert not re.search(rf"(?<![\d.]){re.escape(f'{ratio:g}')}(?!\d)", text)


def test_the_first_design_has_no_history():
    assert "History" not in build(NOW, rounds(1), Training(1, 3, 2))


def test_history_pairs_a_configuration_with_validity_before_and_after_it():
    text = lines(build(NOW, rounds(2), Training(2, 3, 2)))
    header = text.index("round size data hole wait | before after | failure")
    assert text[header + 1] == "1 3 0.6 0.2 0.55 | 50 75 | hole 20"
    assert text[header + 2] == "1 4 0.4 0.1 0.35 | 10 25 | conflict 50"
    assert text[header + 3] == ""


def test_a_size_without_failures_has_none():
    solved = evidence(row(3, 40, 40), row(4, 40, 40))
    text = build(solved, [PastRound(0, RANDOM, BEFORE), PastRound(1, DESIGNED, solved)], Training(2, 3, 2))
    assert "1 3 0.6 0.2 0.55 | 50 100 | none" in text


def test_training_is_bookkeeping_only():
    text = build(NOW, rounds(1), Training(1, 3, 2))
    assert "round 1 of 0 to 2, 2 epochs per round, 6 epochs in total" in text
    for detail in ("GRPO", "reward", "learning rate", "KL", "advantage"):
        assert detail.lower() not in text.lower()


def test_the_answer_format_names_the_sizes_and_keys_of_the_grammar():
    last = lines(build(NOW, rounds(1), Training(1, 3, 2)))[-1]
    assert "with sizes 3 4." in last
    assert '{"3":{"data":d,"hole":h,"wait":w},...}' in last
    assert grammar((3, 4)).index("data") < grammar((3, 4)).index("hole") < grammar((3, 4)).index("wait")


@pytest.mark.parametrize("sizes", [(3, 4), tuple(range(3, 11))])
def test_fixed_text_stays_within_two_hundred_words(sizes):
    text = build(evidence(*(row(size, 40, 10, hole_free=30) for size in sizes)), rounds(1), Training(1, 3, 2))
    tables = [line for line in lines(text) if re.match(r"(\d+|all) ", line)]
    assert len(tables) == len(sizes) + 1
    assert len(text.split()) - sum(len(line.split()) for line in tables) - len(sizes) <= 200

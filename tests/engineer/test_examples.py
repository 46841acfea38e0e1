"""The examples' answers are legal, vary, and follow from what their context shows."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from engineer.context import VARIANTS, Module
from engineer.examples import draw_history, example
from jaxlake.config import LakeConfig, project
from jaxlake.kinds import Kind

KINDS = tuple(map(Kind.of, (3, 4, 5, 6)))


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, str, str, LakeConfig]]:
    rng = np.random.default_rng(0)
    return [example(rng, KINDS, rounds=3, epochs_per_round=2) for _ in range(200)]


def in_steps(ratios: tuple[float, ...]) -> bool:
    return bool(np.allclose(np.asarray(ratios) * 200, np.round(np.asarray(ratios) * 200), atol=1e-6))


def test_answers_ask_for_the_configuration_in_multiples_of_0_005(examples):
    for _, _, answer, config in examples:
        assert in_steps(config.data) and in_steps(config.hole) and in_steps(config.wait)
        assert sum(round(200 * d) for d in config.data) == 200
        assert project(json.loads(answer), config) == (config, ())


def test_thinking_can_be_read_off_the_table(examples):
    for context, thinking, answer, _ in examples:
        rows = [line.split() for line in context.splitlines() if line[:2] in ("3 ", "4 ", "5 ", "6 ")]
        sampled = {int(row[0]): int(row[5]) for row in rows}
        said = re.fullmatch(r"Weakest:([\d ;]+);most learnable:([\d ;]+);leading failure:(\w+)", thinking)
        weakest, ranked = ([tuple(map(int, quote.split())) for quote in said[i].split(";")] for i in (1, 2))
        assert dict(weakest) == sampled and [share for _, share in weakest] == sorted(sampled.values())
        assert dict(ranked) == sampled and [abs(share - 50) for _, share in ranked] == sorted(
            abs(share - 50) for share in sampled.values()
        )
        data = {int(kind): row["data"] for kind, row in json.loads(answer).items()}
        assert [data[size] for size, _ in ranked] == [0.48, 0.24, 0.16, 0.12]  # 1, 1/2, 1/3, 1/4 of their sum


DESIGNED, TARGETS = (tuple(map(Kind.of, names)) for names in ((3, "4x3", "rooms5"), ("rooms5", "corridor5x3")))


def test_examples_design_kinds_and_reason_about_those_that_are_validated():
    rng, shown = np.random.default_rng(0), set()
    for _ in range(40):
        context, thinking, answer, config = example(rng, DESIGNED, 4, 2, ("V6+R",), targets=TARGETS)
        assert config.kinds == DESIGNED and {*json.loads(answer)} == {
            str(k) for k, d in zip(DESIGNED, config.data, strict=True) if d
        }
        assert {row[0] for row in table(context, "kind n valid")} == {"rooms5", "corridor5x3", "all"}
        assert {row[1] for row in table(context, "round kind data")} <= {"3", "4x3", "rooms5"}
        assert thinking.split(":")[1].split()[0] in ("rooms5", "corridor5x3")  # the weakest of the validated
        trained = [row[0] for row in table(context, "kind valid")]
        shown.update(trained)
        assert trained == sorted(trained, key=Kind.of)
    assert shown == {"3", "4x3", "rooms5"}


LADDER = tuple(Kind.of(f"{size}x{agents}") for size in range(4, 11) for agents in (2, 3, 4))


def test_a_kind_that_only_trained_gets_data_by_its_training_answers_and_an_unknown_one_gets_none():
    rng, checked = np.random.default_rng(0), Counter()
    for _ in range(40):
        context, _, _, config = example(rng, LADDER, 4, 2, ("F+R",), targets=LADDER[-2:])
        trained = {row[0]: int(row[1]) for row in table(context, "kind valid")}
        validated = {row[0]: int(row[5]) for row in table(context, "kind n valid") if row[0] != "all"}
        shares = trained | validated
        given = {str(kind): data for kind, data in zip(LADDER, config.data, strict=True) if data}
        nearest = sorted(abs(share - 50) for share in shares.values())[:4]
        assert sorted(abs(shares[kind] - 50) for kind in given) == nearest
        assert [abs(shares[kind] - 50) for kind in sorted(given, key=given.get, reverse=True)] == nearest
        checked.update("validated" if kind in validated else "trained" for kind in given)
        checked["unknown"] += len(LADDER) - len(shares)
    assert min(checked[what] for what in ("validated", "trained", "unknown")) > 10


def test_training_answers_spread_as_beta_binomial_draws_around_the_valid_share():
    """A board's chance is Beta(2 p + .05, 2 (1 - p) + .05) for the kind's valid share p, and it is answered 8 times."""
    rng, deviations = np.random.default_rng(0), []
    for _ in range(100):
        last = draw_history(rng, LADDER, 4, [Module.R])[-1]
        rows, data = {row.kind: row for row in last.evidence.by_kind}, dict(zip(LADDER, last.config.data, strict=True))
        for row in last.evidence.training.by_kind:
            count, mean = round(1000 * data[row.kind]), (2 * rows[row.kind].valid_share + 0.05) / 2.1
            variance = mean * (1 - mean) * (2.1 + 8) / (8 * (2.1 + 1)) / count
            deviations.append((row.sampled_valid - mean) / variance**0.5)
            assert row.n == 8 * count and row.valid == round(row.n * row.sampled_valid)
    assert len(deviations) > 800 and abs(np.mean(deviations)) < 0.1 and abs(np.std(deviations) - 1) < 0.07


def test_an_example_of_v6_stays_what_it_is():
    rng = np.random.default_rng(3)
    drawn = [example(rng, KINDS[:2], rounds=3, epochs_per_round=2) for _ in range(3)][-1]
    assert "\n\n".join(drawn[:3]) + "\n" == Path(__file__).with_name("example.txt").read_text(encoding="utf-8")


def drawn(*contexts: str, count: int = 60, rounds: int = 4) -> list[tuple[str, str, str, LakeConfig]]:
    rng = np.random.default_rng(1)
    return [example(rng, KINDS, rounds, 2, contexts) for _ in range(count)]


def table(context: str, header: str) -> list[list[str]]:
    """Cells of the rows under the line that begins so."""
    _, found, rest = context.partition(f"\n{header}")
    block = rest.partition("\n\n")[0].splitlines()[1:] if found else []
    return [line.replace("|", " ").split() for line in block]


@pytest.mark.parametrize("name", [*VARIANTS, "V6+R"])
def test_holes_and_waits_follow_from_what_the_context_shows(name):
    checked = 0
    for context, _, _, config in drawn(name):
        for i, row in enumerate(table(context, "size n valid")[:-1]):
            sampled, first = int(row[5]), list(map(int, row[6:]))
            leader = max(range(8), key=lambda check: first[check])
            if sorted(first)[-1] > sorted(first)[-2] + 1:  # no tie once percents are rounded
                hole = 0.25 + 0.1 * ((sampled > 80) - (sampled < 50 and leader == 4))
                assert (config.hole[i], config.wait[i]) == pytest.approx((hole, 0.4 if leader == 6 else 0.3))
                checked += 1
    assert checked > 150

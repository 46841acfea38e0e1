"""The metrics of a step: counted one by one on any answers, and the same at every step."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlake.kinds import Kind
from jaxlake.types import ABSENT, Check, Costs, Verdict
from rl.learn.metrics import describe
from rl.learn.reward import Rewards

FAILURES = [f"failure/{check.name.lower()}" for check in Check]


def verdict_of(failed: list[set[Check]], optimal: list[bool]) -> Verdict:
    """Verdicts on answers that fail these checks."""
    checks = np.array([[check not in names for check in Check] for names in failed])
    cost = np.where(checks.all(axis=1), 9, ABSENT).astype(np.int32)
    costs = Costs(sum_of_costs=cost, sum_of_loss=cost, makespan=cost)
    return Verdict(checks=checks, valid=checks.all(axis=1), cost=cost, costs=costs, optimal=np.array(optimal))


def kinds_of(names: Iterable[int | str]) -> np.ndarray:
    return np.array([Kind.of(name) for name in names], object)


def rewards_of(count: int) -> Rewards:
    accuracy = np.linspace(0, 1, count, dtype=np.float32)
    length = np.linspace(-1, 0, count, dtype=np.float32)
    return Rewards(accuracy, length, 0.8)


KINDS = {3: "size_3", 4: "size_4", "4x3": "kind_4x3", "rooms5": "kind_rooms5"}
"""Kinds of boards, and what the metrics call them."""

answers = st.lists(
    st.tuples(
        st.sampled_from([*KINDS]),
        st.sets(st.sampled_from(Check)),  # what fails
        st.booleans(),  # optimal, if valid
        st.integers(0, 40),  # tokens
        st.booleans(),  # truncated
        st.integers(0, 4),  # group
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(answers)
def test_any_answers_are_counted_as_one_by_one(rows):
    kinds, failed, wish, tokens, truncated, groups = zip(*rows, strict=True)
    optimal = [best and not names for best, names in zip(wish, failed, strict=True)]
    found = describe(
        kinds_of(kinds),
        verdict_of(failed, optimal),
        rewards_of(len(rows)),
        np.array(tokens),
        np.array(truncated),
        np.array(groups),
        kinds_of(KINDS),
    )
    expected = {}
    for kind, name in KINDS.items():
        valid, best = (
            [not x for k, x in zip(kinds, failed, strict=True) if k == kind],
            [o for k, o in zip(kinds, optimal, strict=True) if k == kind],
        )
        expected[f"valid/{name}"] = sum(valid) / len(valid) if valid else math.nan
        expected[f"optimal/{name}"] = sum(best) / len(best) if best else math.nan
    for check in Check:
        expected[f"failure/{check.name.lower()}"] = sum(min(f, default=None) == check for f in failed) / len(rows)
    shares = []
    for group in set(groups):
        here = [not names for g, names in zip(groups, failed, strict=True) if g == group]
        shares.append(sum(here) / len(here))
    expected["all_valid_groups"] = sum(share == 1 for share in shares) / len(shares)
    expected["all_invalid_groups"] = sum(share == 0 for share in shares) / len(shares)
    expected["learnable"] = sum(0.2 <= share <= 0.8 for share in shares) / len(shares)
    ended = [length for length, cut in zip(tokens, truncated, strict=True) if not cut]
    expected["answer_tokens_ended"] = sum(ended) / len(ended) if ended else math.nan
    good = sum(not names for names in failed)
    expected |= {"answer_tokens": np.mean(tokens), "answer_tokens_max": max(tokens), "truncated": np.mean(truncated)}
    expected["optimal_given_valid"] = sum(optimal) / good if good else math.nan
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    assert found["valid"] + sum(found[name] for name in FAILURES) == pytest.approx(1)

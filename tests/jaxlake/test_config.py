"""Configs: what is legal, what a proposal is projected to, and how many instances a share is."""

import json
import math

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake.config import FIELDS, MAX_HOLE, LakeConfig, counts, project

SIZES = (3, 4, 6)
PREVIOUS = LakeConfig(SIZES, (0.5, 0.3, 0.2), (0.1, 0.2, 0.3), (0.0, 0.5, 1.0))

ratios = st.floats(0, 1, allow_subnormal=False)
anything = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.integers(), st.none(), st.booleans(), st.text(max_size=3)
)
proposals = st.dictionaries(
    st.sampled_from(["3", "4", "6", "7", "x"]),
    st.one_of(st.dictionaries(st.sampled_from([*FIELDS, "other"]), anything), anything),
)


@st.composite
def configs(draw):
    weights = draw(st.lists(st.floats(0.01, 1), min_size=len(SIZES), max_size=len(SIZES)))
    data = tuple(weight / sum(weights) for weight in weights)
    hole = tuple(draw(st.floats(0, MAX_HOLE)) for _ in SIZES)
    return LakeConfig(SIZES, data, hole, tuple(draw(ratios) for _ in SIZES))


@given(proposals, configs())
def test_projection_is_legal_and_idempotent(raw, previous):
    once, _ = project(raw, previous)
    twice, repairs = project(once.to_dict(), previous)
    assert twice == once
    assert repairs == ()


@given(configs(), configs())
def test_projection_keeps_legal_configs_exactly(config, previous):
    assert project(config.to_dict(), previous) == (config, ())


def test_projection_clips_rescales_and_says_so():
    raw = PREVIOUS.to_dict()
    raw["3"] = {"data": 1.5, "hole": 0.9, "wait": -0.2}
    projected, repairs = project(raw, PREVIOUS)
    assert projected.data == pytest.approx((0.75, 0.15, 0.1))
    assert projected.hole == (0.5, 0.2, 0.3)
    assert projected.wait == (0.0, 0.5, 1.0)
    assert repairs == (
        "hole of size 3 was 0.9: clipped to 0.5",
        "wait of size 3 was -0.2: clipped to 0",
        "data summed to 2: rescaled to 1",
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "0.5", True, 10**400])
def test_a_value_that_is_no_finite_number_is_the_previous_rounds(value):
    raw = PREVIOUS.to_dict()
    raw["4"]["hole"] = value
    projected, repairs = project(raw, PREVIOUS)
    assert projected == PREVIOUS
    assert repairs == ("hole of size 4 is not a finite number: kept 0.2",)


def test_a_missing_size_is_the_previous_rounds_without_data_and_unknown_ones_are_counted():
    raw = PREVIOUS.to_dict()
    raw["9"] = raw["10"] = raw.pop("6")
    projected, repairs = project(raw, PREVIOUS)
    assert (projected.hole, projected.wait, projected.data[-1]) == (PREVIOUS.hole, PREVIOUS.wait, 0)
    assert projected.data[:-1] == pytest.approx([d / sum(PREVIOUS.data[:-1]) for d in PREVIOUS.data[:-1]])
    assert repairs[0] == "2 unknown sizes dropped" and repairs[1].startswith("data summed to")


def test_data_that_is_zero_everywhere_is_the_previous_rounds():
    raw = {size: {**entry, "data": 0} for size, entry in PREVIOUS.to_dict().items()}
    projected, repairs = project(raw, PREVIOUS)
    assert projected == PREVIOUS
    assert repairs == ("data is zero for every size: kept from the previous round",)


def test_huge_data_does_not_overflow():
    raw = {size: {**entry, "data": 1e308} for size, entry in PREVIOUS.to_dict().items()}
    assert project(raw, PREVIOUS)[0].data == pytest.approx((1 / 3,) * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hole": (0.1, 0.7, 0.3)}, "hole of size 4 = 0.7 must be from 0 to 0.5"),
        ({"data": (-0.1, 0.6, 0.5)}, "data of size 3 = -0.1 must be from 0 to 1"),
        ({"data": (0.5, 0.3, 0.1)}, "data sums to 0.9 over kinds 3, 4, 6: it must sum to 1"),
        ({"kinds": (4, 3, 6)}, r"kinds = \(4, 3, 6\) must be different kinds in ascending order"),
    ],
)
def test_an_illegal_config_names_field_size_value_and_what_is_allowed(change, message):
    fields = {"kinds": SIZES, **{field: getattr(PREVIOUS, field) for field in FIELDS}}
    with pytest.raises(ValueError, match=message):
        LakeConfig(**{**fields, **change})


@given(configs())
def test_a_config_survives_json(config):
    assert LakeConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_sizes_may_be_numbers_as_yaml_reads_them():
    config = LakeConfig((3, "4x3", "rooms5"), (0.5, 0.25, 0.25), (0.1, 0.2, 0.3), (0, 1, 0.5))
    numbered = {3 if kind == "3" else kind: entry for kind, entry in config.to_dict().items()}
    assert LakeConfig.from_dict(numbered) == config and project(numbered, config) == (config, ())
    with pytest.raises(ValueError, match="must be different kinds"):
        LakeConfig.from_dict({**numbered, "3": numbered[3]})


@given(configs(), st.integers(0, 5000))
def test_counts_sum_to_the_total_and_are_within_one_of_the_share(config, total):
    result = counts(config, total)
    assert sum(result) == total
    assert all(abs(count - share * total) < 1 + 1e-6 for count, share in zip(result, config.data, strict=True))


def test_the_largest_remainder_gets_what_is_left():
    assert counts(LakeConfig(SIZES, (0.45, 0.35, 0.2), (0,) * 3, (0,) * 3), 11) == (5, 4, 2)


def test_random_configs_are_seeded_and_multiples_of_a_two_hundredth():
    config = LakeConfig.random((3, 4, 5, 6), jax.random.key(3))
    assert config == LakeConfig.random((3, 4, 5, 6), jax.random.key(3))
    assert config != LakeConfig.random((3, 4, 5, 6), jax.random.key(4))
    for value in config.data + config.hole + config.wait:
        assert value * 200 == pytest.approx(round(value * 200), abs=1e-9)

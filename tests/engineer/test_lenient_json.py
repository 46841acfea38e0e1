"""An answer that a model wrote without a grammar is read as it was meant, or not at all: then it is asked again."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engineer.lenient_json import READ, parse_lenient
from engineer.proposal import fault
from jaxlake.config import LakeConfig, project
from jaxlake.kinds import Kind, read_kinds

KINDS = (Kind.of(3), Kind.of(4))
MEANT = {"3": {"data": 0.2, "hole": 0.1, "wait": 0.3}, "4": {"data": 0.8, "hole": 0.25, "wait": 0.0}}
STRICT = json.dumps(MEANT)


@pytest.mark.parametrize(
    "text",
    [
        STRICT,
        f"Here it is:\n```json\n{json.dumps(MEANT, indent=2)}\n```\nIt has more 4x4 boards (in [0, 1]).",
        '<think>{"3": {"data": 1}}</think>' + STRICT,
        '{"environment": {"next": ' + STRICT + "}}",
        '{"config": ' + STRICT + ', "rationale": {"3": "mastered", "4": "not yet"}}',
        STRICT.replace("0.2,", '"0.2",'),
        "word " * READ + STRICT + " because" * READ,
    ],
)
def test_a_configuration_in_json_is_read_wherever_it_stands(text):
    assert parse_lenient(text, KINDS) == (MEANT, ())


@pytest.mark.parametrize(
    "text",
    [
        'First {"3": {"data": 1}}, or rather ' + STRICT + ' with {"note": "a } within"}.',
        STRICT + ' so not {"3": {"data": "less"}}',
        '{"config": ' + STRICT,
        repr(MEANT),
        repr({int(size): entry for size, entry in MEANT.items()}),
        STRICT.replace('"', ""),
        STRICT.replace("}", ",}"),
        STRICT.replace(",", ", // fewer\n # than\n /* before */").replace("}", ", // mastered\n}"),
        STRICT.replace("0.", "."),
    ],
)
def test_slips_in_the_json_are_overlooked_and_said(text):
    assert parse_lenient(text, KINDS) == (MEANT, ("not strict JSON",))


def test_what_is_no_number_is_none_of_the_configuration():
    read, _ = parse_lenient('{"3": {"data": 0.5, "hole": "many", "wait": true, "data2": null}}', KINDS)
    assert read["3"]["data"] == 0.5 and all(math.isnan(read["3"][name]) for name in ("hole", "wait", "data2"))


def test_kinds_that_the_run_lacks_are_dropped_and_said():
    kinds = (Kind.of(3), Kind.of("4x4"), Kind.of("rooms6"))
    answer = {"3": {"data": 0.2}, "4x4": {"data": 0.3}, "rooms6": {"data": 0.5, "hole": 0.25}}
    assert parse_lenient(json.dumps(answer), kinds) == (answer, ())
    read, _ = parse_lenient(json.dumps(answer | {"rooms8": {"data": 1}, "maze6x3": {"data": 1}}), kinds)
    config, repairs = project(read, LakeConfig.uniform(kinds, 0.1, 0.2))
    assert config.kinds == kinds and config.data == pytest.approx((0.2, 0.3, 0.5))
    assert "2 unknown kinds dropped" in repairs


@pytest.mark.parametrize(
    "text",
    [
        *("", "more holes", "{}", "[]", "{3, 4}", '{"3": 0.2}', '{"data": 0.2, "hole": 0.1}', f"<think>{STRICT}"),
        *('{"3": {"data": 0.2, "hole": 0.1', '{"data": {"3": 0.2, "4": 0.8}, "hole": 0.1}'),
        '[{"size":3, "data":0.2, "hole":0.1, "wait":0.3}, {"size":4, "data":0.8, "hole":0.25, "wait":0}]',
    ],
)
def test_what_is_no_configuration_is_asked_for_again(text):
    read, _ = parse_lenient(text, KINDS)
    assert fault(text, read, KINDS)


entries = st.dictionaries(st.sampled_from(["data", "hole", "wait"]), st.floats(0, 1), min_size=1)


@given(st.dictionaries(st.sampled_from(["3", "4", "7"]), entries, min_size=1), st.sampled_from([None, 1]))
def test_strict_json_is_read_as_it_is(value, indent):
    assert parse_lenient(json.dumps(value, indent=indent), (*KINDS, Kind.of(7))) == (value, ())


def test_a_configuration_of_many_kinds_is_read_with_a_slip():
    kinds = read_kinds(["3-10", "3-10x3", "4-7x4", "rooms5-10"])
    config = LakeConfig.uniform(kinds, 0.125, 0.125)
    text = json.dumps(config.to_dict(), indent=1).replace("}", ",}")
    assert len(text) > 1000 and parse_lenient(text, kinds) == (config.to_dict(), ("not strict JSON",))

"""What a model writes without a grammar is read as it was meant, or not at all: then it is asked again."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engineer.lenient_json import READ, brace_pairs, parse_lenient
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
        'First {"3": {"data": 1}}, or rather ' + STRICT + ' with {"note": "a } within"}.',
        '{"config": ' + STRICT + ', "rationale": {"3": "mastered", "4": "not yet"}}',
        '{"environment": {"next": ' + STRICT + "}}",
        '{"config": ' + STRICT,
        STRICT.replace("0.3", "3e-1"),
        STRICT.replace("0.2,", '"0.2",'),
        "word " * READ + STRICT + " because" * READ,
    ],
)
def test_a_configuration_in_json_is_found_wherever_it_stands(text):
    assert parse_lenient(text, KINDS) == (MEANT, ())


@pytest.mark.parametrize(
    "text",
    [
        repr(MEANT),
        repr({int(size): entry for size, entry in MEANT.items()}),
        STRICT.replace('"', ""),
        STRICT.replace('"', "`"),
        STRICT.replace("}", ",}"),
        STRICT.replace(",", ", // fewer\n # than\n /* before */").replace("}", ", // mastered\n}"),
        STRICT.replace("0.", "."),
    ],
)
def test_slips_in_the_json_are_overlooked_and_said(text):
    assert parse_lenient(text, KINDS) == (MEANT, ("not strict JSON",))


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (STRICT.replace('"3"', '"3x3"'), "'3x3' is read as '3'"),
        (STRICT.replace('"3"', '"3 × 3 board"'), "'3 × 3 board' is read as '3'"),
        (STRICT.replace('"3"', '"size_3"'), "'size_3' is read as '3'"),
        (STRICT.replace('"4"', '"N=4"'), "'N=4' is read as '4'"),
        (STRICT.replace("data", "data_ratio"), "'data_ratio' is read as 'data'"),
        (STRICT.replace("hole", "Hole ratio"), "'Hole ratio' is read as 'hole'"),
        (STRICT.replace("wait", "waits"), "'waits' is read as 'wait'"),
        (STRICT.replace("0.25", '"25 %"'), "percent signs"),
        (STRICT.replace("0.2,", "20,").replace("0.8", "80"), "data is in percent"),
    ],
)
def test_other_names_and_percent_are_understood_and_said(text, note):
    assert parse_lenient(text, KINDS) == (MEANT, (note,))


@pytest.mark.parametrize(
    ("column", "ratios"),
    [((20, 30), (0.2, 0.3)), ((0, 2), (0, 0.02)), ((100, 1), (1, 0.01)), ((12.5, 1.5), (0.125, 0.015))],
)
def test_a_column_that_makes_no_sense_as_ratios_is_percent(column, ratios):
    read, notes = parse_lenient(json.dumps({"3": {"hole": column[0]}, "4": {"hole": column[1]}}), KINDS)
    assert (read["3"]["hole"], read["4"]["hole"]) == pytest.approx(ratios)
    assert notes == ("hole is in percent",)


@pytest.mark.parametrize("column", [(1, 1), (0, 1), (1.5, 0), (1.5, 0.3), (0.5, 20), (-20, 30), (20, 101)])
def test_any_other_column_is_left_to_the_projection(column):
    read, notes = parse_lenient(json.dumps({"3": {"hole": column[0]}, "4": {"hole": column[1]}}), KINDS)
    assert (read["3"]["hole"], read["4"]["hole"]) == column
    assert notes == ()


def test_what_is_no_number_has_no_say_in_whether_a_column_is_percent():
    read, _ = parse_lenient('{"3": {"hole": 20%}, "4": {"hole": none}}', KINDS)
    assert read["3"]["hole"] == 0.2
    assert math.isnan(read["4"]["hole"])
    read, _ = parse_lenient('{"3": {"hole": 20}, "4": {"hole": null}}', KINDS)
    assert read["3"]["hole"] == 0.2
    assert math.isnan(read["4"]["hole"])


def test_a_draft_in_thinking_that_never_ended_is_no_answer():
    assert parse_lenient(f"<think>{STRICT}", KINDS) == (None, ())


def test_an_object_without_a_number_leaves_the_word_to_an_earlier_one():
    assert parse_lenient(STRICT + ' so not {"3": {"data": "less"}}', KINDS) == (MEANT, ())


OF_KINDS = {"3": {"data": 0.2}, "4x4": {"data": 0.3}, "rooms6": {"data": 0.5, "hole": 0.25}}
MIXED = (Kind.of(3), Kind.of("4x4"), Kind.of("rooms6"))


def test_kinds_are_read_by_the_names_that_the_run_has_for_them():
    text = json.dumps(OF_KINDS)
    assert parse_lenient(text, MIXED) == (OF_KINDS, ())
    assert parse_lenient(text.replace('"', "'"), MIXED) == (OF_KINDS, ("not strict JSON",))


def test_what_is_a_kind_with_four_agents_here_is_a_size_where_the_run_has_no_such_kind():
    text = json.dumps(OF_KINDS)
    read, notes = parse_lenient(text, (Kind.of(3), Kind.of(4), Kind.of("rooms6")))
    assert read == {"3": OF_KINDS["3"], "4": OF_KINDS["4x4"], "rooms6": OF_KINDS["rooms6"]}
    assert notes == ("'4x4' is read as '4'",)


def test_kinds_that_the_run_lacks_are_dropped_and_said():
    read, _ = parse_lenient(json.dumps(OF_KINDS | {"rooms8": {"data": 1}, "maze6x3": {"data": 1}}), MIXED)
    config, repairs = project(read, LakeConfig.uniform(MIXED, 0.1, 0.2))
    assert config.kinds == MIXED and config.data == pytest.approx((0.2, 0.3, 0.5))
    assert "2 unknown kinds dropped" in repairs


def test_where_nothing_can_be_used_the_fault_still_says_why():
    text = '{"size_7": {"data": 1}}'
    read, _ = parse_lenient(text, KINDS)
    assert read == {"7": {"data": 1.0}}
    assert fault(text, read, KINDS).startswith("none of the sizes 3, 4 in the answer")


@pytest.mark.parametrize(
    "text",
    [
        *("", "more holes", "{}", "[]", "{3, 4}", '{"3": 0.2}', '{"data": 0.2, "hole": 0.1}', STRICT[:-1]),
        *(STRICT.replace(",", ""), '{"3": {"data": 0.2, "hole": 0.1', '{"data": {"3": 0.2, "4": 0.8}, "hole": 0.1}'),
        '[{"size":3, "data":0.2, "hole":0.1, "wait":0.3}, {"size":4, "data":0.8, "hole":0.25, "wait":0}]',
    ],
)
def test_what_is_no_configuration_or_none_that_is_easily_read_is_asked_for_again(text):
    read, _ = parse_lenient(text, KINDS)
    assert read is None and fault(text, read, KINDS)


entries = st.dictionaries(st.sampled_from(["data", "hole", "wait"]), st.floats(0, 1), min_size=1)


@given(st.dictionaries(st.sampled_from(["3", "4", "7"]), entries, min_size=1), st.sampled_from([None, 1]))
def test_strict_json_is_read_as_it_is(value, indent):
    assert parse_lenient(json.dumps(value, indent=indent), (*KINDS, Kind.of(7))) == (value, ())


def test_a_configuration_of_many_kinds_over_many_lines_is_read():
    kinds = read_kinds(["3-10", "3-10x3", "4-10x4", "5-10x5", "rooms5-10", "maze5-10", "crossing5-10"])
    config = LakeConfig.uniform(kinds, 0.125, 0.125)
    text = json.dumps(config.to_dict(), indent=8)
    assert len(text) > 4000 and parse_lenient(text, kinds) == (config.to_dict(), ())


@given(st.text(alphabet="{}[] a", max_size=30))
def test_a_closing_brace_takes_the_nearest_open_one(text):
    pairs, stack = [], []
    for position, mark in enumerate(text):
        if mark == "{":
            stack.append(position)
        elif mark == "}" and stack:
            pairs.append((stack.pop(), position + 1))
    assert brace_pairs(text) == pairs[::-1]


def test_braces_in_a_string_do_not_count_and_quotes_in_prose_open_none():
    text = '5" wide {"a": "}{"} {"b": "\\"}"}'
    assert [text[start:end] for start, end in brace_pairs(text)] == ['{"b": "\\"}"}', '{"a": "}{"}']

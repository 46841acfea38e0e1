"""What a model writes without a grammar is read as it was meant."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engineer.loose import READ, brackets, parse_loosely
from engineer.proposal import fault, parse

SIZES = (3, 4)
MEANT = {"3": {"data": 0.2, "hole": 0.1, "wait": 0.3}, "4": {"data": 0.8, "hole": 0.25, "wait": 0.0}}
STRICT = json.dumps(MEANT)
LETTERS = STRICT.replace('"data"', '"r"').replace('"hole"', '"H"').replace('"wait"', '"w"')
LIST = '[{"size":3, "data":0.2, "hole":0.1, "wait":0.3}, {"size":4, "data":0.8, "hole":0.25, "wait":0}]'
COLUMNS = '{"data": {"3":0.2, "4":0.8}, "hole": {"3":0.1, "4":0.25}, "wait": {"3":0.3, "4":0}}'
FROM_THE_LAST = '{"sizes": ["4x4", "3x3"], "data": [0.8, 0.2], "hole": [0.25, 0.1], "wait": [0, 0.3]}'


@pytest.mark.parametrize(
    "text",
    [
        STRICT,
        f"Here it is:\n```json\n{json.dumps(MEANT, indent=2)}\n```\nIt has more 4x4 boards (in [0, 1]).",
        '<think>{"3": {"data": 1}}</think>' + STRICT,
        'First {"3": {"data": 1}}, or rather ' + STRICT + ' with {"note": "a } within"}.',
        '{"config": ' + STRICT + ', "rationale": {"3": "mastered", "4": "not yet"}}',
        '{"environment": {"next": ' + STRICT + "}}",
        STRICT.replace("0.3", "3e-1"),
    ],
)
def test_a_configuration_in_json_is_found_wherever_it_stands(text):
    assert parse_loosely(text, SIZES) == (MEANT, ())


@pytest.mark.parametrize(
    ("text", "slip"),
    [
        (repr(MEANT), "single quotes"),
        (STRICT.replace('"', ""), "names without quotes"),
        (STRICT.replace('"', "`"), "names without quotes"),
        (STRICT.replace("}", ",}"), "commas before an end"),
        (STRICT.replace(",", ""), "commas missing"),
        (STRICT.replace(",", ", // fewer\n # than\n /* before */"), "comments"),
        (STRICT.replace("}}", ", ...}}"), "names without values"),
        (STRICT.replace("0.", "0,"), "decimal commas"),
        (STRICT.replace("}}", "}]"), "brackets of two kinds"),
        (STRICT[:-1], "the end is missing"),
        ('{"config": ' + STRICT[:-1], "the end is missing"),
    ],
)
def test_slips_in_the_json_are_overlooked_and_said(text, slip):
    assert parse_loosely(text, SIZES) == (MEANT, (f"not strict JSON: {slip}",))


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (STRICT.replace('"3"', '"3x3"'), "sizes are written like '3x3'"),
        (STRICT.replace('"3"', '"3 × 3 board"'), "sizes are written like '3 × 3 board'"),
        (STRICT.replace('"3"', '"size_3"'), "sizes are written like 'size_3'"),
        (STRICT.replace('"4"', '"N=4"'), "sizes are written like 'N=4'"),
        (STRICT.replace("data", "data_ratio"), "data is called 'data_ratio'"),
        (STRICT.replace("data", "SHARE"), "data is called 'SHARE'"),
        (STRICT.replace("hole", "hole ratio"), "hole is called 'hole ratio'"),
        (STRICT.replace("wait", "waits"), "wait is called 'waits'"),
        (STRICT.replace("0.2,", '"0.2",'), "numbers in quotes"),
        (STRICT.replace("0.25", "1/4"), "fractions"),
        (STRICT.replace("0.25", "25 %"), "percent signs"),
        (STRICT.replace("0.2,", "20,").replace("0.8", "80"), "data is in percent"),
        (STRICT.replace('"data"', '"why": "more", "data"'), "2 unknown names dropped"),
        (LIST, "entries in a list"),
        ('{"boards": ' + LIST + "}", "entries in a list"),
        (COLUMNS, "a column for each ratio"),
        ('{"data": [0.2, 0.8], "hole": [0.1, 0.25], "wait": [0.3, 0]}', "a column for each ratio"),
        (FROM_THE_LAST, "a column for each ratio"),
    ],
)
def test_other_names_and_other_arrangements_are_understood_and_said(text, note):
    assert parse_loosely(text, SIZES) == (MEANT, (note,))


def test_the_papers_letters_are_understood_in_either_case():
    read, said = parse_loosely(LETTERS, SIZES)
    assert read == MEANT
    assert said == ("data is called 'r'", "hole is called 'H'", "wait is called 'w'")


def test_one_value_beside_columns_holds_for_every_size():
    read, said = parse_loosely('{"data": {"3": 0.2, "4": 0.8}, "hole": 0.1}', SIZES)
    assert read == {"3": {"data": 0.2, "hole": 0.1}, "4": {"data": 0.8, "hole": 0.1}}
    assert said == ("a column for each ratio", "hole is one value for all sizes")


@pytest.mark.parametrize(
    ("column", "ratios"),
    [((20, 30), (0.2, 0.3)), ((0, 2), (0, 0.02)), ((100, 1), (1, 0.01)), ((12.5, 1.5), (0.125, 0.015))],
)
def test_a_column_that_makes_no_sense_as_ratios_is_percent(column, ratios):
    read, said = parse_loosely(json.dumps({"3": {"hole": column[0]}, "4": {"hole": column[1]}}), SIZES)
    assert (read["3"]["hole"], read["4"]["hole"]) == pytest.approx(ratios)
    assert said == ("hole is in percent",)


@pytest.mark.parametrize("column", [(1, 1), (0, 1), (1.5, 0), (1.5, 0.3), (0.5, 20), (-20, 30), (20, 101)])
def test_any_other_column_is_left_to_the_projection(column):
    read, said = parse_loosely(json.dumps({"3": {"hole": column[0]}, "4": {"hole": column[1]}}), SIZES)
    assert (read["3"]["hole"], read["4"]["hole"]) == column
    assert said == ()


def test_a_percent_sign_speaks_for_its_own_value_only():
    read, _ = parse_loosely('{"3": {"hole": 20%, "wait": 150%}, "4": {"hole": 0.5, "wait": 30}}', SIZES)
    assert read == {"3": {"hole": 0.2, "wait": 1.5}, "4": {"hole": 0.5, "wait": 0.3}}


def test_what_is_no_number_has_no_say_in_whether_a_column_is_percent():
    read, _ = parse_loosely('{"3": {"hole": 20}, "4": {"hole": null}}', SIZES)
    assert read["3"]["hole"] == 0.2
    assert math.isnan(read["4"]["hole"])


def test_a_number_that_was_cut_off_is_not_guessed():
    read, _ = parse_loosely('{"3": {"data": 0.2, "hole": 0.1', SIZES)
    assert read["3"]["data"] == 0.2
    assert math.isnan(read["3"]["hole"])


def test_a_draft_in_thinking_that_never_ended_is_no_answer():
    assert parse_loosely(f"<think>{STRICT}", SIZES) == (None, ())


def test_an_object_without_a_number_leaves_the_word_to_an_earlier_one():
    assert parse_loosely(STRICT + ' so not {"3": {"data": "less"}}', SIZES) == (MEANT, ())


def test_where_nothing_can_be_used_the_fault_still_says_why():
    text = '{"size_7": {"data": 1}}'
    read, _ = parse_loosely(text, SIZES)
    assert read == {"7": {"data": 1.0}}
    assert fault(text, read, SIZES).startswith("none of the sizes 3, 4 in the answer")


@pytest.mark.parametrize("text", ["", "more holes", "{}", "[]", "{3, 4}", '{"3": 0.2}', '{"data": 0.2, "hole": 0.1}'])
def test_what_is_no_configuration_reads_as_none(text):
    assert parse_loosely(text, SIZES) == (None, ())


def test_only_the_end_of_a_long_answer_is_read_and_that_is_said():
    read, said = parse_loosely("word " * READ + STRICT + " because" * READ, SIZES)
    assert read == MEANT
    assert said == (f"only the last {READ:,} characters were read",)


entries = st.dictionaries(st.sampled_from(["data", "hole", "wait"]), st.floats(0, 1), min_size=1)


@given(st.dictionaries(st.sampled_from(["3", "4", "7"]), entries, min_size=1), st.sampled_from([None, 1]))
def test_strict_json_reads_the_same_with_and_without_tolerance(value, indent):
    text = json.dumps(value, indent=indent)
    assert parse_loosely(text, (3, 4, 7)) == (value, ())
    assert parse(text) == value


@given(st.text(alphabet="{}[] a", max_size=30))
def test_a_closing_bracket_takes_the_nearest_open_one_of_its_kind(text):
    pairs, stack = [], []
    for position, mark in enumerate(text):
        kind = {"}": "{", "]": "["}.get(mark)
        if mark in "{[":
            stack.append(position)
        elif kind in [text[start] for start in stack]:
            while text[stack[-1]] != kind:
                stack.pop()
            pairs.append(stack.pop())
    assert brackets(text) == (pairs[::-1], stack)


def test_brackets_in_a_string_do_not_count_and_quotes_in_prose_open_none():
    text = '5" wide {"a": "}{"} {"b": "\\"}"}'
    assert brackets(text) == ([text.index('{"b'), text.index('{"a')], [])

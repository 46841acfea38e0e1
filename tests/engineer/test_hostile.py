"""No text that a model might write does any harm: a legal configuration, a record, and no time to speak of."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer.lenient_json import READ, parse_lenient
from engineer.proposal import Proposal, fault
from jaxlake.config import LakeConfig, project

SECONDS = 5.0
"""A second for 4,000 braces, on a machine that does other things beside."""
PREVIOUS = LakeConfig.uniform((3, 4, 5, 6), hole=0.3, wait=0.5)
ECHO = (
    'Answer with one JSON object {"3":{"data":d,"hole":h,"wait":w},...}, sizes 3, 4, 5, 6, nothing else:\n',
    "size data hole wait\n3 0.25 0.3 0.5\n4 0.25 0.3 0.5\n5 0.25 0.3 0.5\n6 0.25 0.3 0.5\n",
    'round 1: {"3":{"data":0.5,"hole":0.1,"wait":0},"4":{"data":0.5,"hole":0.2,"wait":1}}\n',
)
UNITS = [
    *("{", "}", "[{", "{}", "[]", "{]", '"', '{"', '\\"', "'", "{'", "{a:", "{a\n", "{/*", "{//\n", "9", " ", "\0"),
    *("\ud800", "</think>", "<think>", '{"3":', '{"3":{}},', '{"3":{"data":', '{"3":{"data":1}}', '{"size":3},'),
    *('{"data":[', "x {", *ECHO),
]
"""What a megabyte is made of."""


def survive(text: str) -> float:
    """Takes a text through all that is done with an answer; returns processor seconds."""
    start = time.process_time()
    parsed, repairs = parse_lenient(text, PREVIOUS.kinds)
    error = fault(text, parsed, PREVIOUS.kinds)
    config, changes = (PREVIOUS, ()) if error else project(parsed, PREVIOUS)
    lines, errors = (*repairs, *changes), () if error is None else (error,)
    proposal = Proposal(
        engineer="api",
        raw=text,
        parsed=parsed,
        projected=config,
        repairs=lines,
        fallback=bool(errors),
        errors=errors,
        candidates=(config,),
    )
    record = json.dumps(proposal.to_json(), allow_nan=False)
    seconds = time.process_time() - start

    assert config.kinds == PREVIOUS.kinds  # A LakeConfig is legal or raises.
    assert project(config.to_dict(), PREVIOUS) == (config, ())
    assert all(len(line) < 600 and len(line.splitlines()) == 1 for line in lines + errors)
    assert json.loads(record)["projected"] == config.to_dict()
    return seconds


@pytest.mark.parametrize("unit", UNITS)
def test_a_megabyte_of_anything_takes_no_longer(unit):
    for text in (unit * (1_000_000 // len(unit)), "{" + unit * (READ // len(unit)) + "}"):
        assert survive(text) < SECONDS


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="{}[]\":,'#/%x=0.13datahole<think>\n ")))
def test_any_text_at_all_is_survived(text):
    survive(text)

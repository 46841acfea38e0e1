"""No text that a model might write does any harm: a legal configuration, a record, and no time to speak of."""

import gc
import json
import random
import time
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer.lenient_json import LONGEST, READ, TRIES, parse_lenient
from engineer.proposal import Proposal, fault, to_answer
from jaxlake.config import LakeConfig, covered, project

SECONDS = 0.05
PREVIOUS = LakeConfig.uniform((3, 4, 5, 6), hole=0.3, wait=0.5)
ECHO = (
    'Answer with one JSON object {"3":{"data":d,"hole":h,"wait":w},...}, sizes 3, 4, 5, 6, nothing else:\n',
    "size data hole wait\n3 0.25 0.3 0.5\n4 0.25 0.3 0.5\n5 0.25 0.3 0.5\n6 0.25 0.3 0.5\n",
    'round 1: {"3":{"data":0.5,"hole":0.1,"wait":0},"4":{"data":0.5,"hole":0.2,"wait":1}}\n',
)
NUMBERS = [
    *("9" * 400, "-" + "9" * 400, "1" + "0" * 5000, "0." + "0" * 400 + "1", "1e999", "-1e999", "1e-999", "1e308"),
    *("5e-324", "NaN", "Infinity", "-Infinity", "nan", "-inf", "null", "true", "[]", "{}", '""', "x", "-0", "0x1F"),
    *("1_0", ".5", "5.", "+1", "1e", "--1", "1/0", "1/3", "0/0", "1/1/1", "1e308/1e-308", "50%", "%", "-5%", "1e308%"),
    *("1,5", "0.1.2", "٠.٢", "２０", "²", "Ⅷ", "½", "०.५", '"\\u0660"', "0.2", "0.5", "1", "20"),
]  # fmt: skip
PIECES = [
    *"{}[]\":,'#/\\\n%=-.01239",
    *("</think>", "<think>", "```", "//", "/*", "data", "hole", "wait", "size", '"3":{', '{"3":{"data":', "null"),
]
UNITS = [
    *("{", "}", "[{", "{}", "[]", "{]", '"', '{"', '\\"', "'", "{'", "{a:", "{a\n", "{/*", "{//\n", "9", " ", "\0"),
    *("\ud800", "</think>", "<think>", '{"3":', '{"3":{}},', '{"3":{"data":', '{"3":{"data":1}}', '{"size":3},'),
    *('{"data":[', "x {", *ECHO),
]
"""What a megabyte is made of."""


def texts() -> Iterator[str]:
    """10,000 of them, 1,000 of each family."""
    rng = random.Random(0)
    answer = to_answer(PREVIOUS)

    def some(of, most: int) -> str:
        return "".join(rng.choices(of, k=rng.randint(1, most)))

    def number() -> str:
        return rng.choice(NUMBERS)

    def entry() -> str:
        data, hole, wait = (rng.choice([number(), "0.25", "0.5"]) for _ in range(3))
        return f'{{"data":{data},"hole":{hole},"wait":{wait}}}'

    def by_size() -> str:
        return "{" + ",".join(f'"{kind}":{entry()}' for kind in PREVIOUS.kinds) + "}"

    def columns() -> str:
        return f'{{"data":{{"3":{number()},"4":{number()}}},"hole":{number()},"wait":[{number()},{number()}]}}'

    def listed() -> str:
        return f'[{{"size":{number()},"data":{number()}}},{{"n":3,"hole":{number()}}},{number()}]'

    def damaged() -> str:
        text = list(answer)
        for _ in range(rng.randint(1, 8)):
            place = rng.randrange(len(text))
            text[place : place + rng.choice([0, 1, 1, 5])] = rng.choice(PIECES)
        return "".join(text)

    def nested() -> str:
        text = rng.choice([answer, number(), entry(), damaged()])
        for _ in range(rng.randint(1, 40)):
            around = rng.choice(['{"3":%}', "[%]", '{"config":%,"a":[1]}', "{%", "[%", '"%"', "%}", "%]", "{'4':%"])
            text = around.replace("%", text)
        return text

    def unprintable() -> str:
        return damaged().replace(rng.choice('a0"{'), rng.choice("\0\ud800\udfff\ufeff\u202e"), rng.randint(1, 9))

    def unicode() -> str:
        return "".join(map(chr, rng.choices(range(0x110000), k=rng.randint(1, 100))))

    def echo() -> str:
        return some(ECHO, 4) + damaged() + some(ECHO, 4)

    def pieces() -> str:
        return some(PIECES, 80)

    for family in (by_size, columns, listed, damaged, nested, unprintable, unicode, echo, pieces):
        yield from (family() for _ in range(1000))
    yield from (some([chr(code) for code in range(128)], 200) for _ in range(1000))


def survive(text: str) -> float:
    """Takes a text through all that is done with an answer; returns processor seconds."""
    start = time.process_time()
    parsed, repairs = parse_lenient(text, PREVIOUS.kinds)
    error = fault(text, parsed, PREVIOUS.kinds)
    projected, changes = (PREVIOUS, ()) if error else project(parsed, PREVIOUS)
    config, raised = covered(projected, 0.05)
    lines, errors = (*repairs, *changes, *raised), () if error is None else (error,)
    proposal = Proposal(
        engineer="api",
        raw=text,
        parsed=parsed,
        projected=config,
        repairs=lines,
        fallback=bool(errors),
        errors=errors,
        candidates=(projected,),
    )
    record = json.dumps(proposal.to_json(), allow_nan=False)
    seconds = time.process_time() - start

    assert config.kinds == PREVIOUS.kinds and min(config.data) >= 0.05  # A LakeConfig is legal or raises.
    assert project(config.to_dict(), PREVIOUS) == (config, ())
    assert all(len(line) < 600 and len(line.splitlines()) == 1 for line in lines + errors)
    assert json.loads(record)["projected"] == config.to_dict()
    return seconds


def survived(texts: Iterable[str]) -> int:
    """How many texts there were, each of them taken within the time."""
    gc.collect()
    gc.disable()  # A collection takes its time over all that other tests left behind.
    try:
        for count, text in enumerate(texts, start=1):
            seconds = survive(text)
            if seconds > SECONDS:  # The machine's fault, unless it is as slow again.
                seconds = min(survive(text) for _ in range(3))
            assert seconds <= SECONDS, (count, text[:100])
    finally:
        gc.enable()
    return count


@pytest.mark.heavy
def test_10000_hostile_texts_give_a_legal_configuration_and_a_record_in_50_ms_each():
    assert survived(texts()) == 10_000


def test_a_megabyte_of_anything_takes_no_longer():
    assert survived(unit * (1_000_000 // len(unit)) for unit in UNITS) == len(UNITS)


def test_what_fills_all_that_is_read_takes_no_longer():
    around = [("", ""), ("{", "}"), ("[", "]"), ('{"3":{', "}}"), ('{"data":{', "}}"), ('{"data":[', "]}")]
    filled = [head + unit * ((READ - 20) // len(unit)) + tail for unit in UNITS for head, tail in around]
    around = [("{", "}"), ('{"3":', "}"), ('{"3":[', "]}"), ("[{", "}]")]
    deep = [head * 1900 + within + tail * 1900 for head, tail in around for within in ("", "1", "1,", "x {")]
    slips = [*UNITS, "a,", "x:y,", "'a',", "'\\'", "a /", "n "]
    tried = ["{x " * TRIES + slip * ((LONGEST - 50) // len(slip)) + "}" * TRIES for slip in slips]
    assert survived(filled + deep + tried) == len(filled) + len(deep) + len(tried)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="{}[]\":,'#/%x=0.13datahole<think>\n ")))
def test_any_text_at_all_is_survived(text):
    survive(text)

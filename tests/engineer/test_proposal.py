"""The grammar forces a readable configuration out of any logits; reading survives anything."""

import functools
import json
import math

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engineer.lenient_json import parse_lenient
from engineer.proposal import Proposal, fault, grammar, number, schema, to_answer
from jaxlake.config import LakeConfig, project
from jaxlake.kinds import Kind

KINDS = tuple(map(Kind.of, (3, 4, 5, 6)))
END = "<|im_end|>"
COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
"""JSON without white space, as the grammar has it."""


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    """Every byte is a token, and some tokens straddle the grammar's symbols as a trained vocabulary's would."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, '"}', '":', ":0.", '},"', "data", "25", "5,"]
    model = models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[])
    byte_level = Tokenizer(model)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.add_special_tokens([END])
    return LLTokenizer(byte_level.to_str(), eos_token=byte_level.token_to_id(END))


def sample(tokenizer: LLTokenizer, rng: np.random.Generator, kinds: tuple[Kind, ...]) -> str:
    """One answer from standard normal logits under the grammar's mask."""
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar(kinds)))
    mask = allocate_token_bitmask(1, tokenizer.vocab_size)
    tokens = []
    while len(tokens) < 100 * len(kinds):
        fill_next_token_bitmask(matcher, mask)
        logits = rng.normal(size=(1, tokenizer.vocab_size)).astype(np.float32)
        apply_token_bitmask_inplace(logits, mask)
        token = int(logits.argmax())
        if token == tokenizer.eos_token:
            return tokenizer.decode_str(tokens)
        assert matcher.consume_token(token), matcher.get_error()
        tokens.append(token)
    pytest.fail("the grammar let an answer run on")


def test_random_logits_yield_a_legal_configuration_200_times_of_200(tokenizer):
    rng = np.random.default_rng(0)
    previous = LakeConfig.uniform(KINDS, hole=0.3, wait=0.5)
    answers = [sample(tokenizer, rng, KINDS) for _ in range(200)]
    for answer in answers:
        read = json.loads(answer)
        assert parse_lenient(answer, KINDS) == (read, ())
        assert read and list(read) == [size for size in ("3", "4", "5", "6") if size in read]
        assert all(list(entry) == ["data", "hole", "wait"] for entry in read.values())
        assert all(entry["data"] <= 1 and entry["hole"] <= 0.5 and entry["wait"] <= 1 for entry in read.values())
        config, _ = project(read, previous)
        assert config.kinds == KINDS
        assert math.isclose(sum(config.data), 1, abs_tol=1e-6)
    assert len(set(answers)) == 200
    assert {len(json.loads(answer)) for answer in answers} == {1, 2, 3, 4}


@functools.cache
def matchers(tokenizer: LLTokenizer, kinds: tuple[Kind, ...]) -> dict[str, LLMatcher]:
    forms = {
        "grammar": LLMatcher.grammar_from_lark(grammar(kinds)),
        "schema": LLMatcher.grammar_from_json_schema(schema(kinds), overrides=COMPACT),
    }
    return {name: LLMatcher(tokenizer, form) for name, form in forms.items()}


def accepting(tokenizer: LLTokenizer, kinds: tuple[Kind, ...], answer: str) -> set[str]:
    """Which of the forms of a configuration of these kinds an answer has."""
    tokens, names = tokenizer.tokenize_str(answer), set()
    for name, matcher in matchers(tokenizer, kinds).items():
        matcher.reset()
        if matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting():
            names.add(name)
    return names


def test_every_multiple_within_its_limit_can_be_written_and_nothing_else(tokenizer):
    for name, limit in (("data", 200), ("hole", 100), ("wait", 200)):
        odd = ("0.0", "00", "0.50", "0.001", "-0.1", "1.5", ".5", "1e-1")
        for text in (*(number(i * 0.005) for i in range(210)), *odd):
            entry = {"data": "0.5", "hole": "0.5", "wait": "0.5", name: text}
            answer = '{"3":{' + ",".join(f'"{key}":{entry[key]}' for key in ("data", "hole", "wait")) + "}}"
            canonical = text in {f"{i / 200:g}" for i in range(limit + 1)}
            assert accepting(tokenizer, KINDS[:1], answer) == ({"grammar", "schema"} if canonical else set()), answer


MIXED = tuple(map(Kind.of, (3, "3x3", "rooms6", "corridor8x3")))


@pytest.mark.parametrize(
    ("names", "forms"),
    [
        (("3", "3x3", "rooms6", "corridor8x3"), {"grammar", "schema"}),
        (("rooms6",), {"grammar"}),  # the schema has them all
        ((), set()),
        (("3", "3"), set()),
        (("3", "rooms6", "3x3", "corridor8x3"), set()),
        (("3", "3x3", "rooms7", "corridor8x3"), set()),
        (("3", "3x3", "rooms6", "corridor8"), set()),
        (("3", "3x3", "rooms6", "corridor8x3", "maze6"), set()),
    ],
)
def test_no_other_kinds_can_be_written(tokenizer, names, forms):
    answer = "{" + ",".join(f'"{name}":{{"data":0.25,"hole":0.1,"wait":0}}' for name in names) + "}"
    assert accepting(tokenizer, MIXED, answer) == forms
    assert not accepting(tokenizer, MIXED, answer.replace(":0}", ':0,"size":3}')) or not names


def test_an_answer_names_the_kinds_that_have_data():
    config = LakeConfig(MIXED, (0.0, 0.75, 0.0, 0.25), (0.5, 0.125, 0.0, 0.25), (1.0, 0.0, 0.3, 0.005))
    answer = to_answer(config)
    assert answer == '{"3x3":{"data":0.75,"hole":0.125,"wait":0},"corridor8x3":{"data":0.25,"hole":0.25,"wait":0.005}}'
    other = LakeConfig.uniform(MIXED, hole=0.3, wait=0.5)
    projected, repairs = project(json.loads(answer), other)
    assert projected.data == config.data and not repairs
    assert projected.hole == (0.3, 0.125, 0.3, 0.25) and projected.wait == (0.5, 0.0, 0.5, 0.005)


@pytest.mark.parametrize("answer", ['{"3":{"wait":1e9},"77":{}}', '{"3":{"data":"much","hole":null},"4":{"hole":0.2}}'])
def test_one_number_for_one_size_is_a_configuration(answer):
    assert fault(answer, parse_lenient(answer, KINDS)[0], KINDS[:2]) is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (" \n", "the answer is empty"),
        ("more\nholes", "no JSON object of sizes in the answer, which ends in 'more\\nholes'"),
        ('{"3":{"data":0.', 'no JSON object of sizes in the answer, which ends in \'{"3":{"data":0.\''),
        ('{"5":{"data":1}}', 'none of the sizes 3, 4 in the answer, which ends in \'{"5":{"data":1}}\''),
        ('{"3":{}}', "no number for data, hole or wait in the answer, which ends in '{\"3\":{}}'"),
        ('{"3":{"data":"all","hole":NaN},"4":{"wait":1e999}}', "no number for data, hole or wait"),
    ],
)
def test_what_is_no_configuration_is_said_in_one_line(answer, message):
    found = fault(answer, parse_lenient(answer, KINDS)[0], KINDS[:2])
    assert found.startswith(message)
    assert "\n" not in found


def test_a_proposals_record_is_strict_json():
    a, b = (LakeConfig.uniform((3, 4), hole=hole, wait=0.2) for hole in (0.1, 0.5))
    parsed = {"3": {"data": math.nan, "hole": 0.1}}
    proposal = Proposal(
        engineer="api", parsed=parsed, projected=b, repairs=("set",), errors=("empty",), candidates=(a, b), chosen=1
    )
    record = json.loads(json.dumps(proposal.to_json(), allow_nan=False))
    assert record["parsed"] == {"3": {"data": None, "hole": 0.1}}
    configs = [LakeConfig.from_dict(config) for config in (record["projected"], *record["candidates"])]
    assert configs == [b, a, b]
    assert (record["repairs"], record["errors"], record["chosen"]) == (["set"], ["empty"], 1)

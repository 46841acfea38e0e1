"""Engineers propose legal configurations whatever the model says."""

import json

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer.context import PastRound, Training, build
from engineer.engineers import CheckpointEngineer, Generation, NoAnswer, RandomEngineer
from engineer.evidence import CHECKS, Evidence, SizeEvidence
from engineer.proposal import grammar, to_answer
from jaxlake.config import LakeConfig

SIZES = (3, 4)
PREVIOUS = LakeConfig(sizes=SIZES, data=(0.5, 0.5), hole=(0.2, 0.3), wait=(0.1, 0.4))
WISHED = LakeConfig(sizes=SIZES, data=(0.25, 0.75), hole=(0.1, 0.5), wait=(0.0, 0.6))
KEY = jax.random.key(7)


def validation() -> Evidence:
    failures = {**dict.fromkeys(CHECKS, 0), "hole_free": 6}
    rows = tuple(SizeEvidence(size, 10, 4, 3, failures, failures, 0.3) for size in SIZES)
    return Evidence(rows, 0.3, 0.02, 4, 20.0, 0.0)


HISTORY = [PastRound(0, PREVIOUS, validation())]


class Model:
    """Says, one after the other, what it is told to say, the last for ever; remembers what it was asked."""

    def __init__(self, *answers: str | Exception, thinking: str = "more of size 4"):
        self.answers, self.thinking, self.asked = answers, thinking, []

    def __call__(self, prompt: str, grammar: str, key: jax.Array) -> Generation:
        self.asked.append((prompt, grammar, key))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return Generation(f"<think>\n{self.thinking}\n</think>\n\n{answer}", self.thinking, answer)


def propose(model: Model):
    return engineer(model).propose(validation(), HISTORY, KEY)


def engineer(model: Model) -> CheckpointEngineer:
    return CheckpointEngineer(model, rounds=3, epochs_per_round=2, attempts=3)


def test_a_legal_answer_is_taken_as_it_is():
    proposal = propose(Model(to_answer(WISHED)))
    assert proposal.projected == WISHED
    assert proposal.parsed == WISHED.to_dict()
    assert (proposal.repairs, proposal.fallback) == ((), False)
    assert (proposal.attempts, proposal.errors) == (1, ())


def test_the_model_gets_the_context_the_grammar_and_the_key():
    model = Model(to_answer(WISHED))
    propose(model)
    assert model.asked == [(build(validation(), HISTORY, Training(1, 3, 2)), grammar(SIZES), KEY)]


def test_raw_text_and_thinking_are_kept_verbatim():
    proposal = propose(Model("nonsense", thinking="hm"))
    assert proposal.raw == "<think>\nhm\n</think>\n\nnonsense"
    assert proposal.thinking == "hm"


def test_thinking_never_enters_a_later_context():
    model = Model(to_answer(WISHED), thinking="zebra")
    first = propose(model)
    later = [*HISTORY, PastRound(1, first.projected, validation())]
    engineer(model).propose(validation(), later, KEY)
    assert "round 2 of 0 to 2" in model.asked[1][0]
    assert "zebra" not in model.asked[1][0]


@pytest.mark.parametrize(
    "answer", ["", "I would add data.", "{}", '{"3":', '{"3":{"hole":null}}', '{"9":{"hole":0.1}}', "{" * 20_000]
)
def test_an_answer_without_a_configuration_leaves_the_previous_one_in_force(answer):
    proposal = propose(Model(answer))
    assert proposal.projected == PREVIOUS
    assert proposal.fallback and not proposal.repairs
    assert proposal.attempts == len(proposal.errors) == 3
    assert proposal.raw.endswith(answer)


def test_it_is_asked_again_with_the_same_context_and_another_key():
    model = Model("rubbish", '{"3":{"hole":NaN}}', to_answer(WISHED))
    proposal = propose(model)
    assert proposal.projected == WISHED and not proposal.fallback
    assert proposal.attempts == 3
    assert [error.partition(" in the answer")[0] for error in proposal.errors] == [
        "no JSON object of sizes",
        "no number for data, hole or wait",
    ]
    prompts, grammars, keys = zip(*model.asked, strict=True)
    assert len(set(prompts)) == len(set(grammars)) == 1
    assert keys[0] == KEY
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 3


def test_asked_again_it_gets_the_same_keys_again():
    first, second = Model("no"), Model("no")
    assert propose(first) == propose(second)
    assert first.asked == second.asked


def test_a_good_answer_is_not_asked_for_again():
    model = Model(to_answer(WISHED), "rubbish")
    propose(model)
    assert len(model.asked) == 1


def test_a_model_that_gives_no_answer_costs_an_attempt():
    proposal = propose(Model(NoAnswer("no reply after\n60 s"), NoAnswer(), to_answer(WISHED)))
    assert proposal.projected == WISHED
    assert (proposal.attempts, proposal.errors) == (3, ("no reply after 60 s", "no answer"))


def test_a_model_that_never_answers_leaves_the_previous_configuration_in_force():
    proposal = propose(Model(NoAnswer("x" * 5000)))
    assert proposal.fallback and proposal.projected == PREVIOUS
    assert (proposal.raw, proposal.parsed) == ("", None)
    assert [len(error) for error in proposal.errors] == [200] * 3


def test_the_last_words_are_kept_where_no_answer_follows_them():
    proposal = propose(Model('{"9":{"hole":0.1}}', NoAnswer("gone")))
    assert proposal.raw.endswith('{"9":{"hole":0.1}}')
    assert proposal.parsed == {"9": {"hole": 0.1}}
    assert proposal.errors[1:] == ("gone", "gone")


def test_what_is_no_fault_of_the_model_goes_through():
    with pytest.raises(KeyError):
        propose(Model(KeyError("a bug")))


def test_an_illegal_answer_is_repaired_and_says_so():
    proposal = propose(Model('{"3":{"data":1,"hole":0.9,"wait":0.5},"4":{"data":1,"hole":0.1,"wait":0.5}}'))
    assert proposal.projected.data == pytest.approx((0.5, 0.5))
    assert proposal.projected.hole == pytest.approx((0.5, 0.1))
    assert proposal.repairs
    assert not proposal.fallback
    assert proposal.parsed["3"]["hole"] == 0.9


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
entries = st.dictionaries(st.sampled_from(["data", "hole", "wait", "x"]), anything, max_size=4)
objects = st.dictionaries(st.sampled_from(["3", "4", "5", "a"]), entries | anything, max_size=4)
texts = st.text() | st.text(alphabet='{}":,0.34 dataholewit-9<think/>', max_size=80) | objects.map(json.dumps)


@settings(max_examples=300)
@given(texts)
def test_any_answer_ends_in_a_legal_configuration_or_the_previous_one(answer):
    proposal = propose(Model(answer))
    assert proposal.projected.sizes == SIZES  # whatever is no legal configuration cannot be made
    assert (proposal.attempts, len(proposal.errors)) == ((3, 3) if proposal.fallback else (1, 0))
    if proposal.fallback:
        assert proposal.projected == PREVIOUS
    assert not any("\n" in error for error in proposal.errors)
    json.dumps(proposal.to_json(), allow_nan=False)


def test_the_checkpoint_engineer_needs_a_finished_round():
    with pytest.raises(ValueError, match="at least one finished round"):
        engineer(Model("")).propose(validation(), [], KEY)


def test_the_random_engineer_draws_by_key_alone():
    engineer = RandomEngineer(SIZES)
    drawn = engineer.propose(None, [], KEY)
    assert drawn.projected == engineer.propose(validation(), HISTORY, KEY).projected
    assert drawn.projected != engineer.propose(None, [], jax.random.key(8)).projected
    assert (drawn.fallback, drawn.attempts, drawn.errors) == (False, 1, ())

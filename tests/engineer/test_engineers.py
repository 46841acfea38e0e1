"""Engineers propose legal configurations whatever the model says."""

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer.context import PastRound, Training, build
from engineer.engineers import CheckpointEngineer, Generation, RandomEngineer
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
    """Says what it is told to say and remembers what it was asked."""

    def __init__(self, answer: str, thinking: str = "more of size 4"):
        self.answer, self.thinking, self.asked = answer, thinking, []

    def __call__(self, prompt: str, grammar: str, key: jax.Array) -> Generation:
        self.asked.append((prompt, grammar, key))
        return Generation(f"<think>\n{self.thinking}\n</think>\n\n{self.answer}", self.thinking, self.answer)


def propose(model: Model):
    return CheckpointEngineer(model, rounds=3, epochs_per_round=2).propose(validation(), HISTORY, KEY)


def test_a_legal_answer_is_taken_as_it_is():
    proposal = propose(Model(to_answer(WISHED)))
    assert proposal.projected == WISHED
    assert proposal.parsed == WISHED.to_dict()
    assert (proposal.repairs, proposal.fallback) == ((), False)


def test_the_model_gets_the_context_the_grammar_and_the_key():
    model = Model(to_answer(WISHED))
    propose(model)
    assert model.asked == [(build(validation(), HISTORY, Training(1, 3, 2)), grammar(SIZES), KEY)]


def test_raw_text_and_thinking_are_kept_verbatim():
    proposal = propose(Model("nonsense", "hm"))
    assert proposal.raw == "<think>\nhm\n</think>\n\nnonsense"
    assert proposal.thinking == "hm"


def test_thinking_never_enters_a_later_context():
    model = Model(to_answer(WISHED), thinking="zebra")
    first = propose(model)
    later = [*HISTORY, PastRound(1, first.projected, validation())]
    CheckpointEngineer(model, rounds=3, epochs_per_round=2).propose(validation(), later, KEY)
    assert "round 2 of 0 to 2" in model.asked[1][0]
    assert "zebra" not in model.asked[1][0]


@pytest.mark.parametrize("answer", ["", "I would add data.", "{}", '{"3":'])
def test_an_unreadable_answer_leaves_the_previous_configuration_in_force(answer):
    proposal = propose(Model(answer))
    assert proposal.projected == PREVIOUS
    assert proposal.fallback
    assert proposal.parsed is None


def test_an_illegal_answer_is_repaired_and_says_so():
    proposal = propose(Model('{"3":{"data":1,"hole":0.9,"wait":0.5},"4":{"data":1,"hole":0.1,"wait":0.5}}'))
    assert proposal.projected.data == pytest.approx((0.5, 0.5))
    assert proposal.projected.hole == pytest.approx((0.5, 0.1))
    assert proposal.repairs
    assert not proposal.fallback
    assert proposal.parsed["3"]["hole"] == 0.9


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet='{}":,0.34 dataholewit-9', max_size=80))
def test_any_answer_ends_in_a_legal_configuration(answer):
    assert propose(Model(answer)).projected.sizes == SIZES


def test_the_checkpoint_engineer_needs_a_finished_round():
    with pytest.raises(ValueError, match="at least one finished round"):
        CheckpointEngineer(Model(""), rounds=3, epochs_per_round=2).propose(validation(), [], KEY)


def test_the_random_engineer_draws_by_key_alone():
    engineer = RandomEngineer(SIZES)
    drawn = engineer.propose(None, [], KEY)
    assert drawn.projected == engineer.propose(validation(), HISTORY, KEY).projected
    assert drawn.projected != engineer.propose(None, [], jax.random.key(8)).projected
    assert not drawn.fallback

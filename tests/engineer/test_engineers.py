"""Engineers propose legal configurations whatever the model says."""

import dataclasses
import re

import jax
import pytest

from engineer import Generation, LanguageEngineer, NoAnswer, Renamed, Shuffled
from engineer.context import Context, PastRound, Template, Training, modules
from engineer.engineers.controls import derangement, relabelled
from engineer.evidence import CHECKS, Evidence, KindEnvironment, KindEvidence, TrainingEvidence, Trajectory
from engineer.proposal import grammar, to_answer
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

KINDS = THREE, FOUR = Kind.of(3), Kind.of(4)
PREVIOUS = LakeConfig(kinds=KINDS, data=(0.5, 0.5), hole=(0.2, 0.3), wait=(0.1, 0.4))
WISHED = LakeConfig(kinds=KINDS, data=(0.25, 0.75), hole=(0.1, 0.5), wait=(0.0, 0.6))
KEY = jax.random.key(7)
V6 = Context(modules("V6"), Template.shipped())


def validation() -> Evidence:
    failures = {**dict.fromkeys(CHECKS, 0), "hole_free": 6}
    rows = tuple(KindEvidence(kind, 10, 4, 3, failures, failures, 0.3) for kind in KINDS)
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


def engineer(model, **changed) -> LanguageEngineer:
    return LanguageEngineer("checkpoint", model, V6, lambda k: Training(k, 3, 2), attempts=3, **changed)


def propose(model: Model, **changed):
    return engineer(model, **changed).propose(validation(), HISTORY, KEY)


def test_a_legal_answer_is_taken_as_it_is_and_not_asked_for_again():
    model = Model(to_answer(WISHED), "rubbish")
    proposal = propose(model)
    assert proposal.projected == WISHED and proposal.parsed == WISHED.to_dict()
    assert (proposal.repairs, proposal.fallback, proposal.attempts, proposal.errors) == ((), False, 1, ())
    assert model.asked == [(V6.build(validation(), HISTORY, Training(1, 3, 2)), grammar(KINDS), KEY)]
    assert (proposal.candidates, proposal.chosen) == ((WISHED,), 0)


@pytest.mark.parametrize("answer", ["I would add data.", '{"9":{"hole":0.1}}'])
def test_an_answer_without_a_configuration_leaves_the_previous_one_in_force(answer):
    proposal = propose(Model(answer))
    assert proposal.projected == PREVIOUS and not proposal.candidates
    assert proposal.fallback and not proposal.repairs
    assert proposal.attempts == len(proposal.errors) == 3
    assert proposal.raw.endswith(answer)


def test_it_is_asked_again_with_the_same_context_and_another_key():
    model = Model("rubbish", NoAnswer("no reply"), to_answer(WISHED))
    proposal = propose(model)
    assert proposal.projected == WISHED and not proposal.fallback and proposal.attempts == 3
    assert [error.partition(" in the answer")[0] for error in proposal.errors] == [
        "no JSON object of sizes",
        "no reply",
    ]
    prompts, grammars, keys = zip(*model.asked, strict=True)
    assert len(set(prompts)) == len(set(grammars)) == 1
    assert keys == (KEY, jax.random.fold_in(KEY, 1), jax.random.fold_in(KEY, 2))


def test_an_illegal_answer_is_repaired_and_says_so():
    proposal = propose(Model('{"3":{"data":1,"hole":0.9,"wait":0.5},"4":{"data":1,"hole":0.1,"wait":0.5}}'))
    assert proposal.projected.data == pytest.approx((0.5, 0.5)) and proposal.projected.hole == (0.5, 0.1)
    assert proposal.repairs and not proposal.fallback and proposal.parsed["3"]["hole"] == 0.9


def test_without_a_grammar_it_is_asked_again_with_what_was_wrong():
    model = Model("rubbish", '{"9":{"data":1}}', to_answer(WISHED))
    proposal = propose(model, masked=False)
    assert proposal.projected == WISHED and proposal.attempts == 3
    prompts = [asked[0] for asked in model.asked]
    for prompt, error in zip(prompts[1:], proposal.errors, strict=True):
        assert prompt.startswith(prompts[0]) and error in prompt.removeprefix(prompts[0])
    assert proposal.errors[0] not in prompts[2]


@pytest.mark.parametrize("names", [(3, 4), (3, "6x3", "rooms6", "corridor8x3")])
def test_a_derangement_leaves_no_kind_in_its_place(names):
    kinds = [Kind.of(name) for name in names]
    drawn = [derangement(kinds, jax.random.key(seed)) for seed in range(20)]
    for labels in drawn:
        assert sorted(labels) == sorted(labels.values()) == kinds
        assert all(kind != label for kind, label in labels.items())
    assert len({tuple(labels.values()) for labels in drawn}) > (len(kinds) > 2)


def test_shuffled_evidence_keeps_every_number_under_another_name():
    failures = dict.fromkeys(CHECKS, 0)
    kinds = three, four, rooms = tuple(map(Kind.of, (3, 4, "rooms5")))
    rows = tuple(KindEvidence(kind, 10 * kind.size, kind.size, 0, failures, failures) for kind in kinds)
    boards = tuple(KindEnvironment(kind, 10 * kind.size, None, {}, None, None, None) for kind in kinds)
    failed = tuple(Trajectory(kind, "hole_free", f"on {kind}", "") for kind in (rooms, three))
    given = Evidence(rows, 0.3, 0.02, 4, 20.0, 0.0, boards, TrainingEvidence(rows[:2], boards[1:]), failed)
    shuffled = relabelled(given, {three: four, four: rooms, rooms: three})
    assert [(row.kind, row.n) for row in shuffled.by_kind] == [(three, 50), (four, 30), (rooms, 40)]
    assert [(row.kind, row.instances) for row in shuffled.environment] == [(three, 50), (four, 30), (rooms, 40)]
    assert [(row.kind, row.n) for row in shuffled.training.by_kind] == [(four, 30), (rooms, 40)]
    assert [(row.kind, row.instances) for row in shuffled.training.environment] == [(three, 50), (rooms, 40)]
    assert [(one.kind, one.board) for one in shuffled.trajectories] == [(three, "on rooms5"), (four, "on 3")]
    assert (shuffled.n, shuffled.valid, shuffled.sampled_valid) == (given.n, given.valid, given.sampled_valid)
    assert relabelled(shuffled, {four: three, rooms: four, three: rooms}) == given


def test_a_shuffled_engineer_reads_all_evidence_under_one_order_and_the_configurations_as_they_were():
    def mixed() -> Evidence:
        easy, hard = validation().by_kind
        return dataclasses.replace(validation(), by_kind=(dataclasses.replace(easy, valid=9), hard))

    history = [PastRound(0, PREVIOUS, mixed()), PastRound(1, WISHED, mixed())]
    model = Model(to_answer(WISHED))
    Shuffled(engineer(model)).propose(mixed(), history, KEY)
    swapped = relabelled(mixed(), {THREE: FOUR, FOUR: THREE})
    history = [dataclasses.replace(past, evidence=swapped) for past in history]
    assert model.asked[0][0] == V6.build(swapped, history, Training(2, 3, 2))


def test_who_reads_designs_the_same_under_other_names_and_a_habit_does_not():
    easy, hard = validation().by_kind
    evidence = dataclasses.replace(validation(), by_kind=(dataclasses.replace(easy, valid=9, sampled_valid=0.9), hard))
    history = [PastRound(0, PREVIOUS, evidence)]

    def designs(model) -> list[LakeConfig]:
        both = engineer(model), Renamed(engineer(model))
        return [one.propose(evidence, history, KEY).projected for one in both]

    def by_numbers(prompt: str, grammar: str, key: jax.Array) -> Generation:
        (row,) = re.findall(r"^(\d+) \d+ 90 ", prompt, flags=re.MULTILINE)
        data = (1.0, 0.0) if row == "3" else (0.0, 1.0)
        return Generation("", "", to_answer(LakeConfig(KINDS, data, (0.1, 0.1), (0.0, 0.0))))

    assert designs(by_numbers)[0] == designs(by_numbers)[1]
    own, renamed = designs(Model(to_answer(WISHED)))
    assert own == WISHED
    assert renamed == LakeConfig(KINDS, WISHED.data[::-1], WISHED.hole[::-1], WISHED.wait[::-1])

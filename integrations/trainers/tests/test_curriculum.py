"""Designs from evidence worked out by hand, rounds that come late or not at all, and states to go on from."""

import copy
import dataclasses
import hashlib
import json
import re

import numpy as np
import pytest
from jaxlake_trainers import Boards, EngineerCurriculum, curriculum_from_file
from policy import NO_PLAN, group, play, report

from engineer import RULES, Context, Generation, LanguageEngineer, RuleEngineer, Template, Training, modules
from jaxlake import LakeConfig
from jaxlake.adapters.text import compute_score

KINDS = (3, 4, "rooms5")
RATES = {"3": 1.0, "4": 0.5, "rooms5": 0.0}
START = LakeConfig.uniform(KINDS, hole=0.2, wait=0.3)


def curriculum(rule="learnability", tasks=24, seed=0, **words):
    return EngineerCurriculum(RuleEngineer(rule, RULES[rule]), Boards(START, **words), tasks_per_round=tasks, seed=seed)


def test_a_rule_designs_from_the_rates_of_the_answers():
    """`learnability` weighs by p (1 - p) + .05: .05, .30, .05 of .40."""
    designed = curriculum()
    first = play(designed, RATES, 24)
    assert designed.config == START and [task.index for task in first] == list(range(24))
    second = play(designed, RATES, 24)
    assert designed.config.data == (0.125, 0.75, 0.125)
    kinds = [task.kind for task in second]
    assert {kind: kinds.count(kind) for kind in RATES} == {"3": 3, "4": 18, "rooms5": 3}
    assert [row.valid_share for row in designed.history[0].evidence.by_kind] == [1, 0.5, 0]
    metrics = designed.metrics()
    assert (metrics["round"], metrics["4/data"], metrics["4/valid"]) == (1, 0.75, 0.5)


@pytest.mark.parametrize(
    ("rule", "digest"),
    [
        ("learnability", "16f63437f69d1f23"),
        ("frontier", "22014d9cbfe48368"),
        ("plr", "1f924f230fd96704"),
    ],
)
def test_boards_and_designs_are_those_of_their_number(rule, digest):
    """Digests of four rounds: tasks, counts, designs. Floats are rounded, as they may end otherwise elsewhere."""
    designed = curriculum(rule, tasks=12, seed=5)
    tasks = [[task.index, task.kind, *vars(task.content).values()] for task in play(designed, RATES, 40)]
    state = {name: value for name, value in designed.state_dict().items() if name not in ("settings", "digest")}
    plain = json.loads(json.dumps([tasks, state, designed.metrics()]), parse_float=lambda text: f"{float(text):.9g}")
    assert hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16] == digest


def test_every_kind_keeps_some_data_so_that_something_is_known_of_it():
    """`easy_only` wants the easiest kind alone."""
    designed = curriculum("easy_only")
    play(designed, RATES, 49)
    assert designed.config.data == pytest.approx((1 - 0.5 / 3, 0.25 / 3, 0.25 / 3))
    assert len(designed.history[-1].evidence.by_kind) == 3


def test_evidence_counts_answers_by_the_check_that_they_fail_first():
    designed = curriculum(tasks=1)
    (task,) = designed.sample(1)
    best = task.content.answer
    answers = [best, re.sub(r":(\(\d,\d\))", r":\1\1", best), best[: best.rindex("(")], NO_PLAN]
    lengths, cut = [5, 6, 7, 10], [False, False, False, True]
    designed.observe([task], [[1.0, 0.0, 0.0, 0.0]], answers=[answers], tokens=[lengths], truncated=[cut])
    designed.sample(1)
    evidence = designed.history[0].evidence
    (row,) = evidence.by_kind
    assert (row.n, row.groups, row.valid, row.optimal, row.learnable, row.truncated) == (4, 1, 2, 1, 1, 1)
    failed = {check: count for check, count in row.first_failures.items() if count}
    assert failed == {"goal_reached": 1, "parsable": 1}
    assert (row.answer_tokens, row.advantage) == (7, pytest.approx((0.75 + 3 * 0.25) / 4))
    assert (evidence.sampled_valid, evidence.samples_per_prompt, evidence.truncated) == (0.5, 4, 0.25)
    assert evidence.training.environment[0].instances + evidence.training.environment[1].instances <= 1
    assert type(evidence).from_json(json.loads(json.dumps(evidence.to_json()))) == evidence


def test_a_thousand_answers_count_as_they_are_paid():
    designed = curriculum(tasks=250, seed=7)
    answers, paid = [], []
    taken = designed.sample(250)
    for place, task in enumerate(taken):
        best = task.content.answer
        late = re.sub(r":(\(\d,\d\))", r":\1\1\1", best)
        said = [best, late, best[:-5], NO_PLAN][place % 4 :] + [NO_PLAN] * (place % 4)
        answers.append(said)
        paid.append([compute_score("jaxlake", text, task.content.level) for text in said])
    designed.observe(taken, paid, answers=answers)
    designed.sample(1)
    paid = np.array(paid)
    evidence = designed.history[0].evidence
    assert (evidence.n, evidence.valid, evidence.optimal) == (1000, (paid > 0).sum(), (paid == 1).sum())
    assert 0 < evidence.optimal < evidence.valid < 1000


@pytest.mark.parametrize(
    ("rule", "place"),
    [(rule, 7) for rule in ("learnability", "adarft", "frontier", "plr")] + [("plr", place) for place in (0, 11, 12)],
)
def test_a_saved_state_goes_on_with_the_same_tasks(rule, place):
    """Through two ends of rounds; a state is plain JSON."""
    unbroken = curriculum(rule, tasks=12)
    play(unbroken, RATES, place)
    state = json.loads(json.dumps(unbroken.state_dict()))
    resumed = curriculum(rule, tasks=12)
    resumed.load_state_dict(state)
    assert play(resumed, RATES, 24) == play(unbroken, RATES, 24)
    assert resumed.state_dict() == unbroken.state_dict()


def test_a_seed_makes_the_tasks():
    assert play(curriculum(seed=3), RATES, 30) == play(curriculum(seed=3), RATES, 30)
    assert play(curriculum(seed=3), RATES, 24) != play(curriculum(seed=4), RATES, 24)


def test_answers_that_come_late_count_in_the_round_in_which_they_come():
    designed = curriculum(tasks=6)
    early, (later,) = designed.sample(6), designed.sample(1)
    assert designed.history == [] and designed.config == START  # nobody answered: the same again, on other boards
    assert later.index == 6 and later.content not in [task.content for task in early]
    for task in early:
        report(designed, task, group(task.content, 0.5))
    designed.sample(6)
    (past,) = designed.history
    assert (past.round, past.evidence.n) == (1, 24)


def test_a_language_model_designs_given_a_way_to_write():
    messages = []

    design = '{"4":{"data":0.5,"hole":0.3,"wait":0.1},"rooms5":{"data":0.5,"hole":0.1,"wait":0}}'

    def generate(message, grammar, key):
        messages.append(message)
        return Generation.of(f"Sizes 3 are solved.</think>{design}")

    engineer = LanguageEngineer(
        name="mine",
        generate=generate,
        context=Context(modules("V6"), Template.shipped()),
        training=lambda round: Training(round, rounds=10, epochs_per_round=1),
        attempts=1,
    )
    designed = EngineerCurriculum(engineer, Boards(START), tasks_per_round=24)
    play(designed, RATES, 49)
    floor = 0.25 / 3
    assert designed.config.data == pytest.approx((floor, (1 - floor) / 2, (1 - floor) / 2))
    assert designed.config.hole[1:] == (0.3, 0.1)
    assert len(messages) == 2 and "50" in messages[0] and "rooms5" in messages[0]
    assert [past.rationale for past in designed.history] == ["", "Sizes 3 are solved."]


@pytest.mark.parametrize(
    ("rewards", "words", "line"),
    [
        ([[0.0]], {}, "answers = None must be the texts: boards are judged by them"),
        ([[0.0]], {"answers": [["", ""]]}, "task 0 has rewards [1], answers [2]: each must be a list with one entry"),
        ([[]], {"answers": [[]]}, "task 0 has rewards [0], answers [0]: each"),
        ([0.0], {"answers": [[""]]}, "task 0 has rewards [], answers [1]: each"),
        ([[0.0], [0.0]], {"answers": [[""]]}, "rewards has 2 groups: it must have one for each of 1 tasks"),
        ([[float("nan")]], {"answers": [[""]]}, "rewards of task 0 = [nan] must be finite numbers"),
    ],
)
def test_a_report_that_cannot_be_is_refused_in_a_line(rewards, words, line):
    designed = curriculum(tasks=3)
    with pytest.raises(ValueError, match=re.escape(line)):
        designed.observe(designed.sample(1), rewards, **words)
    assert designed.state_dict()["sums"] is None


def test_of_groups_of_which_one_cannot_be_none_is_counted():
    designed = curriculum(tasks=3)
    first, second, _ = designed.sample(3)
    with pytest.raises(ValueError, match="kind = '6' must be one of 3, 4, rooms5"):
        designed.observe(
            [first, dataclasses.replace(second, kind="6")], [[1.0], [1.0]], answers=[[first.content.answer]] * 2
        )
    assert designed.state_dict()["sums"] is None


def test_a_state_that_is_damaged_or_foreign_is_refused_in_a_line_and_changes_nothing():
    designed = curriculum(tasks=6)
    play(designed, RATES, 8)
    state, other = json.loads(json.dumps(designed.state_dict())), curriculum(tasks=6, seed=1)
    play(other, RATES, 7)
    before, following = other.state_dict(), copy.deepcopy(other).sample(9)
    cases = [
        (state, "'seed': 0.*must be of.*'seed': 1"),
        (state | {"round": 2}, "the curriculum's state is damaged, its digest differs: load an earlier one"),
        (state | {"sums": None}, "is damaged"),
        (state | {"history": [object()]}, "is damaged"),
        (
            {name: state[name] for name in state if name != "sums"},
            "no curriculum's: it must have settings, round, place",
        ),
        ({"cursor": 5}, "the state of cursor is no curriculum's"),
        ({}, "the state of nothing is no curriculum's"),
        (None, "the state of NoneType is no curriculum's"),
    ]
    for broken, line in cases:
        with pytest.raises(ValueError, match=line) as error:
            other.load_state_dict(broken)
        assert "\n" not in str(error.value)
    assert other.state_dict() == before and other.sample(9) == following


def test_a_file_describes_a_curriculum(tmp_path):
    path = tmp_path / "curriculum.yaml"
    path.write_text(
        "kinds: [3-4, rooms5]\nhole: 0.2\nwait: 0.3\ntasks_per_round: 24\nanswer_format: moves\n", encoding="utf-8"
    )
    assert curriculum_from_file(path).sample(2) == curriculum(answer_format="moves").sample(2)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kinds: 3-4", "kinds = '3-4' must be a list such as [3-6, rooms6, corridor8x3]"),
        ("kinds: [2]", "size of random boards = 2 must be a whole number from 3 to 64"),
        ("kinds: [3]\nenginer: adarft", "enginer is no setting; it must be one of kinds, engineer, hole, wait,"),
        ("kinds: [3]\nengineer: best", "engineer = 'best' must be module:attribute, or one of fixed_random, "),
        ("kinds: [3]\nengineer: nowhere:best", "engineer = 'nowhere:best': No module named 'nowhere'"),
        ("kinds: [3]\nengineer: math:pi", "engineer = 'math:pi' must be an engineer, with a method propose"),
        ("kinds: [3]\nhole: 0.9", "hole of size 3 = 0.9 must be from 0 to 0.5"),
        ("kinds: [3]\ntasks_per_round: 0", "tasks_per_round = 0 must be a whole number from 1 on"),
        ("kinds: [3]\nstyle: loud", "'loud' is not a valid PromptStyle"),
        ("- 3", "it must be a mapping"),
        ("kinds: [", "while parsing"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_a_line(tmp_path, text, line):
    path = tmp_path / "curriculum.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as error:
        curriculum_from_file(path)
    assert str(error.value).startswith(f"{path}: ") and line in str(error.value) and "\n" not in str(error.value)

"""Designs from evidence worked out by hand, rounds that come late or not at all, and states to go on from."""

import dataclasses
import hashlib
import json
import re

import pytest
from jaxlake_trainers import EngineerCurriculum
from policy import NO_PLAN, group, play, report

from engineer import RULES, Context, Generation, LanguageEngineer, RuleEngineer, Template, Training, modules
from jaxlake import LakeConfig
from jaxlake.adapters.text import compute_score

KINDS = (3, 4, "rooms5")
RATES = {"3": 1.0, "4": 0.5, "rooms5": 0.0}
START = LakeConfig.uniform(KINDS, hole=0.2, wait=0.3)


def curriculum(rule="learnability", tasks=24, **words):
    return EngineerCurriculum(RuleEngineer(rule, RULES[rule]), START, tasks_per_round=tasks, **words)


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
        ("learnability", "6b935662ed91ec62"),
        ("frontier", "3fbe2d30fe4aca84"),
        ("plr", "8f181e88904cc92f"),
        ("bandit", "f0218ebfaceca0de"),
    ],
)
def test_boards_and_designs_are_those_of_their_number(rule, digest):
    """Digests of four rounds: tasks, counts, designs. Floats are rounded, as they may end otherwise elsewhere."""
    designed = curriculum(rule, tasks=12, seed=5)
    tasks = [list(dataclasses.astuple(task)) for task in play(designed, RATES, 40)]
    state = {name: value for name, value in designed.state_dict().items() if name != "settings"}
    plain = json.loads(json.dumps([tasks, state, designed.metrics()]), parse_float=lambda text: f"{float(text):.9g}")
    assert hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16] == digest


def test_every_kind_keeps_some_data_so_that_something_is_known_of_it():
    """`easy_only` wants the easiest kind alone."""
    designed = curriculum("easy_only")
    play(designed, RATES, 49)
    assert designed.config.data == pytest.approx((1 - 0.5 / 3, 0.25 / 3, 0.25 / 3))
    assert len(designed.history[-1].evidence.by_kind) == 3
    assert len(designed.history[-1].evidence.by_kind) == 3


def test_evidence_counts_answers_by_the_check_that_they_fail_first():
    designed = curriculum(tasks=1)
    task = next(designed)
    cut = task.answer[: task.answer.rindex("(")]
    late = re.sub(r":(\(\d,\d\))", r":\1\1", task.answer)
    answers = [task.answer, late, cut, NO_PLAN]
    designed.observe(task.kind, task.level, answers, [1.0, 0.0, 0.0, 0.0], [5, 6, 7, 10], [False, False, False, True])
    next(designed)
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
    paid = []
    for place in range(250):
        task = next(designed)
        late = re.sub(r":(\(\d,\d\))", r":\1\1\1", task.answer)
        answers = [task.answer, late, task.answer[:-5], NO_PLAN][place % 4 :] + [NO_PLAN] * (place % 4)
        rewards = [compute_score("jaxlake", text, task.level) for text in answers]
        designed.observe(task.kind, task.level, answers, rewards, [1] * 4, [False] * 4)
        paid += rewards
    next(designed)
    evidence = designed.history[0].evidence
    assert (evidence.n, evidence.valid, evidence.optimal) == (1000, sum(p > 0 for p in paid), sum(p == 1 for p in paid))
    assert 0 < evidence.optimal < evidence.valid < 1000


@pytest.mark.parametrize(
    ("rule", "place"),
    [(rule, 7) for rule in ("learnability", "adarft", "frontier", "bandit", "plr", "mutate_best")]
    + [("plr", place) for place in (0, 11, 12)],
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
    early = [next(designed) for _ in range(6)]
    later = next(designed)
    assert designed.history == [] and designed.config == START  # nobody answered: the same again, on other boards
    assert later.index == 6 and later.level not in [task.level for task in early]
    for task in early:
        report(designed, task, group(task, 0.5))
    for _ in range(6):
        next(designed)
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
    designed = EngineerCurriculum(engineer, START, tasks_per_round=24)
    play(designed, RATES, 49)
    floor = 0.25 / 3
    assert designed.config.data == pytest.approx((floor, (1 - floor) / 2, (1 - floor) / 2))
    assert designed.config.hole[1:] == (0.3, 0.1)
    assert len(messages) == 2 and "50" in messages[0] and "rooms5" in messages[0]
    assert [past.rationale for past in designed.history] == ["", "Sizes 3 are solved."]


def test_a_report_that_cannot_be_is_refused_in_a_line():
    designed = curriculum(tasks=3)
    task = next(designed)
    for arguments, line in (
        (("6", task.level, [""], [0.0], [1], [False]), "kind = '6' must be one of 3, 4, rooms5"),
        (
            (task.kind, task.level, ["", ""], [0.0], [1, 1], [False, False]),
            "have 2, 1, 2 and 2 entries: each",
        ),
        ((task.kind, task.level, [], [], [], []), "have 0, 0, 0 and 0 entries: each"),
    ):
        with pytest.raises(ValueError, match=re.escape(line)):
            designed.observe(*arguments)
    assert designed.state_dict()["sums"] is None
    with pytest.raises(ValueError, match="'seed': 0.*must be of.*'seed': 1"):
        curriculum(tasks=3, seed=1).load_state_dict(designed.state_dict())


def test_a_file_describes_a_curriculum(tmp_path):
    path = tmp_path / "curriculum.yaml"
    path.write_text(
        "kinds: [3-4, rooms5]\nhole: 0.2\nwait: 0.3\ntasks_per_round: 24\nanswer_format: moves\n", encoding="utf-8"
    )
    assert [next(EngineerCurriculum.from_file(path)) for _ in range(2)] == [
        next(curriculum(answer_format="moves")) for _ in range(2)
    ]


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
        ("kinds: [3]\nstyle: loud", "style = 'loud' must be one of"),
        ("- 3", "it must be a mapping"),
        ("kinds: [", "while parsing"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_a_line(tmp_path, text, line):
    path = tmp_path / "curriculum.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as error:
        EngineerCurriculum.from_file(path)
    assert str(error.value).startswith(f"{path}: ") and line in str(error.value) and "\n" not in str(error.value)

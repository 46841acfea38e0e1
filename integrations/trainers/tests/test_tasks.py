"""Curricula of tasks that are no boards: shares worked out by hand, every rule, a model over HTTP, reasoning-gym."""

import copy
import json
import re
import runpy
import urllib.request

import pytest
from chat_server import serving
from jaxlake_trainers import TASK_TEMPLATE, EngineerCurriculum, Task, TaskSamplers

from engineer import RULES, Context, Generation, LanguageEngineer, RuleEngineer, Training, modules
from engineer.engineers import BOARD_RULES

RATES = {"add": 1.0, "multiply": 0.5, "divide": 0.0}


def sampler(name):
    return lambda count, seed: [f"{name} {seed} {i}" for i in range(count)]


def samplers(**words):
    return TaskSamplers({name: sampler(name) for name in RATES}, **words)


def curriculum(rule="learnability", tasks=24, **words):
    return EngineerCurriculum(RuleEngineer(rule, RULES[rule]), samplers(), tasks_per_round=tasks, **words)


def play(designed, count):
    """Take so many tasks and report each at once, solved by as many of four answers as its kind's rate; return them."""
    taken = []
    for _ in range(count):
        tasks = designed.sample(1)
        right = int(4 * RATES[tasks[0].kind])
        designed.observe(tasks, [[1.0] * right + [0.2] * (4 - right)])
        taken += tasks
    return taken


def shares(tasks):
    return {name: sum(task.kind == name for task in tasks) / len(tasks) for name in RATES}


def test_a_rule_designs_shares_from_the_rewards():
    """`learnability` weighs by p (1 - p) + .05: .05, .30, .05 of .40; less than the whole reward solves nothing."""
    designed = curriculum()
    first, second = play(designed, 24), play(designed, 24)
    assert shares(first) == dict.fromkeys(RATES, 1 / 3) and shares(second) == {
        "add": 0.125,
        "multiply": 0.75,
        "divide": 0.125,
    }
    assert [task.index for task in first + second] == list(range(48))
    assert all(task.content.startswith(f"{task.kind} ") for task in first)
    assert len({task.content for task in first + second}) == 48
    (past,) = designed.history
    assert [(str(row.kind), row.n, row.valid, row.learnable) for row in past.evidence.by_kind] == [
        ("add", 32, 32, 0),
        ("multiply", 32, 16, 8),
        ("divide", 32, 0, 0),
    ]
    assert past.evidence.first_failures["goal_reached"] == 48 == past.evidence.n - past.evidence.valid
    metrics = designed.metrics()
    assert metrics["multiply/data"] == 0.75 and metrics["multiply/valid"] == 0.5 and "multiply/hole" not in metrics


def test_the_order_given_is_the_order_of_difficulty():
    """`adarft` starts at the easiest, whatever the names; its target is 0 when half the answers are right."""
    designed = curriculum("adarft")
    play(designed, 25)
    assert designed.config.data[0] > designed.config.data[1] > designed.config.data[2] > 0
    backwards = TaskSamplers({name: sampler(name) for name in reversed(RATES)})
    turned = EngineerCurriculum(RuleEngineer("adarft", RULES["adarft"]), backwards, tasks_per_round=24)
    play(turned, 25)
    assert turned.config.data == designed.config.data and [*turned.config.to_dict()] == [*reversed(RATES)]


@pytest.mark.parametrize("rule", sorted(set(RULES) - set(BOARD_RULES)))
def test_every_rule_designs_tasks_and_a_saved_state_goes_on_with_them(rule):
    unbroken = curriculum(rule, tasks=12)
    play(unbroken, 31)
    state, resumed = json.loads(json.dumps(unbroken.state_dict())), curriculum(rule, tasks=12)
    resumed.load_state_dict(state)
    assert play(resumed, 29) == play(unbroken, 29) and resumed.state_dict() == unbroken.state_dict()
    assert min(shares(unbroken.sample(12)).values()) > 0  # every kind keeps a floor


def test_what_counts_as_solved_is_said():
    designed = EngineerCurriculum(RuleEngineer("uniform", RULES["uniform"]), samplers(solved=0.2), tasks_per_round=24)
    play(designed, 25)
    assert designed.history[0].evidence.sampled_valid == 1
    with pytest.raises(ValueError, match="'solved': 1.0.*must be of.*'solved': 0.2"):
        designed.load_state_dict(curriculum().state_dict())


def test_a_language_model_behind_a_server_designs_shares():
    said, designs = (
        [],
        iter(['{"multiply": {"data": 0.5}, "divide": {"data": 0.5}}', "I cannot.", '{"add": {"data": 1}}']),
    )

    def reply(texts):
        said.append(texts[-1])
        return f"Adding is learned.</think>{next(designs)}"

    def generate(message, grammar, key):
        body = {"model": "any", "messages": [{"role": "user", "content": message}], "stream": True}
        with urllib.request.urlopen(f"{url}/chat/completions", json.dumps(body).encode()) as answer:
            lines = [line[6:] for line in answer.read().decode().split("\n") if line.startswith("data: {")]
        deltas = [choice["delta"].get("content", "") for line in lines for choice in json.loads(line)["choices"]]
        return Generation.of("".join(deltas))

    engineer = LanguageEngineer(
        name="mine",
        generate=generate,
        context=Context(modules("V5"), TASK_TEMPLATE),
        training=lambda number: Training(number, rounds=10, epochs_per_round=1),
        attempts=2,
        masked=False,
    )
    with serving(reply) as url:
        designed = EngineerCurriculum(engineer, samplers(), tasks_per_round=24)
        play(designed, 25)
        assert designed.config.data == pytest.approx((0.25 / 3, 0.5 - 0.125 / 3, 0.5 - 0.125 / 3))
        play(designed, 24)
    assert designed.config.data == pytest.approx((1 - 0.5 / 3, 0.25 / 3, 0.25 / 3))
    assert len(said) == 3 and "could not be used" in said[2]
    assert "Kinds, the easiest first: add multiply divide." in said[0] and "multiply 32 50 " in said[0]
    assert not re.search(r"board|hole|wait|agent", said[0] + said[1])
    assert "Your reasons for past rounds" in said[1] and "Adding is learned." in said[1]


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: TaskSamplers({}), "samplers = {} must map names of kinds to functions"),
        (lambda: TaskSamplers({"add": 3}), "samplers = {'add': 3} must map"),
        (lambda: TaskSamplers({"two words": sampler("x")}), "kind = 'two words' must be one word of letters"),
        (lambda: TaskSamplers({None: sampler("x")}), "kind = None must be one word"),
        (lambda: samplers(solved=float("nan")), "solved = nan must be a finite number"),
        (lambda: curriculum(tasks=0), "tasks_per_round = 0 must be a whole number from 1 on"),
        (
            lambda: curriculum("ridge"),
            "engineer = 'ridge' reads sides or agents: it must be another",
        ),
        (lambda: curriculum().sample(-1), "n = -1 must be a whole number from 0 on"),
        (
            lambda: curriculum().observe([Task(0, "subtract", "")], [[1.0]]),
            "kind = 'subtract' must be one of add, mult",
        ),
        (
            lambda: EngineerCurriculum(None, TaskSamplers({"add": lambda count, seed: []})),
            "the sampler of add returned 0 tasks: it must return 256",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(make, line):
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_sampler_that_fails_leaves_the_curriculum_as_it_was():
    fails = []

    def draw(count, seed):
        if fails:
            raise OSError("no such file")
        return [seed] * count

    designed = EngineerCurriculum(RuleEngineer("plr", RULES["plr"]), TaskSamplers({"add": draw}), tasks_per_round=4)
    tasks = designed.sample(4)
    designed.observe(tasks, [[1.0, 0.0]] * 4)
    before = copy.deepcopy(designed.state_dict())
    fails.append(True)
    with pytest.raises(OSError):
        designed.sample(1)
    assert designed.state_dict() == before
    fails.clear()
    assert designed.sample(1)[0].index == 4 and len(designed.history) == 1


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_the_example_moves_the_difficulty_of_reasoning_gyms_sums(capsys, monkeypatch):
    pytest.importorskip("reasoning_gym")
    monkeypatch.setattr("sys.argv", ["reasoning_gym_design.py"])
    runpy.run_path("reasoning_gym_design.py")
    rounds = [re.findall(r"(\d+)%", line) for line in capsys.readouterr().out.splitlines()]
    first, second, last = ([int(share) for share in rounds[i]] for i in (0, 1, -1))
    assert len(rounds) == 6 and first[:5] == [20, 20, 20, 20, 19]
    assert second[0] > 30 and last[0] < 25 < last[1] + last[2] and last[-1] > 2 * first[-1]

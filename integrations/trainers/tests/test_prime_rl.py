"""The sampler with verifiers' own episodes and, where prime-rl is, in its own curriculum and train source."""

import inspect
import json
import re
import types

import pytest
from jaxlake_trainers import Board, Boards, EngineerCurriculum, TaskSamplers
from jaxlake_trainers.prime_rl import EngineerSampler, by_kind, install
from policy import NO_PLAN, group

from engineer import RULES, RuleEngineer
from jaxlake import LakeConfig
from jaxlake.adapters.text import judge

vf = pytest.importorskip("verifiers.v1")

START = LakeConfig.uniform((3, 4), hole=0.2, wait=0.3)
RATES = {"3": 1.0, "4": 0.5}


class LakeData(vf.TaskData):
    level: str = ""
    answer: str = ""


class Lake(vf.Task[LakeData]):
    pass


def endless():
    while True:
        yield Lake(LakeData(system_prompt="You plan.", prompt="", level=""))


def sampler(tasks=None, rule="learnability"):
    curriculum = EngineerCurriculum(RuleEngineer(rule, RULES[rule]), Boards(START), tasks_per_round=12)
    return EngineerSampler(curriculum, endless() if tasks is None else tasks)


def trace(task, text, reward, *, ok=True, length=9, finish="stop"):
    usage = vf.Usage(prompt_tokens=5, completion_tokens=length)
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[vf.MessageNode(message=vf.AssistantMessage(content=text), sampled=True)],
        calls=[vf.ModelCall(node=0, finish_reason=finish, usage=usage)],
        rewards={"accuracy": vf.Reward(score=reward)},
        ok=ok,
    )


def paid(task, texts):
    return [float(judge([text], [task.data.level])[1][0]) for text in texts]


def episodes(task, texts, rewards=None, **words):
    """A group as a trainer finalizes it: on the wire, where the task's class is not known."""
    rewards = paid(task, texts) if rewards is None else rewards
    made = (
        vf.Episode(
            env=vf.EnvInfo(id="lake", name="lake"),
            task=one.task,
            group=vf.GroupInfo(id="0"),
            traces=[one],
            ok=one.ok,
        )
        for one in (trace(task, *pair, **words) for pair in zip(texts, rewards, strict=True))
    )
    return [vf.WireEpisode.model_validate(json.loads(episode.model_dump_json())) for episode in made]


def answered(task):
    data = task.data
    return episodes(task, group(Board(data.prompt, data.level, data.answer), RATES[data.name]))


def play(next_task, observe, count):
    keys = []
    for _ in range(count):
        task = next_task()
        observe(answered(task))
        keys.append((task.key, task.data))
    return keys


def test_tasks_are_the_environments_own_with_keys_of_their_own():
    designed = sampler()
    taken = [next(designed) for _ in range(30)]
    assert {type(task) for task in taken} == {Lake} and len({task.key for task in taken}) == 30
    assert {task.data.system_prompt for task in taken} == {"You plan."}
    assert all(judge([task.data.answer], [task.data.level])[0].optimal[0] for task in taken)


def test_a_group_is_counted_as_its_traces_say_and_errors_are_left_out():
    designed = sampler()
    task = next(designed)
    designed.observe(
        [
            *episodes(task, [task.data.answer], length=20),
            *episodes(task, [NO_PLAN], length=30, finish="length"),
            *episodes(task, [task.data.answer], ok=False),
        ]
    )
    designed.observe(episodes(task, [NO_PLAN], ok=False))
    for _ in range(12):
        next(designed)
    (row,) = designed.curriculum.history[0].evidence.by_kind
    assert (str(row.kind), row.n, row.valid, row.truncated, row.answer_tokens) == (task.data.name, 2, 1, 1, 25)
    assert row.advantage == 0.5
    assert designed.metrics()[f"{row.kind}/valid"] == 0.5


class Sum(vf.Task[vf.TaskData]):
    pass


SUMS = [Sum(vf.TaskData(idx=i, name=name, prompt=f"{name} {i}")) for name in ("short", "long") for i in range(5)]


def test_an_environments_own_tasks_are_drawn_by_their_kinds():
    """`learnability`: 3/4 of the long, 1/4 of the short; a kind with fewer tasks than wanted gives each first once."""
    samplers = TaskSamplers(by_kind(SUMS))
    curriculum = EngineerCurriculum(RuleEngineer("learnability", RULES["learnability"]), samplers, tasks_per_round=8)
    designed = EngineerSampler(curriculum, SUMS)
    for _ in range(8):
        task = next(designed)
        right = {"short": 4, "long": 2}[task.data.name]
        designed.observe(episodes(task, ["7"] * 4, [1.0] * right + [0.0] * (4 - right)))
    taken = [next(designed) for _ in range(8)]
    assert [row.valid_share for row in curriculum.history[0].evidence.by_kind] == [1, 0.5]
    assert all(task in SUMS for task in taken)
    long = [task.data.idx for task in taken if task.data.name == "long"]
    assert len(long) == round(8 * curriculum.config.data[1]) == 7 and set(long) == set(range(5))
    by_size = EngineerSampler(curriculum, SUMS, kind=lambda data: "long" if data.idx > 2 else "short")
    by_size.observe(episodes(SUMS[0], ["7"], [1.0]))
    with pytest.raises(ValueError, match="tasks = generator must be a finite sequence"):
        by_kind(endless())


def test_a_state_of_another_sampler_is_refused():
    with pytest.raises(ValueError, match=re.escape("the state of cursor is no curriculum's")):
        sampler().load_state_dict({"cursor": 3})


def test_the_sampler_has_the_methods_of_prime_rls_own_class():
    samplers = pytest.importorskip("prime_rl.orchestrator.curriculum.samplers")
    theirs = {name: method for name, method in vars(samplers.TaskSampler).items() if inspect.isfunction(method)}
    assert {"__next__", "observe", "state_dict", "load_state_dict", "metrics"} == theirs.keys()
    for name, method in theirs.items():
        ours = inspect.signature(getattr(EngineerSampler, name))
        assert [*ours.parameters] == [*inspect.signature(method).parameters], name


@pytest.mark.parametrize("kinds", ["boards", "sums"])
def test_prime_rls_curriculum_samples_observes_gates_and_resumes(kinds):
    """Its own class, with its configuration and a gate."""
    base = pytest.importorskip("prime_rl.orchestrator.curriculum.base")
    from prime_rl.configs.orchestrator import AdvRangeGateConfig, CurriculumConfig

    def made(seed=0):
        curriculum = base.Curriculum(CurriculumConfig(gates={"zero": AdvRangeGateConfig()}), SUMS)
        if kinds == "boards":
            curriculum.sampler = sampler()
            return curriculum, answered
        engineer = RuleEngineer("frontier", RULES["frontier"])
        mixture = EngineerCurriculum(engineer, TaskSamplers(by_kind(SUMS)), tasks_per_round=6, seed=seed)
        curriculum.sampler = EngineerSampler(mixture, SUMS)
        return curriculum, lambda task: episodes(task, ["7", "8"], [1.0, float(task.data.name == "short")])

    def steps(curriculum, answer, count):
        keys = []
        for _ in range(count):
            task = next(curriculum.sampler)
            assert curriculum.on_result(answer(task)) is True
            keys.append((task.key, task.data))
        return keys

    unbroken, answer = made()
    steps(unbroken, answer, 17)
    state = json.loads(json.dumps(unbroken.state_dict()))
    resumed, _ = made()
    resumed.load_state_dict(state)
    assert resumed.metrics() == unbroken.metrics() and resumed.metrics()["sampler/round"] >= 1
    assert steps(resumed, answer, 24) == steps(unbroken, answer, 24)
    assert resumed.state_dict() == unbroken.state_dict()


def test_prime_rls_train_source_draws_observes_and_resumes():
    """As its orchestrator does, gates included; the sampler's part of the state is plain JSON."""
    train_source = pytest.importorskip("prime_rl.orchestrator.train_source")
    from prime_rl.configs.orchestrator import AdvRangeGateConfig, CurriculumConfig, StandardSamplerConfig

    unpatched = train_source.Curriculum
    install(sampler)
    try:
        config = types.SimpleNamespace(
            ratio=1.0,
            curriculum=CurriculumConfig(sampler=StandardSamplerConfig(), gates={"zero": AdvRangeGateConfig()}),
        )

        def source():
            env = types.SimpleNamespace(name="lake", tasks=endless(), num_tasks=None, config=config)
            return train_source.TrainSource([env])

        def steps(source, count):
            return play(lambda: source.next_task(step=1).task, source.on_result, count)

        unbroken = source()
        steps(unbroken, 17)
        assert unbroken.metrics()["curriculum/lake/sampler/round"] == 1
        state = json.loads(json.dumps(unbroken.state_dict()["envs"]))
        resumed = source()
        resumed.load_state_dict({"rng": unbroken.state_dict()["rng"], "envs": state})
        assert steps(resumed, 24) == steps(unbroken, 24)
        assert resumed.state_dict() == unbroken.state_dict()
        (past, *_) = unbroken.curricula["lake"].sampler.curriculum.history
        assert [row.valid_share for row in past.evidence.by_kind] == [1, 0.5]
        assert unbroken.on_result(answered(unbroken.next_task(step=1).task)) is True  # the gate still decides
    finally:
        train_source.Curriculum = unpatched

"""The sampler with verifiers' own episodes and, where prime-rl is, in its own curriculum and train source."""

import json
import types

import pytest
from jaxlake_trainers import EngineerCurriculum, LakeTask
from jaxlake_trainers.prime_rl import EngineerSampler, install
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
    curriculum = EngineerCurriculum(RuleEngineer(rule, RULES[rule]), START, tasks_per_round=12)
    return EngineerSampler(curriculum, endless() if tasks is None else tasks)


def trace(task, text, *, ok=True, length=9, finish="stop"):
    usage = vf.Usage(prompt_tokens=5, completion_tokens=length)
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[vf.MessageNode(message=vf.AssistantMessage(content=text), sampled=True)],
        calls=[vf.ModelCall(node=0, finish_reason=finish, usage=usage)],
        rewards={"accuracy": vf.Reward(score=float(judge([text], [task.data.level])[1][0]))},
        ok=ok,
    )


def episodes(task, texts, **words):
    """A group as a trainer finalizes it: on the wire, where the task's class is not known."""
    made = (
        vf.Episode(
            env=vf.EnvInfo(id="lake", name="lake"),
            task=one.task,
            group=vf.GroupInfo(id="0"),
            traces=[one],
            ok=one.ok,
        )
        for one in (trace(task, text, **words) for text in texts)
    )
    return [vf.WireEpisode.model_validate(json.loads(episode.model_dump_json())) for episode in made]


def answered(task):
    data = task.data
    return episodes(task, group(LakeTask(data.idx, data.name, data.prompt, data.level, data.answer), RATES[data.name]))


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

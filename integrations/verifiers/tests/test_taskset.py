"""Rewards and metrics beside ``jaxlake.benchmark.score`` and figures worked out by hand; which boards are tasks."""

import asyncio
import re
from collections import Counter

import numpy as np
import pytest
import verifiers.v1 as vf
from jaxlake_mapf.taskset import MapfConfig, MapfData, MapfTask, MapfTaskset
from pydantic import ValidationError

from jaxlake import Check, answer, prompt, solve
from jaxlake.adapters.text import tasks as prompts_and_levels
from jaxlake.benchmark import FAILURES, load, score


def scored(task: MapfTask, *replies: str) -> vf.Trace:
    """The trace of replies, scored by the package."""
    nodes = [vf.MessageNode(message=vf.AssistantMessage(content=reply), sampled=True) for reply in replies]
    recorded, agent = vf.TraceTask(type="MapfTask", data=task.data), vf.AgentInfo(config=vf.AgentConfig())
    trace = vf.Trace(task=recorded, agent=agent, nodes=nodes)
    asyncio.run(task.score(trace))
    return trace


def test_a_thousand_answers_are_worth_what_the_scorer_says():
    benchmark = load("test")
    chosen = np.linspace(0, len(benchmark) - 1, 200).astype(int)  # every number of agents, side and hole ratio
    boards, optima = benchmark.instances[chosen], benchmark.optimum[chosen]
    plans = solve(boards).plan
    best = [answer(plan, boards.max_size) for plan in plans]
    delays = [1 + number % 90 for number in range(len(chosen))]  # some beyond the solver's horizon of 64 steps

    def delayed(text: str, steps: int) -> str:
        """Everyone waits at the start; what is appended on the goal is free."""
        waits, lines = r"\2" * steps, re.compile(r"^(\d:)(\(\d,\d\))(.*)(\(\d,\d\))$", re.MULTILINE)
        return lines.sub(rf"\1{waits}\2\3\4\4", text)

    def broken(number: int) -> str:
        text, first_agent = best[number], best[number].partition("\n")[0]
        return (
            text.rpartition("(")[0],  # ends before the goal
            first_agent,  # the others have no path
            best[number - 40],  # of another board
            text.replace("0:(", "0:(9,9)(", 1),  # starts elsewhere
            text + "\n7:(0,0)(0,1)",  # one agent too many
        )[number % 5]

    kinds = {
        "optimal": best,
        "in moves, or told at length": [
            f"<think>{best[number - 1]}</think>\nHere it is:\n```\n{text}\n```" if number % 2 else moves
            for number, (text, moves) in enumerate(
                zip(best, (answer(plan, boards.max_size, "moves") for plan in plans), strict=True)
            )
        ],
        "delayed": list(map(delayed, best, delays)),
        "broken": list(map(broken, range(len(chosen)))),
        "malformed": [("", "I cannot.", "[[1, 2", "0:(0,", "0: R Z Q")[number % 5] for number in range(len(chosen))],
    }
    pairs = prompts_and_levels(boards, optima)
    tasks = [MapfTask(MapfData(level=level, answer=text)) for (_, level), text in zip(pairs, best, strict=True)]
    for kind, texts in kinds.items():
        scores = score(dict(zip((benchmark.ids[index] for index in chosen), texts, strict=True)), benchmark)
        traces = list(map(scored, tasks, texts))
        for trace, index in zip(traces, chosen, strict=True):
            assert trace.metrics["valid"] == scores.valid[index] == (trace.reward > 0)
            assert trace.metrics["optimal"] == scores.optimal[index] == (trace.reward == 1)
            failed = [check.name.lower() for check in Check if not trace.metrics[check.name.lower()]]
            assert failed[:1] == [name for name, count in zip(FAILURES, scores.failures[index], strict=True) if count]
        rewards = [trace.reward for trace in traces]
        if kind == "delayed":
            excess = np.array(delays) * boards.num_agents
            assert rewards == pytest.approx(np.where(excess <= 2 * optima, 1 - 0.35 * excess / optima, 0.3))
        else:
            assert set(rewards) == ({1} if kind in list(kinds)[:2] else {0})


def test_boards_are_drawn_without_end_and_again_the_same():
    def first(count: int, **settings: object) -> list[MapfData]:
        taskset = MapfTaskset(MapfConfig(**settings))
        assert not taskset.bounded
        tasks = list(taskset.take(count))
        assert all(asyncio.run(task.validate(None)) for task in tasks[:8])
        return [task.data for task in tasks]

    drawn = first(300, boards="3-4,rooms5", hole=0.2, wait=0)
    assert Counter(task.name for task in drawn[:256]) == {"3": 86, "4": 85, "rooms5": 85}
    assert drawn == first(300, boards="3-4,rooms5", hole=0.2, wait=0)
    assert drawn[:10] != first(10, boards="3-4,rooms5", hole=0.2, wait=0, seed=1)
    assert len({task.prompt for task in drawn}) > 256
    ratios = {"4": {"data": 0.25, "hole": 0.0, "wait": 0}, "5x3": {"data": 0.75, "hole": 0.2, "wait": 0}}
    assert Counter(task.name for task in first(256, boards=ratios)) == {"4": 64, "5x3": 192}


def test_a_fixed_set_is_what_it_is_elsewhere():
    benchmark = load("validation")
    taskset = MapfTaskset(MapfConfig(boards="validation", style="grid", answer_format="moves"))
    assert taskset.bounded
    for task, id_, kind, board in zip(
        taskset.take(3), benchmark.ids, benchmark.kinds, benchmark.instances, strict=False
    ):
        assert (task.data.id, task.data.name) == (id_, str(kind))
        assert task.data.prompt == prompt(board, "grid", "moves")
        assert re.fullmatch(r"(\d:( [UDLRW])+\n?)+", task.data.answer)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"boards": "tset"}, "boards = 'tset' must be one of test, validation, families, or kinds: kind = 'tset'"),
        ({"boards": "3x5"}, "num_agents on random boards of size 3 = 5 must be a whole number from 1 to 4"),
        ({"boards": "3", "hole": 0.9}, "hole of size 3 = 0.9 must be from 0 to 0.5"),
        ({"boards": {"3": {"data": 1, "hole": 0.2}}}, "entry of size 3 = .* must be a mapping with data, hole, wait"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ValidationError, match=message):
        MapfConfig(**settings)

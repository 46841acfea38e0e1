"""Answers to the held-out boards by what a run has trained, as columns that need nothing of this project to be read."""

import functools
import json
from collections.abc import Mapping
from typing import Literal

import jax
import numpy as np
import pydantic

from jaxlake import benchmark
from jaxlake.benchmark import FAILURES, SETS, Benchmark, spread, take
from jaxlake.files import write_whole
from jaxlake.kinds import Family, Kind
from jaxlake.levels import pad
from jaxlake.types import MAX_AGENTS, MAX_SIZE
from rl.config import Section, WriterSection
from rl.judge.answers import GREEDY
from rl.judge.asking import ModelAsker, collect
from rl.judge.record import Answer
from rl.judge.suite import questions, score_answers, suite_identity
from rl.lab.comparison import EvaluationSection
from rl.lab.runs import EVALUATION, RunPlan
from rl.model.sampler import SamplingParams
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import load


class BoardColumns(Section):
    """The held-out boards, a list entry for each: `Kind.board` is the size."""

    id: list[str] = pydantic.Field(min_length=1)
    agents: list[int]
    size: list[int | str]
    wait_subset: list[float]
    needs_wait: list[bool]
    hole_ratio: list[float]


class AnswerColumns(Section):
    """The greedy answers to the boards, a list entry for each board, and the valid share of the samples, if any."""

    valid: list[Literal[0, 1]]
    optimal: list[Literal[0, 1]]
    first_failure: list[str | None]
    tokens: list[int | None]
    truncated: list[bool | None]
    sampled_valid: list[float] | None


class HeldOut(Section):
    """The content of a run's ``evaluation.json``."""

    boards: BoardColumns
    answers: AnswerColumns


def evaluate(plan: RunPlan, settings: EvaluationSection, display: Display, stop: Stop) -> None:
    """Let what a run has trained, as in ``final/``, answer the boards; write the run's ``evaluation.json``.

    All answers are kept in ``evaluations/`` of the run, and none of them is asked for again.
    """
    config, student = plan.config, plan.config.student
    if isinstance(student, WriterSection):
        text = student.text.model_copy(update={"max_new_tokens": settings.max_new_tokens})
        config = config.model_copy(update={"student": student.model_copy(update={"text": text})})
    suite = held_out(frozenset(kind.board for kind in config.all_kinds), settings.per_slice)
    answerer = load(config, plan.path / "final", suite.instances, lambda line: None)

    def answers(kind: str, sampling: SamplingParams, samples: int) -> Mapping[tuple[str, int], Answer]:
        asker = ModelAsker(answerer, suite, sampling, samples, config.seed)
        identity = {"sha256": suite.account["sha256"], "boards": len(suite)}
        identity |= suite_identity(config.student.text, config.seed, sampling, samples)
        asked = questions(config.student.text, config.seed, suite, samples)
        folder = plan.path / "evaluations" / f"held_out_{kind}"
        record = collect(asker, asked, folder, identity, display, stop, f"held-out boards, {kind}")
        assert record is not None, "a comparison's worker is one process"
        return record.answers

    greedy = answers("greedy", GREEDY, 1)
    scores = score_answers(suite, greedy, 1)
    first = [None if scores.valid[i] else FAILURES[scores.failures[i].argmax()] for i in range(len(suite))]
    shares = None
    if settings.samples:
        validation = config.validation
        sampling = SamplingParams(validation.temperature, validation.top_k, validation.top_p)
        sampled = answers("sampled", sampling, settings.samples)
        shares = score_answers(suite, sampled, settings.samples).valid.tolist()
    columns = {
        "boards": {
            "id": list(suite.ids),
            "agents": suite.instances.num_agents.tolist(),
            "size": [kind.board for kind in suite.kinds],
            "wait_subset": suite.wait_subset.tolist(),
            "needs_wait": suite.needs_wait.tolist(),
            "hole_ratio": suite.hole_ratio.tolist(),
        },
        "answers": {
            "valid": scores.valid.astype(int).tolist(),
            "optimal": scores.optimal.astype(int).tolist(),
            "first_failure": first,
            "tokens": [greedy[identifier, 0].tokens for identifier in suite.ids],
            "truncated": [greedy[identifier, 0].truncated for identifier in suite.ids],
            "sampled_valid": shares,
        },
    }
    content = HeldOut.model_validate(columns).model_dump()
    write_whole(plan.path / EVALUATION, (json.dumps(content) + "\n").encode())


def number_cells(agents: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Count the cells, a number of agents with a size, by agents, then by size, from 0 on: int ``[boards]``."""
    cells = list(zip(agents.tolist(), size.tolist(), strict=True))
    ordered = sorted(set(cells), key=lambda cell: (cell[0], Kind.of(cell[1])))
    places = {cell: place for place, cell in enumerate(ordered)}
    return np.array([places[cell] for cell in cells])


@functools.cache
def held_out(boards: frozenset[int | str], per_slice: int | None) -> Benchmark:
    """Return the fixed boards with these `Kind.board`, with 2 to 5 agents: random ones of both suites, else families'.

    No training board is among them, as `jaxlake.generate` never makes one of them.

    Args:
      per_slice: boards of each number of agents, board and wait subset, spread over the hole ratios; None: all.
    """
    suites = []
    for name in SETS:
        suite = benchmark.load(name)
        order = spread(suite)
        size = np.array([kind.board for kind in suite.kinds], object)
        of_others = (suite.family != Family.RANDOM.value) == (name == "families")
        order = order[(of_others & np.array([board in boards for board in size]))[order]]
        cell = number_cells(np.asarray(suite.instances.num_agents), size)
        cells = np.stack([cell, 100 * suite.wait_subset], axis=1)[order]
        cell = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
        rank = np.array([(cell[:i] == cell[i]).sum() for i in range(len(cell))], int)
        if len(order):
            suites.append(take(suite, np.sort(order[rank < (per_slice or len(suite))])))
    columns = ("optimum", "lower_bound", "makespan", "needs_wait", "family", "hole_ratio", "wait_subset")
    parts = [
        {name: getattr(suite, name) for name in columns} | {"instances": pad(suite.instances, MAX_SIZE, MAX_AGENTS)}
        for suite in suites
    ]
    joined = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    ids = tuple(identifier for suite in suites for identifier in suite.ids)
    return Benchmark(name="held out", ids=ids, account={"sha256": [s.account["sha256"] for s in suites]}, **joined)

"""Answers to the held-out boards by what a run has trained, as columns that need nothing of this project to be read."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pydantic

from engineer.evidence import CHECKS
from jaxlake.arguments import seed_key
from jaxlake.benchmark import FAILURES, SETS, Benchmark, load, spread, take
from jaxlake.files import write_whole
from jaxlake.kinds import Family, Kind
from jaxlake.levels import pad
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE
from jaxlake.verify import first_failure
from rl import config as config_
from rl.config import Section
from rl.judge.asking import collect, load_askers
from rl.judge.record import Answer
from rl.judge.suite import questions, score_answers
from rl.lab.comparison import EvaluationSection
from rl.lab.runs import EVALUATION, RunPlan
from rl.model.sampler import SamplingParams
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students.player import load_player, ran_out


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


def read_held_out(path: Path) -> HeldOut:
    """Read a run's ``evaluation.json``; ConfigError, in one line, if it is damaged."""
    return config_.parse(HeldOut, path.read_bytes(), str(path))


def evaluate(plan: RunPlan, settings: EvaluationSection, display: Display, stop: Stop) -> None:
    """Let what a run has trained, as in ``final/``, answer the boards; write the run's ``evaluation.json``."""
    suite = held_out(frozenset(kind.board for kind in plan.config.all_kinds), settings.per_slice)
    answer = played if plan.config.plays else functools.partial(written, display=display, stop=stop)
    columns = {
        "boards": {
            "id": list(suite.ids),
            "agents": suite.instances.num_agents.tolist(),
            "size": [kind.board for kind in suite.kinds],
            "wait_subset": suite.wait_subset.tolist(),
            "needs_wait": suite.needs_wait.tolist(),
            "hole_ratio": suite.hole_ratio.tolist(),
        },
        "answers": answer(plan, suite, settings),
    }
    content = HeldOut.model_validate(columns).model_dump()
    write_whole(plan.path / EVALUATION, (json.dumps(content) + "\n").encode())


def played(plan: RunPlan, suite: Benchmark, settings: EvaluationSection) -> dict[str, Any]:
    """Let the run's network play the boards, and return the columns of its answers."""
    player = load_player(plan.config, plan.path / "final")
    levels, optima, objective = suite.instances, suite.optimum, plan.config.lake.objective
    verdicts, steps = player.play(levels, optima, objective, seed_key(0), greedy=True)
    sampled = [
        player.play(levels, optima, objective, seed_key(1 + number), greedy=False)[0].valid
        for number in range(settings.samples)
    ]
    return {
        "valid": verdicts.valid.astype(int).tolist(),
        "optimal": verdicts.optimal.astype(int).tolist(),
        "first_failure": [None if i == ABSENT else CHECKS[i] for i in first_failure(verdicts.checks).tolist()],
        "tokens": steps.tolist(),
        "truncated": ran_out(verdicts).tolist(),
        "sampled_valid": np.mean(sampled, axis=0).tolist() if sampled else None,
    }


def written(
    plan: RunPlan, suite: Benchmark, settings: EvaluationSection, display: Display, stop: Stop
) -> dict[str, Any]:
    """Let the run's policy write plans, and return the columns of its answers.

    All answers are kept in ``evaluations/`` of the run, and none of them is asked for again.
    """
    text = plan.config.text.model_copy(update={"max_new_tokens": settings.max_new_tokens})
    config, objective = plan.config.model_copy(update={"text": text}), plan.config.lake.objective

    make_asker = load_askers(config, str(plan.path / "final"), suite, lambda line: None)

    def answers(kind: str, sampling: SamplingParams, samples: int) -> Mapping[tuple[str, int], Answer]:
        asker, asked = make_asker(sampling, samples), questions(config, suite, samples)
        identity = {"sha256": suite.account["sha256"], "boards": len(suite)}
        folder = plan.path / "evaluations" / f"held_out_{kind}"
        record = collect(asker, asked, folder, identity, display, stop, f"held-out boards, {kind}")
        assert record is not None, "a comparison's worker is one process"
        return record.answers

    greedy = answers("greedy", SamplingParams(temperature=0.0), 1)
    scores = score_answers(suite, greedy, 1, objective)
    first = [None if scores.valid[i] else FAILURES[scores.failures[i].argmax()] for i in range(len(suite))]
    shares = None
    if settings.samples:
        validation = config.validation
        sampling = SamplingParams(validation.temperature, validation.top_k, validation.top_p)
        sampled = answers("sampled", sampling, settings.samples)
        shares = score_answers(suite, sampled, settings.samples, objective).valid.tolist()
    return {
        "valid": scores.valid.astype(int).tolist(),
        "optimal": scores.optimal.astype(int).tolist(),
        "first_failure": first,
        "tokens": [greedy[identifier, 0].tokens for identifier in suite.ids],
        "truncated": [greedy[identifier, 0].truncated for identifier in suite.ids],
        "sampled_valid": shares,
    }


def number_cells(agents: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Number the cells, a number of agents with a size, by agents, then by size: int ``[boards]`` from 0 on."""
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
        suite = load(name)
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
    instances = [pad(suite.instances, MAX_SIZE, MAX_AGENTS) for suite in suites]
    columns = ("optimum", "lower_bound", "makespan", "needs_wait", "family", "hole_ratio", "wait_subset")
    return Benchmark(
        name="held out",
        ids=tuple(identifier for suite in suites for identifier in suite.ids),
        instances=jax.tree.map(lambda *x: np.concatenate(x), *instances),
        account={"sha256": [suite.account["sha256"] for suite in suites]},
        **{name: np.concatenate([getattr(suite, name) for suite in suites]) for name in columns},
    )

"""Boards as tasks, fixed or drawn without end, and what a reply's plan is worth. Runs no model."""

import functools
import itertools
from collections.abc import Iterable, Iterator

import jax
import numpy as np
import verifiers.v1 as vf
from pydantic import Field, model_validator

from jaxlake import AnswerFormat, Check, Instance, LakeConfig, PromptStyle, Solution, answer, generate, solve, view
from jaxlake.adapters.text import judge, tasks
from jaxlake.arguments import seed_key
from jaxlake.benchmark import SETS, load
from jaxlake.kinds import Kind, read_kinds
from jaxlake.types import MAX_STEPS, Verdict
from jaxlake_mapf.turns import Game, outcome, words

_BLOCK = 256
"""Boards that are drawn at once, or solved before the first task; those that follow in a fixed set are solved together,
in 9 s of a core, where blocks of this size would take 30."""


class MapfData(vf.TaskData):
    """A board to plan on. ``id`` is that of the fixed set, ``name`` the kind of the board."""

    level: str
    """The board and its least sum of costs, as ``jaxlake.adapters.text.judge`` reads it."""
    answer: str
    """An optimal plan by the exact solver, in the format that the prompt asks for. No model sees it."""
    turns: int = 0
    """Steps in which all agents must arrive, played turn by turn; 0 if one reply has the plan."""


@functools.lru_cache(256)  # the reward and the metrics are asked for one after the other, by many rollouts at once
def _judged(reply: str, level: str) -> tuple[Verdict, np.ndarray]:
    return judge([reply], [level])


class MapfTask(vf.Task[MapfData]):
    """Plan the paths of all agents in one reply, or move them turn by turn."""

    @vf.reward(weight=1.0)
    async def accuracy(self, trace: vf.Trace) -> float:
        """Return the paper's accuracy, 0 for a plan that is not valid and 1 for an optimal one; 1 for solved turns."""
        if self.data.turns:
            return self._played(trace)["solved"]
        return float(_judged(trace.last_reply, self.data.level)[1][0])

    @vf.metric
    async def verdict(self, trace: vf.Trace) -> dict[str, float]:
        """Return which of the eight checks pass, ``valid`` (all) and ``optimal``; in turns the outcome of the game."""
        if self.data.turns:
            return self._played(trace)
        found, _ = _judged(trace.last_reply, self.data.level)
        checks = {check.name.lower(): passed for check, passed in zip(Check, found.checks[0].tolist(), strict=True)}
        return checks | {"valid": found.valid.item(), "optimal": found.optimal.item()}

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Return whether the solver's plan is valid and costs what the optimum says; in turns whether it solves."""
        if self.data.turns:
            return bool(outcome(tuple(self.data.answer.split()), self.data.level, self.data.turns)["solved"])
        return bool(judge([self.data.answer], [self.data.level])[0].optimal[0])

    def _played(self, trace: vf.Trace) -> dict[str, float]:
        replies = tuple(message.content or "" for message in trace.assistant_messages)
        return outcome(replies, self.data.level, self.data.turns)


class MapfConfig(vf.TasksetConfig):
    """Which boards, and how they are put into words."""

    boards: str | dict[str, dict[str, float]] = "test"
    """A fixed set, ``test`` (3,150 boards), ``validation`` or ``families`` (2,250); or kinds of boards to draw without
    end, ``3-6,rooms6,corridor8x3``, each as often; or a ``LakeConfig``: ``{"6": {"data": 1, "hole": .2, "wait": .5}}``.
    """
    hole: float = 0.2
    """Density of the holes of boards drawn by kinds, 0 to .5."""
    wait: float = 0.5
    """Share of the boards drawn by kinds on which every optimal plan waits, 0 to 1."""
    seed: int = 0
    """Of the boards that are drawn; another one gives other boards."""
    style: PromptStyle = PromptStyle.VERBOSE
    """``verbose``, the rules in English; ``grid``, the board and a line; ``coordinates``, for models trained on it."""
    answer_format: AnswerFormat = AnswerFormat.COORDINATES
    """Form of the answer in the prompt, ``coordinates`` or ``moves``. Replies in both are read."""
    turns: int = Field(0, ge=0, le=MAX_STEPS)
    """Steps in which all agents must arrive, played turn by turn from each agent's own view; 0 for a plan in one reply.
    ``style`` and ``answer_format`` are of plans alone."""

    @property
    def lake(self) -> LakeConfig | None:
        """Return the configuration of drawn boards; None for a fixed set."""
        if isinstance(self.boards, dict):
            return LakeConfig.from_dict(self.boards)
        if self.boards in SETS:
            return None
        try:
            kinds = read_kinds(self.boards.split(","))
        except ValueError as error:
            raise ValueError(f"boards = {self.boards!r} must be one of {', '.join(SETS)}, or kinds: {error}") from None
        return LakeConfig.uniform(kinds, self.hole, self.wait)

    @model_validator(mode="after")
    def _names_boards(self) -> "MapfConfig":
        _ = self.lake
        return self


class MapfTaskset(vf.Taskset[MapfTask, MapfConfig]):
    """Boards of a fixed set in its order, or drawn without end: the same for the same configuration and seed."""

    def __init__(self, config: MapfConfig) -> None:
        super().__init__(config)
        self.INFINITE = config.lake is not None

    def load(self) -> Iterator[MapfTask]:
        """Yield the tasks, each with the solver's plan."""
        style, answer_format = self.config.style, self.config.answer_format
        for ids, kinds, instances, optimum, solutions in self._blocks():
            texts = tasks(instances, optimum, style, answer_format)
            for id_, kind, (prompt, level), plan in zip(ids, kinds, texts, solutions.plan, strict=True):
                best = answer(plan, instances.max_size, answer_format)
                if turns := self.config.turns:
                    prompt = view.INSTRUCTIONS + Game(level, turns).message
                    best = words(plan, instances.max_size)
                data = MapfData(id=id_, name=str(kind), prompt=prompt, level=level, answer=best, turns=turns)
                yield MapfTask(data, self.config.task)

    def _blocks(self) -> Iterator[tuple[Iterable[str | None], Iterable[Kind], Instance, np.ndarray, Solution]]:
        """Yield ids, kinds, boards, optima and solutions of the next boards."""
        if (lake := self.config.lake) is None:
            fixed = load(self.config.boards)
            for block in (slice(_BLOCK), slice(_BLOCK, None)):
                boards = fixed.instances[block]
                yield fixed.ids[block], fixed.kinds[block], boards, fixed.optimum[block], solve(boards)
            return
        key = seed_key(self.config.seed)
        for number in itertools.count():
            found = generate(lake, jax.random.fold_in(key, number), _BLOCK)
            yield itertools.repeat(None, _BLOCK), found.kinds, found.instances, found.solutions.cost, found.solutions

"""Episodes on the boards that ship with jaxlake, as OpenEnv plays them. Opens no socket."""

import uuid
from typing import Any

import jax
import numpy as np
from fastapi import HTTPException
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

import jaxlake
from jaxlake import Action, AnswerFormat, Check, Instance, Lake, PromptStyle, State, TimeStep, observations, view
from jaxlake.adapters.text import judge, tasks
from jaxlake.fixed_sets import Benchmark, load
from jaxlake.rewards import accuracy
from jaxlake_openenv.models import LakeAction, LakeObservation, LakeState

SPLITS = {
    "train": "pool",
    "train_families": "pool_families",
    **{name: name for name in ("validation", "test", "families")},
}
"""Boards by split: the stocks of training boards, and the fixed sets."""
TYPES = {"train_families": "train", "families": "test"}
"""What OpenEnv calls the splits whose names are none of its own."""
PREVIEW = 1000
"""Tasks of a split that are listed at once: all 21,208 of ``train`` are 30 MB of prompts."""

_LETTERS = {action.name[0]: action for action in Action}
_LAKE = Lake(observe=view.View())
_reset, _step = jax.jit(_LAKE.reset), jax.jit(_LAKE.step)  # one program each: all boards are padded alike


class LakeEnvironment(Environment[LakeAction, LakeObservation, LakeState]):
    """One episode at a time on a board of a split, planned at once or played move by move."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = LakeState()
        self._now: tuple[State, TimeStep] | None = None
        self._optimum = 0
        self._board = ("", "", "")  # id, prompt, level
        self._over = False

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        index: int | None = None,
        style: str = PromptStyle.VERBOSE.value,
        answer_format: str = AnswerFormat.COORDINATES.value,
    ) -> LakeObservation:
        """Begin an episode.

        Args:
          seed: draws the board where no index is given; without a seed too, any board comes.
          episode_id: for the state; made up if not given.
          split: a key of ``SPLITS``.
          index: of the board in its split.
          style, answer_format: of the prompt; words of ``jaxlake.PromptStyle`` and ``AnswerFormat``.

        Raises:
          HTTPException: 400, naming an argument that cannot be and what it must be.
        """
        boards = _boards(split)
        if index is None:
            index = int(np.random.default_rng(seed).integers(len(boards)))
        one = _one(split, index)
        try:
            ((prompt, level),) = tasks(boards.instances[one], boards.optimum[one], style, answer_format)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        self._board, self._optimum = (boards.ids[index], prompt, level), int(boards.optimum[index])
        self._state = LakeState(episode_id=episode_id or uuid.uuid4().hex, split=split, index=index)
        self._now = _reset(boards.instances[index])
        return self._played(self._now)

    def step(self, action: LakeAction, timeout_s: float | None = None) -> LakeObservation:
        """Judge a whole plan, or play one move of every agent.

        Moves follow the rules of ``jaxlake.Lake``: one into a hole, off the board or into a conflict stays where it
        is. After 64 steps the episode is over.

        Raises:
          HTTPException: 400 before ``reset``, after the end, and for an action that does not fit the board.
        """
        if self._now is None:
            raise HTTPException(400, "nothing has begun: reset must come first, on the same connection")
        if self._over:
            raise HTTPException(400, "the episode is over: reset must come next")
        if action.plan is not None and self._state.step_count:
            raise HTTPException(400, "plan begins at the start: it must be the first action after reset")
        if action.plan is not None:
            observation = self._planned(action.plan, self._now)
        else:
            self._now = _step(self._now[0], _actions(action.moves or "", self._now[0].instance))
            observation = self._played(self._now)
        self._state.step_count += 1
        return observation

    @property
    def state(self) -> LakeState:
        """Which board is played, and how many actions there were."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Describe the environment."""
        return EnvironmentMetadata(
            name="jaxlake",
            description="Multi-agent path finding on frozen lakes: plans in words, or moves; scored by an exact solver",
            version=jaxlake.__version__,
            documentation_url="https://github.com/jaxlake/jaxlake",
        )

    def list_splits(self) -> list[dict[str, str]]:
        """Return the splits, each with what OpenEnv takes it for: train, validation or test."""
        return [{"name": split, "type": TYPES.get(split, split)} for split in SPLITS]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the first ``PREVIEW`` tasks of a split."""
        return self.get_task_range(split, 0, PREVIEW)

    def num_tasks(self, split: str) -> int:
        """Return how many tasks a split has."""
        return len(_boards(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a task: split and index for ``reset``, the board's id and kind, and its prompt as of ``reset``."""
        return _tasks(split, _one(split, index))[0]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return tasks ``[start, stop)`` of a split, by Python's rules of slices."""
        return _tasks(split, slice(start, stop))

    def _planned(self, plan: str, now: tuple[State, TimeStep]) -> LakeObservation:
        verdict, worth = judge([plan], [self._board[2]])
        checks, valid = verdict.checks[0].tolist(), bool(verdict.valid[0])
        self._over = True
        return self._observation(
            now,
            reward=float(worth[0]),
            solved=valid,
            optimal=bool(verdict.optimal[0]),
            cost=int(verdict.cost[0]) if valid else None,
            checks={check.name.lower(): passed for check, passed in zip(Check, checks, strict=True)},
        )

    def _played(self, now: tuple[State, TimeStep]) -> LakeObservation:
        """Return what moves led to; their reward is that of the plan that they are."""
        info, truncated = now[1].info, bool(now[1].truncated)
        solved, cost = bool(info.solved), int(info.costs.sum_of_costs)
        self._over = solved or truncated
        return self._observation(
            now,
            reward=float(accuracy(np.bool_(solved), np.int32(cost), np.int32(self._optimum))),
            solved=solved,
            optimal=solved and cost == self._optimum,
            cost=cost if solved else None,
        )

    def _observation(self, now: tuple[State, TimeStep], **fields: Any) -> LakeObservation:
        lake, step = now
        count = int(lake.instance.num_agents)
        legal, views = np.asarray(step.legal_actions)[:count], np.asarray(step.observation)[:count]
        return LakeObservation(
            done=self._over,
            task=self._board[0],
            prompt=self._board[1],
            board=observations.text(lake),
            legal_moves=["".join(letter for letter, action in _LETTERS.items() if row[action]) for row in legal],
            instructions=view.INSTRUCTIONS,
            views=[view.text(numbers) for numbers in views],
            **fields,
        )


def _actions(moves: str, instance: Instance) -> np.ndarray:
    """Return int32 ``[max_agents]`` from a letter or a word for each agent."""
    count, words = int(instance.num_agents), moves.split()
    chosen = list(map(view.read_move, words)) if len(words) == count else list(map(_LETTERS.get, moves))
    if len(chosen) != count or None in chosen:
        letters, names = "".join(_LETTERS), ", ".join(action.name.lower() for action in Action)
        raise HTTPException(
            400,
            f"moves = {moves[:20]!r} must be a letter of {letters}, or a word of {names}, for each of {count} agents",
        )
    actions = np.full(instance.max_agents, Action.WAIT, np.int32)
    actions[:count] = chosen
    return actions


def _boards(split: str) -> Benchmark:
    if split not in SPLITS:
        raise HTTPException(400, f"split = {split!r} must be one of {', '.join(SPLITS)}")
    return load(SPLITS[split])


def _one(split: str, index: int) -> slice:
    """Return the part of a split that is one board."""
    count = len(_boards(split))
    if not 0 <= index < count:
        raise HTTPException(400, f"index = {index} must be from 0 to {count - 1}, the boards of split {split}")
    return slice(index, index + 1)


def _tasks(split: str, part: slice) -> list[dict[str, Any]]:
    boards = _boards(split)
    numbers = range(len(boards))[part]
    prompts = tasks(boards.instances[part], boards.optimum[part])
    rows = zip(numbers, boards.ids[part], boards.kinds[part], prompts, strict=True)
    return [
        {"id": name, "split": split, "index": index, "kind": str(kind), "prompt": prompt}
        for index, name, kind, (prompt, _) in rows
    ]

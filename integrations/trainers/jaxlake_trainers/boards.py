"""Boards as the tasks of a curriculum, and the YAML file that describes such a curriculum."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import yaml

from engineer.evidence import environment
from jaxlake import AnswerFormat, LakeConfig, PromptStyle, answer, generate
from jaxlake.adapters import text
from jaxlake.config import FIELDS
from jaxlake.kinds import read_kinds
from jaxlake_trainers.curriculum import Drawn, EngineerCurriculum, named_engineer


@dataclasses.dataclass(frozen=True)
class Board:
    """A board to plan on, in words.

    Attributes:
      prompt: the task for a language model.
      level: the board and its least sum of costs, for ``jaxlake.adapters.text.judge`` and ``compute_score``.
      answer: an optimal plan by the solver, in the format that the prompt asks for.
    """

    prompt: str
    level: str
    answer: str


@dataclasses.dataclass(frozen=True)
class Boards:
    """Kinds of boards, ``6`` or ``rooms6x3``, whose holes and waits the engineer designs too.

    Attributes:
      start: the first round's configuration; its kinds are those of all rounds.
      style, answer_format: of the prompts.
    """

    start: LakeConfig
    style: PromptStyle | str = PromptStyle.VERBOSE
    answer_format: AnswerFormat | str = AnswerFormat.COORDINATES
    ratios: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def settings(self) -> dict[str, Any]:
        """The prompts' style and format."""
        return {"words": [PromptStyle(self.style).value, AnswerFormat(self.answer_format).value]}

    def draw(self, config: LakeConfig, key: jax.Array, count: int) -> Drawn:
        """Draw boards and solve them; a board of a fixed set is never among them."""
        found = generate(config, key, count)
        texts = text.tasks(found.instances, found.solutions.cost, self.style, self.answer_format)
        plans = (answer(plan, found.instances.max_size, self.answer_format) for plan in found.solutions.plan)
        return Drawn(
            kinds=list(map(str, found.kinds)),
            contents=[Board(*words, plan) for words, plan in zip(texts, plans, strict=True)],
            realised=LakeConfig.from_dict(found.realised()),
            environment=environment(found, config),
        )

    def judge(self, content: Board, rewards: np.ndarray, answers: Sequence[str] | None) -> tuple[Any, Any]:
        """Judge the answers by the eight checks, whatever they were paid."""
        if answers is None:
            raise ValueError("answers = None must be the texts: boards are judged by them")
        verdict, _ = text.judge(answers, [content.level] * len(answers))
        return verdict.checks, verdict.optimal


def curriculum_from_file(path: str | Path) -> EngineerCurriculum:
    """Return the curriculum of boards that a YAML file describes.

    Its keys are ``kinds``, a list such as ``[3-6, rooms6, corridor8x3]``; ``engineer``, a rule's name
    (``engineer.RULES``; by default ``learnability``) or ``module:attribute`` of an engineer; ``hole`` and ``wait``,
    the first round's ratios (0.25 and 0.5); and ``tasks_per_round``, ``seed``, ``style``, ``answer_format``.

    Raises:
      ValueError: in one line, naming the file, the key and what it must be.
      OSError: if it cannot be read.
    """
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        if not isinstance(settings, Mapping):
            raise ValueError("it must be a mapping")
        if unknown := sorted(map(str, set(settings) - set(_SETTINGS))):
            raise ValueError(f"{unknown[0]} is no setting; it must be one of {', '.join(_SETTINGS)}")
        kinds = settings.get("kinds")
        if not isinstance(kinds, list):
            raise ValueError(f"kinds = {kinds!r} must be a list such as [3-6, rooms6, corridor8x3]")
        start = LakeConfig.uniform(read_kinds(kinds), settings.get("hole", 0.25), settings.get("wait", 0.5))
        words, rounds = (
            {name: settings[name] for name in names if name in settings} for names in (_SETTINGS[4:6], _SETTINGS[6:])
        )
        engineer = named_engineer(settings.get("engineer", "learnability"))
        return EngineerCurriculum(engineer, Boards(start, **words), **rounds)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None


_SETTINGS = ("kinds", "engineer", "hole", "wait", "style", "answer_format", "tasks_per_round", "seed")

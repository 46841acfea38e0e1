"""Rounds of tasks that an engineer designs from the answers a trainer reports; knows no trainer and runs no model."""

import dataclasses
import importlib
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from jaxlake import AnswerFormat, Kind, LakeConfig, PromptStyle, answer, generate
from jaxlake.adapters.text import judge, tasks
from jaxlake.arguments import seed_key, whole_number
from jaxlake.kinds import read_kinds
from jaxlake.processes import check_process

try:
    from engineer import RULES, Engineer, Evidence, PastRound, RuleEngineer
    from engineer.evidence import Sums, add, training_evidence
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"jaxlake_trainers needs the package engineer ({error}): pip install --no-deps ./rl in a clone of jaxlake"
    ) from None

EXPLORED = 0.25
"""Share of a round that all kinds get alike, whatever is designed: without boards there is no evidence on a kind, as
nothing is validated beside the training."""
_BOARDS, _DESIGN = 0, 1  # what a key is for


@dataclasses.dataclass(frozen=True)
class LakeTask:
    """A board to plan on, in words.

    Attributes:
      index: serial number through all rounds, from 0.
      kind: of the board, as ``jaxlake.Kind`` names it: ``6``, ``rooms6x3``.
      prompt: the task for a language model.
      level: the board and its least sum of costs, for ``jaxlake.adapters.text.judge`` and ``compute_score``.
      answer: an optimal plan by the solver, in the format that the prompt asks for.
    """

    index: int
    kind: str
    prompt: str
    level: str
    answer: str


class EngineerCurriculum(Iterator[LakeTask]):
    """Tasks without end, in rounds; before each but the first, an engineer reads the evidence and designs the boards.

    A round ends when the task after its last one is asked for, with whatever answers have been reported by then: a
    trainer that runs ahead loses nothing, as answers that come later count for the round in which they come. A round
    of which none came is drawn again by the same configuration.

    The same arguments and the same reports give the same tasks, also from a saved state on: boards are drawn anew from
    their configuration and a key of (seed, round), on one machine bit for bit.

    Attributes:
      config: the configuration of the round, as designed.
      tasks_per_round: boards that are drawn at once.
      history: the finished rounds: configuration as realised, evidence, what the engineer thought.
    """

    def __init__(
        self,
        engineer: Engineer,
        start: LakeConfig,
        *,
        tasks_per_round: int = 256,
        seed: int = 0,
        style: PromptStyle | str = PromptStyle.VERBOSE,
        answer_format: AnswerFormat | str = AnswerFormat.COORDINATES,
    ) -> None:
        """Draw the first round.

        Args:
          engineer: any engineer of the package ``engineer``; every kind keeps a floor of data (``EXPLORED``).
          start: the first round's configuration; its kinds are those of all rounds.
          tasks_per_round: boards that are drawn at once, of which each is handed out once.
          seed: of boards and designs.
          style, answer_format: of the prompts.

        Raises:
          ValueError: naming the argument and what it must be, and for a kind without any solvable board.
        """
        self.config, self.history = start, list[PastRound]()
        self._engineer = engineer
        self.tasks_per_round = whole_number("tasks_per_round", tasks_per_round, 1)
        self._seed = whole_number("seed", seed, 0)
        self._words = PromptStyle(style), AnswerFormat(answer_format)
        self._sums: Sums | None = None
        self._round, self._place, self._rationale = 0, 0, ""
        self._draw()

    @classmethod
    def from_file(cls, path: str | Path) -> "EngineerCurriculum":
        """Return what a YAML file describes.

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
            keywords = {name: value for name, value in settings.items() if name in _KEYWORDS}
            return cls(named_engineer(settings.get("engineer", "learnability")), start, **keywords)
        except (ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{path}: {' '.join(str(error).split())}") from None

    def __next__(self) -> LakeTask:
        """Return the next task; the first of a round takes its boards' drawing, and the engineer's time."""
        if self._place == self.tasks_per_round:
            self._design()
        place = self._place
        self._place += 1
        prompt, level = self._texts[place]
        boards = self._boards
        return LakeTask(
            index=self._round * self.tasks_per_round + place,
            kind=str(boards.kinds[place]),
            prompt=prompt,
            level=level,
            answer=answer(boards.solutions.plan[place], boards.instances.max_size, self._words[1]),
        )

    def observe(
        self,
        kind: str,
        level: str,
        answers: Sequence[str],
        rewards: Sequence[float],
        tokens: Sequence[int],
        truncated: Sequence[bool],
    ) -> None:
        """Count one group: the sampled answers to a task, which are judged here by the eight checks.

        Args:
          kind, level: of the task.
          answers: ``[n]``, at least one, in any form that ``jaxlake.text`` reads.
          rewards: ``[n]``, the trainer's own; less their mean they are the advantages that the bandit reads.
          tokens: ``[n]`` lengths of the answers.
          truncated: ``[n]``, whether an answer hit the length cap.

        Raises:
          ValueError: for a kind that the configuration does not have, and for lists of different lengths.
        """
        if Kind.of(kind) not in self.config.kinds:
            raise ValueError(f"kind = {kind!r} must be one of {', '.join(map(str, self.config.kinds))}")
        if not len(answers) == len(rewards) == len(tokens) == len(truncated) > 0:
            lengths = f"{len(answers)}, {len(rewards)}, {len(tokens)} and {len(truncated)} entries"
            raise ValueError(f"answers, rewards, tokens, truncated have {lengths}: each must have one for every answer")
        verdict, _ = judge(answers, [level] * len(answers))
        worth = np.asarray(rewards, float)
        self._sums = add(
            self._sums,
            np.array([Kind.of(kind)], object),
            checks=np.asarray(verdict.checks)[None],
            optimal=np.asarray(verdict.optimal)[None],
            tokens=np.asarray(tokens)[None],
            truncated=np.asarray(truncated)[None],
            advantages=(worth - worth.mean())[None],
        )

    def state_dict(self) -> dict[str, Any]:
        """Return plain JSON values from which ``load_state_dict`` goes on with the very same tasks."""
        return {
            "settings": self._settings(),
            "round": self._round,
            "place": self._place,
            "config": self.config.to_dict(),
            "rationale": self._rationale,
            "sums": self._sums,
            "history": [past.to_json() for past in self.history],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of ``state_dict``; the engineer may be another one.

        Raises:
          ValueError: for a state of other kinds, seed, number of tasks or words.
        """
        if state["settings"] != self._settings():
            raise ValueError(f"the state is of a curriculum with {state['settings']}: it must be of {self._settings()}")
        self._round, self._place, self._rationale = state["round"], state["place"], state["rationale"]
        self.config, self._sums = LakeConfig.from_dict(state["config"]), state["sums"]
        self.history = [PastRound.from_json(past) for past in state["history"]]
        self._draw()

    def metrics(self) -> dict[str, float]:
        """Return the round's number and configuration, and each kind's valid share in the last finished one."""
        columns = self.config.to_dict()
        config = {f"{kind}/{field}": columns[kind][field] for kind in columns for field in columns[kind]}
        rows = self.history[-1].evidence.by_kind if self.history else ()
        return {"round": float(self._round)} | config | {f"{row.kind}/valid": row.valid_share for row in rows}

    def _settings(self) -> dict[str, Any]:
        kinds, words = list(map(str, self.config.kinds)), [word.value for word in self._words]
        return {"kinds": kinds, "tasks_per_round": self.tasks_per_round, "seed": self._seed, "words": words}

    def _key(self, purpose: int) -> jax.Array:
        check_process()
        return jax.random.fold_in(jax.random.fold_in(seed_key(self._seed), purpose), self._round)

    def _draw(self) -> None:
        self._boards = generate(self.config, self._key(_BOARDS), self.tasks_per_round)
        self._texts = tasks(self._boards.instances, self._boards.solutions.cost, *self._words)

    def _design(self) -> None:
        """End the round, and begin the next one by what the engineer makes of the evidence."""
        if self._sums is not None:
            realised = LakeConfig.from_dict(self._boards.realised())
            past = PastRound(self._round, realised, self._evidence(self._sums), self._rationale)
            proposal = self._engineer.propose(past.evidence, [*self.history, past], self._key(_DESIGN))
            self.history.append(past)
            designed = proposal.projected
            least = EXPLORED / len(designed.kinds)
            data = np.maximum(designed.data, least)
            data -= (data - least) * (data.sum() - 1) / (data - least).sum()
            self.config = dataclasses.replace(designed, data=tuple(data.tolist()))
            self._rationale, self._sums = proposal.thinking, None
        self._round, self._place = self._round + 1, 0
        self._draw()

    def _evidence(self, sums: Sums) -> Evidence:
        """Return the round's answers as evidence: what was sampled in training, in the place of a validation."""
        training = training_evidence(sums, self._boards, self.config)
        rows = training.by_kind
        answers, groups = (sum(getattr(row, field) for row in rows) for field in ("n", "groups"))
        return Evidence(
            by_kind=rows,
            sampled_valid=sum(row.valid for row in rows) / answers,
            sampled_se=math.hypot(*(row.n * (row.sampled_se or 0.0) for row in rows)) / answers,
            samples_per_prompt=answers // groups,
            answer_tokens=sum(row.n * (row.answer_tokens or 0.0) for row in rows) / answers,
            truncated=sum(row.truncated for row in rows) / answers,
            environment=training.environment,
            training=training,
        )


_KEYWORDS = [
    name
    for name, parameter in inspect.signature(EngineerCurriculum).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
]
_SETTINGS = ["kinds", "engineer", "hole", "wait", *_KEYWORDS]


def named_engineer(name: str) -> Engineer:
    """Return a rule by its name in ``engineer.RULES``, or an engineer of yours by ``module:attribute``.

    Raises:
      ValueError: for a name that leads to no engineer.
    """
    if name in RULES:
        return RuleEngineer(name, RULES[name])
    module, colon, attribute = str(name).partition(":")
    if not colon:
        raise ValueError(f"engineer = {name!r} must be module:attribute, or one of {', '.join(RULES)}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"engineer = {name!r}: {error}") from None
    if not callable(getattr(found, "propose", None)):
        raise ValueError(f"engineer = {name!r} must be an engineer, with a method propose")
    return found

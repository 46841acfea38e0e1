"""Rounds of tasks that an engineer designs from the rewards a trainer reports; knows no trainer and no kind of task."""

import dataclasses
import hashlib
import importlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from jaxlake import Kind, LakeConfig
from jaxlake.arguments import seed_key, whole_number

try:
    from engineer import RULES, Engineer, Evidence, PastRound, RuleEngineer
    from engineer.engineers import BOARD_RULES
    from engineer.evidence import KindEnvironment, Sums, add, training_evidence
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"jaxlake_trainers needs the package engineer ({error}): pip install --no-deps ./rl in a clone of jaxlake"
    ) from None

EXPLORED = 0.25
"""Share of a round that all kinds get alike, whatever is designed: without tasks there is no evidence on a kind, as
nothing is validated beside the training."""
_TASKS, _DESIGN = 0, 1  # what a key is for
_STATE = ("settings", "round", "place", "config", "rationale", "sums", "history", "digest")


@dataclasses.dataclass(frozen=True)
class Task:
    """A task to train on.

    Attributes:
      index: serial number through all rounds, from 0.
      kind: the name of its kind.
      content: what the kind's sampler drew; a ``Board`` where kinds are boards.
    """

    index: int
    kind: str
    content: Any


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A round's tasks.

    Attributes:
      kinds: ``[n]`` names.
      contents: ``[n]``.
      realised: the configuration that the tasks have.
      environment: statistics of boards; empty for other tasks.
    """

    kinds: Sequence[str]
    contents: Sequence[Any]
    realised: LakeConfig
    environment: tuple[KindEnvironment, ...] = ()


class Source(Protocol):
    """Named kinds of tasks: ``TaskSamplers``, with a function for each, or ``Boards``."""

    @property
    def start(self) -> LakeConfig:
        """The first round's configuration; its kinds are those of all rounds."""

    @property
    def ratios(self) -> tuple[str, ...]:
        """Names of the ratios that ``draw`` heeds: ``data``, of boards also ``hole`` and ``wait``."""

    @property
    def settings(self) -> dict[str, Any]:
        """Plain JSON values on which tasks and verdicts depend."""

    def draw(self, config: LakeConfig, key: jax.Array, count: int) -> Drawn:
        """Draw a round; the same arguments give the same tasks."""

    def judge(self, content: Any, rewards: np.ndarray, answers: Sequence[str] | None) -> tuple[Any, Any]:
        """Return which checks the answers to one task pass, bool ``[n, 8]``, and whether each is optimal, ``[n]``."""


class EngineerCurriculum:
    """Tasks without end, in rounds; before each but the first, an engineer reads the evidence and designs the mixture.

    A round ends when the task after its last one is asked for, with whatever rewards have been reported by then: a
    trainer that runs ahead loses nothing, as those that come later count for the round in which they come. A round
    of which none came is drawn again by the same configuration.

    The same arguments and the same reports give the same tasks, also from a saved state on: tasks are drawn anew from
    their configuration and a key of (seed, round), boards on one machine bit for bit.

    Attributes:
      source: the kinds and their samplers.
      config: the configuration of the round, as designed.
      tasks_per_round: tasks that are drawn at once.
      history: the finished rounds: configuration as realised, evidence, what the engineer thought.
    """

    def __init__(self, engineer: Engineer, source: Source, *, tasks_per_round: int = 256, seed: int = 0) -> None:
        """Draw the first round.

        Args:
          engineer: any engineer of the package ``engineer``; every kind keeps a floor of data (``EXPLORED``).
          source: of the tasks, ``TaskSamplers`` or ``Boards``.
          tasks_per_round: tasks that are drawn at once, of which each is handed out once.
          seed: of tasks and designs.

        Raises:
          ValueError: naming the argument and what it must be, and for a kind without any solvable board.
        """
        if "hole" not in source.ratios and (name := getattr(engineer, "name", "")) in BOARD_RULES:
            raise ValueError(f"engineer = {name!r} reads sides or agents: it must be another one for other tasks")
        self.source, self.config, self.history = source, source.start, list[PastRound]()
        self._engineer = engineer
        self.tasks_per_round = whole_number("tasks_per_round", tasks_per_round, 1)
        self._seed = whole_number("seed", seed, 0)
        self._kinds = {str(kind): kind for kind in source.start.kinds}
        self._sums: Sums | None = None
        self._round, self._place, self._rationale = 0, 0, ""
        self._drawn = self._draw(self.config, 0)

    def sample(self, n: int) -> list[Task]:
        """Return the next ``n`` tasks; the first of a round takes its tasks' drawing, and the engineer's time."""
        taken: list[Task] = []
        for _ in range(whole_number("n", n, 0)):
            if self._place == self.tasks_per_round:
                self._design()
            place, number = self._place, self._round * self.tasks_per_round + self._place
            taken.append(Task(number, self._drawn.kinds[place], self._drawn.contents[place]))
            self._place += 1
        return taken

    def observe(
        self,
        tasks: Sequence[Task],
        rewards: Sequence[Sequence[float]] | np.ndarray,
        *,
        answers: Sequence[Sequence[str]] | None = None,
        tokens: Sequence[Sequence[int]] | None = None,
        truncated: Sequence[Sequence[bool]] | None = None,
    ) -> None:
        """Count groups, of all or of none: a group is the sampled answers to a task.

        Args:
          tasks: ``[groups]``, of this round or an earlier one.
          rewards: ``[groups][samples]``, the trainer's own, at least one a group; less their mean they are the
            advantages in the evidence.
          answers: ``[groups][samples]`` texts; boards need them, to be judged by the eight checks.
          tokens: ``[groups][samples]`` lengths of the answers; 0 where nothing is said.
          truncated: ``[groups][samples]``, whether an answer hit the length cap.

        Raises:
          ValueError: for a kind that there is not, a reward that is no finite number, and lists of different lengths.
        """
        columns = {"rewards": rewards, "answers": answers, "tokens": tokens, "truncated": truncated}
        given = {name: column for name, column in columns.items() if column is not None}
        for name, column in given.items():
            if len(column) != len(tasks):
                raise ValueError(f"{name} has {len(column)} groups: it must have one for each of {len(tasks)} tasks")
        sums = self._sums
        for i, task in enumerate(tasks):
            if task.kind not in self._kinds:
                raise ValueError(f"kind = {task.kind!r} must be one of {', '.join(self._kinds)}")
            group = {name: column[i] for name, column in given.items()}
            counts = {name: np.shape(column) for name, column in group.items()}
            if len({*counts.values()}) != 1 or len(counts["rewards"]) != 1 or counts["rewards"] == (0,):
                shapes = ", ".join(f"{name} {list(shape)}" for name, shape in counts.items())
                raise ValueError(f"task {i} has {shapes}: each must be a list with one entry for every answer")
            worth = np.asarray(group["rewards"], float)
            if not np.isfinite(worth).all():
                raise ValueError(f"rewards of task {i} = {worth.tolist()} must be finite numbers")
            checks, optimal = self.source.judge(task.content, worth, group.get("answers"))
            sums = add(
                sums,
                np.array([self._kinds[task.kind]], object),
                checks=np.asarray(checks)[None],
                optimal=np.asarray(optimal)[None],
                tokens=np.asarray(group.get("tokens", np.zeros(len(worth), int)))[None],
                truncated=np.asarray(group.get("truncated", np.zeros(len(worth), bool)))[None],
                advantages=(worth - worth.mean())[None],
                kind_of=self._kind_of,
            )
        self._sums = sums

    def state_dict(self) -> dict[str, Any]:
        """Return plain JSON values from which ``load_state_dict`` goes on with the very same tasks."""
        state = {
            "settings": self._settings(),
            "round": self._round,
            "place": self._place,
            "config": self.config.to_dict(),
            "rationale": self._rationale,
            "sums": self._sums,
            "history": [past.to_json() for past in self.history],
        }
        return state | {"digest": _digest(state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of ``state_dict``; the engineer may be another one.

        Raises:
          ValueError: in one line, for a state that is none, is damaged, or is one of other kinds, seed, number of
            tasks or words. The curriculum is then what it was.
        """
        if not (isinstance(state, Mapping) and set(state) == set(_STATE)):
            named = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"the state of {named or 'nothing'} is no curriculum's: it must have {', '.join(_STATE)}")
        if state["digest"] != _digest(state):
            raise ValueError("the curriculum's state is damaged, its digest differs: load an earlier one")
        if state["settings"] != self._settings():
            raise ValueError(f"the state is of a curriculum with {state['settings']}: it must be of {self._settings()}")
        config = LakeConfig.from_dict(state["config"], self._kind_of)
        history = [PastRound.from_json(past, self._kind_of) for past in state["history"]]
        self._drawn = self._draw(config, state["round"])
        self.config, self.history, self._sums = config, history, state["sums"]
        self._round, self._place, self._rationale = state["round"], state["place"], state["rationale"]

    def metrics(self) -> dict[str, float]:
        """Return the round's number and configuration, and each kind's valid share in the last finished one."""
        columns = self.config.to_dict()
        config = {f"{kind}/{name}": columns[kind][name] for kind in columns for name in self.source.ratios}
        rows = self.history[-1].evidence.by_kind if self.history else ()
        return {"round": float(self._round)} | config | {f"{row.kind}/valid": row.valid_share for row in rows}

    def _settings(self) -> dict[str, Any]:
        plain = {"kinds": [*self._kinds], "tasks_per_round": self.tasks_per_round, "seed": self._seed}
        return plain | self.source.settings

    def _kind_of(self, name: Any) -> Kind:
        return self._kinds[str(name)]

    def _key(self, purpose: int, number: int) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(seed_key(self._seed), purpose), number)

    def _draw(self, config: LakeConfig, number: int) -> Drawn:
        return self.source.draw(config, self._key(_TASKS, number), self.tasks_per_round)

    def _design(self) -> None:
        """End the round, and begin the next one by what the engineer makes of the evidence."""
        config, history, rationale = self.config, self.history, self._rationale
        if self._sums is not None:
            past = PastRound(self._round, self._drawn.realised, self._evidence(self._sums), rationale)
            history = [*history, past]
            proposal = self._engineer.propose(past.evidence, history, self._key(_DESIGN, self._round))
            designed = proposal.projected
            least = EXPLORED / len(designed.kinds)
            data = np.maximum(designed.data, least)
            data -= (data - least) * (data.sum() - 1) / (data - least).sum()
            config, rationale = dataclasses.replace(designed, data=tuple(data.tolist())), proposal.thinking
        self._drawn = self._draw(config, self._round + 1)  # what fails, fails before anything has changed
        self.config, self.history, self._rationale, self._sums = config, history, rationale, None
        self._round, self._place = self._round + 1, 0

    def _evidence(self, sums: Sums) -> Evidence:
        """Return the round's answers as evidence: what was sampled in training, in the place of a validation."""
        training = training_evidence(sums, self._drawn.environment, self._kind_of)
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


def _digest(state: Mapping[str, Any]) -> str:
    """Return a digest of all that a state says; empty for values that are not JSON's."""
    try:
        text = json.dumps({name: value for name, value in state.items() if name != "digest"}, sort_keys=True)
    except (TypeError, ValueError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


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

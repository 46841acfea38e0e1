"""Runs of a model that is too small to answer anything, at the beginning of their rounds."""

import dataclasses
import functools
import json
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shapes import SMALL_JSON

from engineer import Engineer, Generation, Proposal
from engineer.evidence import evidence_from_verdicts
from jaxlake.board_text import from_text
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from jaxlake.levels import stack
from rl.config import Config
from rl.learn.boards import BoardSet
from rl.learn.optimizer import init_state
from rl.learn.state import TrainState, make_reference
from rl.loop.engineer_factory import make_engineer
from rl.loop.rounds import design
from rl.model import lora
from rl.model.policy import Policy
from rl.model.sampler.grammar import GrammarSampler
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.progress import Progress
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import WriterStudent
from rl.students.writer.step import grpo_step, rounds_optimizer

LEARN = {
    **{"prompts": 4, "samples": 2, "micro_batch": 2, "learning_rate": 1e-2, "minibatches": 4, "kl_coefficient": 0.1},
    **{"warmup_steps": 8, "schedule": "constant", "credit": "outcome", "engineer_every": 0},
}
WRITER = {
    "text": {"max_prompt_tokens": 32, "max_new_tokens": 8},
    "sampler": {"rows": 8},
    "epochs": 2,
    "learn": LEARN,
    "reward": {"kind": "paper", "free_tokens": 2, "limit_tokens": 8},  # what its answers differ in is their length
}
SETTINGS = {
    "student": WRITER,
    "lake": {"kinds": (3, 4)},
    "mesh": {"fsdp": 1},
    "rounds": {"count": 2, "instances": 8},
}
HOLES = str.maketrans("01", ".#")
PREVIOUS = LakeConfig.uniform((3, 4), 0.3, 0.25)
LEGAL = '{"3":{"data":0.5,"hole":0.1,"wait":0},"4":{"data":0.5,"hole":0.2,"wait":0.5}}'
"""An answer that holds a configuration."""


class Stage:
    """Makes runs that stand at the beginning of the rounds; what they compile, they share."""

    def __init__(self, folder):
        (folder / "shape.json").write_text(json.dumps(SMALL_JSON))
        self.folder, self.made = folder, 0
        self.shape = {"shape": str(folder / "shape.json")}
        config = self.config()
        _, self.parameters = Policy.create(config.student, config.mesh, make_key(0, Purpose.PARAMETERS))
        self.optimizer = rounds_optimizer(config)
        boards = stack([from_text(f"a..A\n{holes:04b}\nb..B\n....".translate(HOLES)) for holes in range(8)])
        kinds = np.array([Kind.of(4)] * 8, object)
        solutions = SimpleNamespace(cost=np.full(8, 6), lower_bound=np.full(8, 6))
        self.data = SimpleNamespace(instances=boards, solutions=solutions, kinds=kinds, report=())

    def config(self, engineer: dict | None = None, **learn) -> Config:
        student = WRITER | {"model": self.shape, "learn": LEARN | learn}
        return Config(**SETTINGS | {"student": student, "engineer": engineer or {}})

    def run(self, engineer: dict | None = None, **learn) -> "Scene":
        config = self.config(engineer, **learn)
        self.made += 1
        directory, student = RunDirectory(self.folder / f"run{self.made}", config), WriterStudent(config)
        directory.create()
        policy = student.policy
        policy.tokenizer.stop_ids = tuple(range(0, SMALL_JSON["vocab_size"], 6))  # so that answers end, sooner or later
        parameters = jax.tree.map(jnp.copy, self.parameters)  # updates are given theirs
        display = Said()
        display.stage("test", 1)
        reference = make_reference(lora.split(parameters)[0], policy) if config.needs_reference else None
        optimizer_state = init_state(self.optimizer, parameters, policy.mesh)
        student.state = TrainState(parameters, optimizer_state, reference, Progress(stage="rounds"))
        student.validation = self.data
        return Scene(student, Recorder(directory, display, Stop(), student))

    def after_round_0(self, **engineer) -> "Scene":
        """A run in which nothing of round 0 was valid, and this engineer designs the next."""
        run, kinds, none = self.run(engineer), np.array([Kind.of(3), Kind.of(4)], object), np.zeros(2, bool)
        checks, tokens = np.zeros((2, 8), bool), np.array([5, 6])
        evidence = evidence_from_verdicts(kinds=kinds, checks=checks, optimal=none, tokens=tokens, truncated=none)
        run.progress.end_round(PREVIOUS.to_dict(), evidence.to_json())
        return run

    def step(self, run: "Scene") -> dict[str, float]:
        lake = BoardSet.of(run.policy, self.data)
        return grpo_step(run.policy, run.student.config, run.state, run.recorder, lake, np.arange(4))[0]


@dataclasses.dataclass
class Scene:
    """What the functions of the loop are handed."""

    student: WriterStudent
    recorder: Recorder

    @property
    def policy(self) -> Policy:
        return self.student.policy

    @property
    def state(self) -> TrainState:
        return self.student.state

    @property
    def progress(self) -> Progress:
        return self.state.progress

    @property
    def lines(self) -> list[str]:
        return self.recorder.display.lines

    @functools.cached_property
    def engineer(self) -> Engineer:
        return make_engineer(self.student, self.recorder)

    def design(self) -> Proposal:
        return design(self.student, self.engineer, self.recorder)

    @property
    def proposal(self) -> dict[str, Any]:
        """The record of round 1's design."""
        return json.loads((self.recorder.directory.path / "rounds/1/proposal.json").read_text())

    def log(self, name: str) -> list[dict[str, Any]]:
        """The rows of a JSON-lines file of the run."""
        return [json.loads(line) for line in (self.recorder.directory.path / name).read_text().splitlines()]


class Said(Display):
    """A display that remembers."""

    def __init__(self):
        super().__init__(quiet=True)
        self.lines = []

    def say(self, message: str) -> None:
        self.lines.append(message)


class Scripted:
    """In the place of a grammar's sampler: writes these answers in turn, the last one for ever, or raises them.

    Attributes:
      asked: the messages; `parameters` likewise.
    """

    def __init__(self, monkeypatch, *answers: str | Exception):
        self.asked, self.parameters, self._answers = [], [], list(answers)

        def grammar_sampler(policy, settings):
            self.sampler = policy.sampler
            return self

        monkeypatch.setattr(Policy, "grammar_sampler", grammar_sampler)

    generation = GrammarSampler.generation

    def write(self, parameters, message, grammar, key, progress):
        self.asked.append(message)
        self.parameters.append(jax.tree.map(np.asarray, jax.tree.leaves(parameters)))
        progress(0)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Generation(f"<think>\n</think>\n\n{answer}", "", answer)

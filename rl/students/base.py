"""The protocols of students, which learn in the rounds of Algorithm 1, and their programs; nothing here learns."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax

from engineer.evidence import TrainingEvidence
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from rl.judge.validation import Validated
from rl.run.directory import RunDirectory
from rl.run.recorder import Recorder, RunState
from rl.run.tracking import Display


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of a run, not yet compiled.

    Attributes:
      lower: traces the program for the devices of its mesh.
      arguments: abstract arrays that it takes, without batches.
      beside: abstract arrays that lie on the devices meanwhile and are no arguments.
    """

    name: str
    lower: Callable[[], jax.stages.Lowered]
    arguments: Any
    beside: Any = ()


class Student(Validated, Protocol):
    """Learns on the boards of a round, and answers boards; `rl.students.create` makes it from a configuration.

    All draws follow from the configuration's seed, the round and the step.

    **What you write**: the members below and those of `Validated`. What a `Writer` adds is needed to design its own
    environments, and what a `PlayerStudent` adds to try several designs before one is taken.

    **What you get**: rounds (`rl.loop`), validation (`rl.judge.validation`), checkpoints and export
    (`rl.run.recorder`).

    Attributes:
      state: all that a checkpoint holds; known after `restore`.
      description: a line for the user, with the student's size and its devices.
      training_summary: the student's training, in words for an engineer.
    """

    @property
    def state(self) -> RunState: ...
    @property
    def description(self) -> str: ...
    @property
    def training_summary(self) -> str: ...

    def restore(self, directory: RunDirectory, display: Display) -> None:
        """Take the state of the last whole checkpoint, or the first one of a run without any; draw fixed boards.

        ConfigError also if something would not fit in the middle of the run.
        """
        ...

    def build(self, lake: LakeConfig) -> Dataset:
        """Return the boards of the round under way, none of them a validation board."""
        ...

    def train(self, recorder: Recorder, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Learn on the boards of the current round, from the state's place in it; return the training's outcome.

        RunError if the numbers go out of bounds. A signal ends it by `Interrupted`, with everything saved.

        Args:
          requested: the configuration that the boards realise.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write it to a folder, to be used without the run."""
        ...

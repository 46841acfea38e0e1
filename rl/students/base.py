"""The protocols of students, which learn in the rounds of Algorithm 1, and their programs; nothing here learns."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from engineer.engineers.language import Generate
from engineer.evidence import TrainingEvidence
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from rl.judge.validation import Validated
from rl.model.tokenizer import Tokenizer
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
    """Learns on the boards of a round, and answers boards.

    Made from a configuration (`rl.students.create`); `restore` gives it the run's saved state and its validation
    boards. All draws follow from the configuration's seed, the round and the step.

    **What you write**: the members below and those of `Validated`; in a writer also those of `WritingStudent`.

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

        Raises:
          ConfigError: also if something would not fit in the middle of the run.
        """
        ...

    def build(self, lake: LakeConfig) -> Dataset:
        """Return the boards of the round under way, none of them a validation board."""
        ...

    def train(self, recorder: Recorder, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Learn on the boards of the current round, from the state's place in it; return the training's outcome.

        Args:
          requested: the configuration that the boards realise.

        Raises:
          RunError: if the numbers go out of bounds.
          Interrupted: where a signal asks for it, with everything saved.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write it to a folder, to be used without the run."""
        ...


@runtime_checkable
class WritingStudent(Protocol):
    """A student that writes text: it is taught to before the rounds, and can design its own environments."""

    def warm_start(self, recorder: Recorder) -> None:
        """Learn from the rest of the examples, and make the state ready for the rounds."""
        ...

    def designer_parameters(self, engineer: str) -> Any:
        """Return the parameters with which an engineer of that name designs, for their fingerprint."""
        ...

    def generation(self, recorder: Recorder, engineer: str) -> tuple[Generate, Tokenizer]:
        """Return how the student writes as the engineer of that name, whenever it is asked, and its tokens."""
        ...


@runtime_checkable
class BranchingStudent(Protocol):
    """A student that trains a round in seconds, so that several designs can be tried before one is taken."""

    def branch_scores(self, display: Display, designs: Sequence[LakeConfig], key: jax.Array) -> np.ndarray:
        """Return how good the student is after one round of each design, float ``[designs]``, higher for better."""
        ...

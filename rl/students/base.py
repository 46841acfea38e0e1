"""What a student is to the rounds of Algorithm 1; learns nothing itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from engineer import Evidence
from engineer.engineers.language import Generate
from engineer.evidence import TrainingEvidence
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from jaxlake.kinds import Kind
from jaxlake.types import Instance
from rl.config import Config
from rl.qwen3.tokenizer import Tokenizer
from rl.run.checkpoint import Checkpoints
from rl.run.recorder import Recorder, State
from rl.run.tracking import Display


class Student(Protocol):
    """Learns on the boards of a round, and shows on fixed boards what it can do.

    Made of a configuration (`rl.students.create`); `restore` gives it the state in which a run stands, `prepare` the
    boards that it is validated on. All draws follow from the configuration's seed, the round and the step.

    Attributes:
      config: of the run.
      state: all that a checkpoint holds.
      validation_boards: ``[n]``, which no training shows; known after `prepare`.
    """

    @property
    def config(self) -> Config: ...

    @property
    def state(self) -> State: ...

    @property
    def validation_boards(self) -> Instance: ...

    def describe(self) -> str:
        """Return a line for the user: how large it is and what it runs on."""
        ...

    def check(self) -> None:
        """Find out before a run what would not fit in the middle of it.

        Raises:
          ConfigError: naming the setting.
        """
        ...

    def restore(self, checkpoints: Checkpoints, display: Display) -> None:
        """Take the state of the last whole checkpoint, or the first one of a run without any.

        Raises:
          ConfigError: if the checkpoint is of another configuration or model.
          RunError: if all are damaged.
        """
        ...

    def prepare(self, validation_seed: int, display: Display) -> None:
        """Draw the boards of the validations, and what is learned before the rounds.

        Raises:
          ConfigError: if no solvable board is found, or one has no room.
        """
        ...

    def warm_start(self, recorder: Recorder) -> None:
        """Learn what comes before the rounds, from wherever the state stands, and begin the rounds."""
        ...

    def build(self, lake: LakeConfig, k: int) -> Dataset:
        """Return the boards of round k, none of them a validation board.

        Raises:
          ConfigError: if no solvable board is found.
        """
        ...

    def train(self, recorder: Recorder, boards: Dataset, k: int) -> None:
        """Learn on round k's boards, from wherever the state stands in the round.

        Raises:
          RunError: if the numbers go out of bounds.
          Interrupted: where a signal asks for it, with everything saved.
        """
        ...

    def training_evidence(self, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Return what became of the round's training, on these boards as they were asked for."""
        ...

    def validate(
        self, recorder: Recorder, name: str, occasion: int, training: TrainingEvidence | None = None
    ) -> Evidence:
        """Answer the validation boards greedily and by sampling; see `rl.run.validation.keep_validation`.

        Args:
          name: folder in the run directory.
          occasion: of the keys: 0 at the beginning, 1 after the warm start, one more after each round.
          training: of the round that ends with this validation.
        """
        ...

    def pilot(self, recorder: Recorder, lake: LakeConfig, key: jax.Array) -> Mapping[Kind, np.ndarray]:
        """Answer fresh boards of each kind with data; see `engineer.Pilot`."""
        ...

    def branch_scores(self, recorder: Recorder, designs: Sequence[LakeConfig], key: jax.Array) -> np.ndarray:
        """Return how good the student is after one round of each design, float ``[designs]``, higher for better."""
        ...

    def author(self, engineer: str) -> Any:
        """Return the parameters with which an engineer of that name designed, for their fingerprint."""
        ...

    def generation(self, recorder: Recorder, base: bool) -> tuple[Generate, Tokenizer]:
        """Return how the student writes text, or as it was when the rounds began, and its tokens; one that can."""
        ...

    def details(self) -> str:
        """Describe how it is trained, for the context's module TF."""
        ...

    def save(self, folder: Path) -> None:
        """Write it to a folder, to be used without the run."""
        ...

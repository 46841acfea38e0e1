"""What every student whose parameters are a language model's does alike: it writes as an engineer, and is saved."""

from pathlib import Path
from typing import Any

from flax import nnx

from engineer.engineers.language import Generate
from rl.config.choices import LanguageKind
from rl.model.policy import Policy
from rl.model.tokenizer import Tokenizer
from rl.run.recorder import Recorder


class Writer:
    """A policy and the state of its parameters.

    Attributes:
      policy: the model's static half, its tokenizer and its mesh.
      state: the run's state; known after `Student.restore`.
    """

    policy: Policy
    state: Any  # a `rl.run.state.TrainState`, which each student narrows

    def designer_parameters(self, engineer: str) -> nnx.State:
        """Return the reference's parameters for the engineer `base`, else the current ones."""
        return self.state.reference_parameters() if engineer == LanguageKind.BASE else self.state.parameters

    def generation(self, recorder: Recorder, engineer: str) -> tuple[Generate, Tokenizer]:
        """Return generation with the engineer's parameters at the time when it is asked, held to the grammar."""
        return (
            self.policy.generation(lambda: self.designer_parameters(engineer), recorder.with_stop_check()),
            self.policy.tokenizer,
        )

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder."""
        self.policy.save(folder, self.state.parameters)

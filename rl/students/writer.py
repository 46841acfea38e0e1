"""A language model that writes: plans for boards, and as an engineer the next configuration."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from engineer.engineers.language import Generate
from jaxlake.types import Instance
from rl import distributed
from rl.config import Config
from rl.config.choices import LanguageKind
from rl.judge.answers import Answers, Show
from rl.learn.credit import first_lost
from rl.model.policy import Policy, writer
from rl.model.sampler import SamplingParams
from rl.model.sharding import fingerprint
from rl.model.tokenizer import Tokenizer
from rl.run.recorder import Recorder


@dataclasses.dataclass(frozen=True)
class PlanWriter:
    """A `rl.judge.answers.Answerer` that writes whole plans.

    Attributes:
      policy: the model's static half and its tokenizer.
      trained: the parameters as they were trained, which its identity names.
      parameters: the samplers' copy of them, `Policy.rollout_parameters`.
    """

    policy: Policy
    trained: nnx.State
    parameters: nnx.State

    @property
    def identity(self) -> dict[str, Any]:
        """The parameters' and the model's digests, and the cap on thoughts."""
        text = self.policy.text
        cap = {"max_thinking_tokens": text.thinking_cap, "early_stop": text.early_stop} if text.thinking_cap else {}
        computed = {"parameters": fingerprint(self.trained), "dtype": str(self.policy.shape.dtype)}
        return computed | self.policy.identity | cap

    @property
    def rows(self) -> int:
        """Answers in the sampler at once."""
        return self.policy.rows

    @property
    def prompt(self) -> Callable[[Instance], str]:
        """The message of a board."""
        return writer(self.policy.text)

    def first_lost(self, boards: Instance, texts: Sequence[str]) -> list[int | None]:
        """Return the place in each text that loses the last valid plan."""
        return first_lost(boards, texts)

    def answer(
        self, boards: Instance, samples: int, sampling: SamplingParams, key: jax.Array, show: Show, first: int = 0
    ) -> Answers:
        """Write plans; see `Answerer`. Each answer's draws follow from its number alone."""
        policy, processes = self.policy, jax.process_count()
        count = len(boards.size)
        share = -(-count // processes)
        begin = jax.process_index() * share
        # What is asked too much, so that all processes ask equally many, is dropped.
        rollout = policy.sampler.generate(
            self.parameters,
            policy.prompts(boards[np.minimum(begin + np.arange(share), count - 1)]).tokens,
            jax.random.fold_in(key, int(sampling.temperature > 0)),
            samples=samples,
            sampling=sampling,
            first_request=first + begin * samples,
            progress=lambda done: show(min(done * processes, count * samples)),
        )
        rollout = jax.tree.map(lambda leaf: leaf[: count * samples], distributed.all_gather(rollout))
        return Answers(
            plans=policy.read(boards, rollout),
            lengths=rollout.mask.sum(axis=-1),
            truncated=rollout.truncated,
            texts=lambda chosen: policy.texts(rollout.tokens[chosen], rollout.mask[chosen]),
        )


class Writer:
    """A policy and the state of its parameters.

    Attributes:
      config: the run's configuration.
      policy: the model's static half, its tokenizer and its mesh.
      state: the run's state; known after `Student.restore`.
    """

    config: Config
    policy: Policy
    state: Any  # a `rl.run.state.TrainState`, which each student narrows

    def designer_parameters(self, engineer: str) -> nnx.State:
        """Return the reference's parameters for the engineer `base`, else the current ones."""
        return self.state.reference_parameters() if engineer == LanguageKind.BASE else self.state.parameters

    def generation(self, recorder: Recorder, engineer: str) -> tuple[Generate, Tokenizer]:
        """Return generation with the engineer's parameters at the time when it is asked, held to the grammar."""
        generate = self.policy.generation(
            self.config.engineer, lambda: self.designer_parameters(engineer), recorder.with_stop_check()
        )
        return generate, self.policy.tokenizer

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder."""
        self.policy.save(folder, self.state.parameters)

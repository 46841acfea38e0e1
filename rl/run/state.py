"""Where training stands: parameters, optimizer, reference, progress, and the answers of a step under way."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from rl import grpo
from rl.config import Config
from rl.config.choices import LanguageKind
from rl.policy import Policy
from rl.qwen3 import lora, sharding

LOGS = ("metrics.jsonl", "timings.jsonl")
"""Files that grow by a row a step: what was computed, and what was measured by the clock or about the process."""


@dataclasses.dataclass
class Progress:
    """Position of a run; plain JSON values, saved in the same atomic step as the arrays.

    There is no state of a random generator in it: every key comes from (seed, purpose, round, step) alone
    (`rl.run.keys.make_key`).

    Attributes:
      stage: "warm_start", "rounds" or "finished".
      round, step: next ones to do; `step` counts within the stage or round.
      cursor: instances of the round consumed so far, over its epochs.
      update: updates done of the step under way.
      skipped: updates in a row that were not finite and changed nothing.
      total_steps: steps of the whole run, which are rows of metrics.jsonl.
      short_share: moving share of short answers, which sets the weights of the reward; None before the first.
      training: running sums of the answers of the round under way (`engineer.evidence.add`); None before the first.
        They move with `cursor`, so that none of them counts twice.
      lake: configuration of the round under way, None if it is still to be designed.
      rationale: what its engineer thought.
      history: finished rounds: {"round", "config" (as realised), "evidence", "rationale"}.
      best: of the validations after the warm start and the rounds: {"round" (or "warm_start"), "sampled_valid",
        "checkpoint" (number of the one with those parameters)}; None before the first.
      config_hash: of the configuration that all this was computed with.
      log_bytes: length of each of the `LOGS` at this point; what came later is cut off on resuming.
    """

    stage: str = "warm_start"
    round: int = 0
    step: int = 0
    cursor: int = 0
    update: int = 0
    skipped: int = 0
    total_steps: int = 0
    short_share: float | None = None
    training: dict[str, Any] | None = None
    lake: dict[str, Any] | None = None
    rationale: str = ""
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best: dict[str, Any] | None = None
    config_hash: str = ""
    log_bytes: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(LOGS, 0))

    def begin_round(self, lake: dict[str, Any], rationale: str) -> None:
        """Notes the configuration of the round that begins, and what its engineer thought."""
        self.lake, self.rationale, self.training = lake, rationale, None

    def end_round(self, realised: dict[str, Any], evidence: dict[str, Any]) -> None:
        """Adds the round, which is trained and validated, to the history, and goes on to the next."""
        self.history.append(
            {"round": self.round, "config": realised, "evidence": evidence, "rationale": self.rationale}
        )
        self.round, self.step, self.cursor = self.round + 1, 0, 0
        self.lake, self.rationale, self.training = None, "", None


@dataclasses.dataclass
class Pending:
    """The answers of a step while its updates are made.

    Attributes:
      batch: this process's rows, an equal part of all of them, numpy arrays.
      metrics: of the answers.
      updates: metrics of each update made so far.
    """

    batch: grpo.Batch
    metrics: dict[str, float]
    updates: list[dict[str, float]]


@dataclasses.dataclass
class TrainState:
    """All that a checkpoint holds of a run, one and the same on every process of a job.

    Attributes:
      parameters, optimizer_state: donated to each update and replaced by its result.
      reference: the trained part of the parameters when the rounds began, for the divergence or the engineer `base`;
        None where neither needs it, and before.
      progress: where the run stands.
      pending: the answers of a step whose updates are not all made; None between steps.
    """

    parameters: nnx.State
    optimizer_state: optax.OptState
    reference: nnx.State | None = None
    progress: Progress = dataclasses.field(default_factory=Progress)
    pending: Pending | None = None

    def begin_rounds(self, optimizer: optax.GradientTransformation, policy: Policy) -> None:
        """Ends the warm start: from here on another optimizer, and the reference if one is needed."""
        self.progress.stage, self.progress.step = "rounds", 0
        self.optimizer_state = grpo.init(optimizer, self.parameters, policy.mesh)
        if needs_reference(policy.config):
            self.reference = make_reference(lora.split(self.parameters)[0], policy)

    def reference_parameters(self) -> nnx.State:
        """All parameters of the reference policy: its own ones with the frozen base, which never changes."""
        assert self.reference is not None  # `needs_reference` of the run's configuration
        return nnx.merge_state(self.reference, lora.split(self.parameters)[1])

    def __str__(self) -> str:
        progress = self.progress
        stage = "warm start" if progress.stage == "warm_start" else f"round {progress.round}"
        within = f" and update {progress.update} of the next" if self.pending else ""
        return f"{stage}, after step {progress.step}{within}"


def needs_reference(config: Config) -> bool:
    """Whether a run keeps the policy of the start of its rounds: for the divergence, or as the engineer `base`."""
    return config.grpo.kl_coefficient > 0 or config.engineer.kind == LanguageKind.BASE


def make_reference(trained: nnx.State, policy: Policy) -> nnx.State:
    """A copy where the parameters lie, matrices in the dtype that they are multiplied in: half the bytes of float32."""

    @jax.jit
    def make(tree: nnx.State) -> nnx.State:
        return sharding.constrain(sharding.cast_matrices(jax.tree.map(jnp.copy, tree), policy.shape.dtype), policy.mesh)

    return make(trained)

"""The state of a language policy in training: parameters, optimizer, reference, and the answers of a step under way.

A checkpoint's content is restored on any mesh and any number of processes.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from rl import distributed, grpo
from rl.config import Config
from rl.config.choices import LanguageKind
from rl.policy import Policy
from rl.qwen3 import lora, sharding
from rl.qwen3.logprobs import Sequences
from rl.run.checkpoint import Checkpoints, Snapshot
from rl.run.progress import Progress
from rl.run.tracking import Display


@dataclasses.dataclass
class Pending:
    """The answers of a step while its updates are made.

    Attributes:
      batch: this process's rows, an equal part of all of them, numpy arrays.
      metrics: metrics of the answers.
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
      progress: the run's position.
      pending: the answers of a step whose updates are not all made; None between steps.
    """

    parameters: nnx.State
    optimizer_state: optax.OptState
    reference: nnx.State | None = None
    progress: Progress = dataclasses.field(default_factory=Progress)
    pending: Pending | None = None

    def begin_rounds(self, optimizer: optax.GradientTransformation, policy: Policy) -> None:
        """Take another optimizer for the rounds, and the reference if one is needed."""
        self.optimizer_state = grpo.init(optimizer, self.parameters, policy.mesh)
        if needs_reference(policy.config):
            self.reference = make_reference(lora.split(self.parameters)[0], policy)

    def snapshot(self) -> Snapshot:
        """Return what a checkpoint holds: of a model with adapters these alone, as its base never changes.

        Of `pending` the rows of all processes, so that another number of processes can resume.
        """
        arrays = {"parameters": lora.split(self.parameters)[0], "optimizer": self.optimizer_state}
        rows: dict[str, np.ndarray] = {}
        notes: dict[str, Any] = {}
        if self.reference is not None:
            arrays["reference"] = self.reference
        if self.pending is not None:
            rows = distributed.all_gather(rows_of(self.pending.batch))
            notes = {"metrics": self.pending.metrics, "updates": self.pending.updates}
        return Snapshot(self.progress, arrays, rows, notes)

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


def rows_of(batch: grpo.Batch | Sequences) -> dict[str, np.ndarray]:
    """The arrays of a batch by their names, those of its sequences among them; what is None is left out."""
    arrays = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    sequences = arrays.pop("sequences", None)
    arrays |= {} if sequences is None else rows_of(sequences)
    return {name: x for name, x in arrays.items() if x is not None}


def restore(
    policy: Policy,
    parameters: nnx.State,
    optimizers: dict[str, optax.GradientTransformation],
    checkpoints: Checkpoints,
    display: Display,
) -> TrainState:
    """The state in the last whole checkpoint; without any, where a run begins.

    Args:
      parameters: the first ones.
      optimizers: optimizer of each stage that the run may be in.
      display: screen, which shows checkpoints that are damaged.

    Raises:
      ConfigError: if the checkpoint is of another configuration or model.
      RunError: if all are damaged.
    """
    trained, frozen = lora.split(parameters)

    def like(progress: Progress) -> dict[str, Any]:
        arrays = {"parameters": trained, "optimizer": jax.eval_shape(optimizers[progress.stage].init, trained)}
        if needs_reference(policy.config) and progress.stage != "warm_start":
            arrays["reference"] = jax.eval_shape(lambda x: make_reference(x, policy), trained)
        return sharding.abstract(arrays, policy.mesh)

    snapshot = checkpoints.restore(like, display.say)
    if snapshot is None:
        return TrainState(parameters, grpo.init(optimizers["warm_start"], parameters, policy.mesh))
    pending = None
    if snapshot.rows:
        mine = distributed.share(len(snapshot.rows["advantages"]), "grpo.prompts")
        batch = batch_of({name: x[mine] for name, x in snapshot.rows.items()})
        updates = [_with_nan(update) for update in snapshot.notes["updates"]]
        pending = Pending(batch, _with_nan(snapshot.notes["metrics"]), updates)
    return TrainState(
        parameters=nnx.merge_state(snapshot.arrays["parameters"], frozen),
        optimizer_state=snapshot.arrays["optimizer"],
        reference=snapshot.arrays.get("reference"),
        progress=snapshot.progress,
        pending=pending,
    )


def batch_of(rows: dict[str, np.ndarray]) -> grpo.Batch:
    """Inverse of `rows_of`."""
    sequences = Sequences(**{field.name: rows[field.name] for field in dataclasses.fields(Sequences)})
    others: dict[str, Any] = {field.name: rows.get(field.name) for field in dataclasses.fields(grpo.Batch)}
    return grpo.Batch(**others | {"sequences": sequences})


def _with_nan(metrics: dict[str, float | None]) -> dict[str, float]:
    """Metrics as they were before JSON, which has no word for what is not finite."""
    return {name: float("nan") if x is None else x for name, x in metrics.items()}

"""What of a run is saved: to a checkpoint and back, with the answers of a step whose updates are not all made."""

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
from rl.run.checkpoint import Progress, State
from rl.run.directory import RunDirectory
from rl.run.tracking import Display


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


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a run stands; see the attributes of `rl.run.run.Run` of these names."""

    parameters: nnx.State
    optimizer_state: optax.OptState
    reference: nnx.State | None
    progress: Progress
    pending: Pending | None


def pack(standing: Standing) -> State:
    """What a checkpoint holds of it: of a model with adapters these alone, as its base never changes.

    Of `pending` the rows of all processes, so that another number of them can go on.
    """
    arrays = {"parameters": lora.split(standing.parameters)[0], "optimizer": standing.optimizer_state}
    rows, notes = {}, {}
    if standing.reference is not None:
        arrays["reference"] = standing.reference
    if standing.pending is not None:
        rows = distributed.gather(rows_of(standing.pending.batch))
        notes = {"metrics": standing.pending.metrics, "updates": standing.pending.updates}
    return State(standing.progress, arrays, rows, notes)


def restore(
    policy: Policy,
    parameters: nnx.State,
    optimizers: dict[str, optax.GradientTransformation],
    directory: RunDirectory,
    display: Display,
) -> Standing:
    """What the last whole checkpoint holds; without any, where a run begins.

    Args:
      parameters: the first ones.
      optimizers: of each stage that the run may be in.
      display: told of checkpoints that are damaged.

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

    state = directory.checkpoints.restore(like, display.say)
    if state is None:
        progress = Progress()
        first = grpo.init(optimizers[progress.stage], parameters, policy.mesh)
        return Standing(parameters, first, reference=None, progress=progress, pending=None)
    progress, pending = state.progress, None
    if state.rows:
        mine = distributed.share(len(state.rows["advantages"]), "grpo.prompts")
        batch = batch_of({name: x[mine] for name, x in state.rows.items()})
        pending = Pending(
            batch, _with_nan(state.notes["metrics"]), [_with_nan(update) for update in state.notes["updates"]]
        )
    return Standing(
        parameters=nnx.merge_state(state.arrays["parameters"], frozen),
        optimizer_state=state.arrays["optimizer"],
        reference=state.arrays.get("reference"),
        progress=progress,
        pending=pending,
    )


def needs_reference(config: Config) -> bool:
    """Whether a run keeps the policy of the start of its rounds: for the divergence, or as the engineer `base`."""
    return config.grpo.kl_coefficient > 0 or config.engineer.kind == LanguageKind.BASE


def make_reference(trained: nnx.State, policy: Policy) -> nnx.State:
    """A copy where the parameters lie, matrices in the dtype that they are multiplied in: half the bytes of float32."""

    def copy(variable: nnx.Variable) -> nnx.Variable:
        dtype = policy.shape.dtype if len(variable.spec) > 1 else variable.dtype
        return jax.tree.map(lambda x: jnp.array(x, dtype, copy=True), variable)

    @jax.jit
    def make(tree):
        copied = jax.tree.map(copy, tree, is_leaf=lambda node: isinstance(node, nnx.Variable))
        return sharding.constrain(copied, policy.mesh)

    return make(trained)


def rows_of(batch: grpo.Batch | Sequences) -> dict[str, np.ndarray]:
    """The arrays of a batch by their names, those of its sequences among them; what is None is left out."""
    arrays = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    sequences = arrays.pop("sequences", None)
    arrays |= {} if sequences is None else rows_of(sequences)
    return {name: x for name, x in arrays.items() if x is not None}


def batch_of(rows: dict[str, np.ndarray]) -> grpo.Batch:
    """Inverse of `rows_of`."""
    sequences = Sequences(**{field.name: rows[field.name] for field in dataclasses.fields(Sequences)})
    names = {field.name for field in dataclasses.fields(grpo.Batch)} - {"sequences"}
    return grpo.Batch(sequences=sequences, **{name: rows.get(name) for name in names})


def _with_nan(metrics: dict[str, float | None]) -> dict[str, float]:
    """Metrics as they were before JSON, which has no word for what is not finite."""
    return {name: float("nan") if x is None else x for name, x in metrics.items()}

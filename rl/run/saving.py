"""A train state out of what a checkpoint holds, also on another mesh or number of processes."""

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from rl import distributed, grpo
from rl.policy import Policy
from rl.qwen3 import lora, sharding
from rl.qwen3.logprobs import Sequences
from rl.run.checkpoint import Checkpoints
from rl.run.progress import Progress
from rl.run.state import Pending, TrainState, make_reference, needs_reference
from rl.run.tracking import Display


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

"""The state of a language model in training: parameters, optimizer, reference and position.

A checkpoint's content is restored on any mesh and any number of processes.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from rl.config import Config
from rl.model import lora, sharding
from rl.model.policy import Policy
from rl.run.checkpoint import Snapshot
from rl.run.directory import RunDirectory
from rl.run.progress import Progress
from rl.run.tracking import Display


@dataclasses.dataclass
class TrainState:
    """All that a checkpoint holds of a run, one and the same on every process of a job.

    Attributes:
      parameters, optimizer_state: donated to each update and replaced by its result.
      reference: the trained part of the parameters when the rounds began, for the divergence or the engineer `base`;
        None where neither needs it, and before.
      value: weight ``w`` and bias ``b`` of the value head of a model that plays; else None.
      source: what no checkpoint holds; see `rl.model.policy.Policy.source`.
    """

    parameters: nnx.State
    optimizer_state: optax.OptState
    reference: nnx.State | None = None
    value: dict[str, jax.Array] | None = None
    progress: Progress = dataclasses.field(default_factory=Progress)
    source: dict[str, str] = dataclasses.field(default_factory=dict)

    def begin_rounds(self, optimizer_state: optax.OptState, policy: Policy, config: Config) -> None:
        """Take the optimizer's first state of the rounds, and the reference if one is needed."""
        self.optimizer_state = optimizer_state
        if config.needs_reference:
            self.reference = make_reference(lora.split(self.parameters)[0], policy)

    def snapshot(self) -> Snapshot:
        """Return what a checkpoint holds: of a model with adapters these alone, as its base never changes."""
        arrays = {"parameters": lora.split(self.parameters)[0], "optimizer": self.optimizer_state}
        arrays |= {"reference": self.reference, "value": self.value}
        return Snapshot(self.progress, {name: tree for name, tree in arrays.items() if tree is not None}, self.source)

    def reference_parameters(self) -> nnx.State:
        """All parameters of the reference policy: its own ones with the frozen base, which never changes."""
        assert self.reference is not None  # `Config.needs_reference`
        return nnx.merge_state(self.reference, lora.split(self.parameters)[1])


def make_reference(trained: nnx.State, policy: Policy) -> nnx.State:
    """Copy the parameters where they lie, matrices in the dtype of their products: half the bytes of float32."""

    @jax.jit
    def make(tree: nnx.State) -> nnx.State:
        return sharding.constrain(sharding.cast_matrices(jax.tree.map(jnp.copy, tree), policy.shape.dtype), policy.mesh)

    return make(trained)


def restore(
    policy: Policy,
    parameters: nnx.State,
    begin: Callable[[str, nnx.State], optax.OptState],
    directory: RunDirectory,
    display: Display,
    value: dict[str, jax.Array] | None = None,
) -> TrainState:
    """Return the state in the last whole checkpoint of a run's folder; without any, where a run begins.

    Args:
      begin: function from a stage of the run and what is trained to the optimizer's state where the stage begins.
      value: the first value head of a model that plays.
    """
    trained, frozen = lora.split(parameters)
    source, checkpoints = policy.source(parameters), directory.checkpoints

    def like(saved: Snapshot) -> dict[str, Any]:
        lora.refuse_other_source(checkpoints.folder, saved.source, source)
        stage = saved.progress.stage
        arrays = {"parameters": trained, "optimizer": jax.eval_shape(functools.partial(begin, stage), trained)}
        if value is not None:
            arrays["value"] = value
        if directory.config.needs_reference and stage != "warm_start":
            arrays["reference"] = jax.eval_shape(lambda x: make_reference(x, policy), trained)
        return sharding.abstract(arrays, policy.mesh)

    saved = checkpoints.restore(like, display.say)
    if saved is None:
        return TrainState(parameters, begin("warm_start", trained), value=value, source=source)
    return TrainState(
        parameters=nnx.merge_state(saved.arrays["parameters"], frozen),
        optimizer_state=saved.arrays["optimizer"],
        reference=saved.arrays.get("reference"),
        value=saved.arrays.get("value"),
        progress=saved.progress,
        source=source,
    )

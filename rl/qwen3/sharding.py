"""Where arrays live: a mesh with the axes `fsdp` and `tp`, parameters by their declared specs, batches over `fsdp`."""

from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rl.config import ConfigError


def make_mesh(fsdp: int, tp: int) -> Mesh:
    """A mesh over the first ``fsdp * tp`` devices; `fsdp` = -1 takes all that `tp` leaves.

    Raises:
      ConfigError: if there are not that many devices.
    """
    devices = jax.devices()
    rows = len(devices) // tp if fsdp == -1 else fsdp
    if rows < 1 or rows * tp > len(devices):
        raise ConfigError(f"mesh.fsdp = {fsdp}, mesh.tp = {tp}: {len(devices)} devices are here")
    return Mesh(np.array(devices[: rows * tp]).reshape(rows, tp), ("fsdp", "tp"))


def shard_parameters(parameters: nnx.State, mesh: Mesh) -> nnx.State:
    """Places each parameter by its declared spec; a mesh axis that does not divide its dimension is left out."""

    def place(variable: nnx.Variable) -> nnx.Variable:
        shape = variable[...].shape
        spec = (None,) * (len(shape) - len(variable.spec)) + tuple(variable.spec)  # stacked layers have one axis more
        fits = [axis if axis and size % mesh.shape[axis] == 0 else None for size, axis in zip(shape, spec, strict=True)]
        return variable.replace(jax.device_put(variable[...], NamedSharding(mesh, P(*fits))))

    return jax.tree.map(place, parameters, is_leaf=lambda x: isinstance(x, nnx.Variable))


def shard_batch(batch: Any, mesh: Mesh) -> Any:
    """Places a pytree of arrays with its first axes over `fsdp`, whole where `fsdp` does not divide them."""

    def place(x):
        x = np.asarray(x)
        divides = x.ndim > 0 and x.shape[0] % mesh.shape["fsdp"] == 0
        return jax.device_put(x, NamedSharding(mesh, P("fsdp") if divides else P()))

    return jax.tree.map(place, batch)

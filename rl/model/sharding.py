"""Placement of arrays: a mesh with the axes `fsdp` and `tp`, parameters by their declared specs, batches over `fsdp`.

Each parameter is declared with a `spec`, which names the mesh axes that shard it; whatever is derived from a parameter
(its gradient, the optimizer's moments) carries the same declaration and lies where the parameter does.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.typing import PathParts
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rl.config import ConfigError


def make_mesh(fsdp: int, tp: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Make a mesh over the first ``fsdp * tp`` devices; `fsdp` = -1 takes all that `tp` leaves.

    The devices are the job's, unless others are given: those of a topology that is not here.

    The devices of a process lie next to each other along `fsdp`, so that its rows of a batch are contiguous. In a job
    of several processes every device takes part, and a row of `tp` is within one process.
    """
    devices = sorted(devices or jax.devices(), key=lambda device: (device.process_index, device.id))
    processes = len({device.process_index for device in devices})
    local = len(devices) // processes
    rows = len(devices) // tp if fsdp == -1 else fsdp
    if rows < 1 or rows * tp > len(devices) or (processes > 1 and (local % tp or rows * tp != len(devices))):
        raise ConfigError(
            f"mesh.fsdp = {fsdp}, mesh.tp = {tp}: must be at most the {len(devices)} devices of this job; of several "
            f"processes all of them, and tp a divisor of the {local} of each"
        )
    return Mesh(np.array(devices[: rows * tp]).reshape(rows, tp), ("fsdp", "tp"))


def fit_spec(spec: P, shape: tuple[int, ...], mesh: Mesh) -> P:
    """Fit `spec` to an array's shape: None for the leading axes it does not name (stacked layers have one more), and
    None where the mesh axis does not divide the dimension.

    Without axes of one device and without None at the end, the form in which a program returns it: anything else would
    be another key for jit's cache, and the second training step would compile again.
    """
    axes = (None,) * (len(shape) - len(spec)) + tuple(spec)
    fitted = [
        a if a and mesh.shape[a] > 1 and size % mesh.shape[a] == 0 else None
        for size, a in zip(shape, axes, strict=True)
    ]
    while fitted and fitted[-1] is None:
        fitted.pop()
    return P(*fitted)


def named_sharding(spec: P, shape: tuple[int, ...], mesh: Mesh | None) -> NamedSharding | None:
    """Return the sharding of an array of this shape, by `fit_spec`; None without a mesh."""
    return None if mesh is None else NamedSharding(mesh, fit_spec(spec, shape, mesh))


def cache_spec(heads: int, mesh: Mesh) -> P:
    """Return the spec of a cache ``[L, B, K, S, H]``: rows over `fsdp`, heads over `tp` where it divides them."""
    return P(None, "fsdp", "tp" if heads % mesh.shape["tp"] == 0 else None, None, None)


def shardings(tree: Any, mesh: Mesh) -> Any:
    """Return the NamedSharding of each leaf of a pytree: parameters by their specs, all else whole on every device.

    Args:
      tree: parameters, gradients or an optimizer's state; arrays or ShapeDtypeStructs.
    """
    return map_with_spec(lambda leaf, spec: named_sharding(spec, leaf.shape, mesh), tree)


def constrain(tree: Any, mesh: Mesh | None) -> Any:
    """Hold every leaf to its sharding (`shardings`), inside jit; without a mesh, do nothing."""
    return tree if mesh is None else jax.lax.with_sharding_constraint(tree, shardings(tree, mesh))


def abstract(tree: Any, mesh: Mesh) -> Any:
    """Return ShapeDtypeStructs of a tree's leaves with their shardings, to compile programs without any array."""
    return abstract_at(tree, shardings(tree, mesh))


def abstract_at(tree: Any, places: Any) -> Any:
    """Return ShapeDtypeStructs of a tree's leaves with the shardings in `places`, a tree of the same structure."""
    return jax.tree.map(lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree, places)


def shard_batch(batch: Any, mesh: Mesh) -> Any:
    """Make global arrays of a pytree of numpy arrays, their first axes over `fsdp`.

    Args:
      batch: this process's rows, equally many on each process; they follow each other in process order. `fsdp` divides
        those of all processes, see `rows_for`.
    """
    rows = NamedSharding(mesh, P("fsdp"))
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(rows, np.asarray(x)), batch)


def local_rows(x: jax.Array) -> np.ndarray:
    """Return this process's part of an array whose first axis lies over `fsdp`, the inverse of `shard_batch`."""
    parts = {shard.index[0].start or 0: shard.data for shard in x.addressable_shards}  # one of those that tp repeats
    return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])


def rows_for(rows: int, mesh: Mesh) -> int:
    """Return this process's rows of the smallest batch of at least `rows` over all processes that `fsdp` divides."""
    fsdp = mesh.shape["fsdp"]
    return -(-rows // fsdp) * fsdp // jax.process_count()


def cast_matrices(tree: Any, dtype: Any) -> Any:
    """Cast matrices to `dtype`; the weights of norms keep theirs."""
    return map_with_spec(lambda leaf, spec: leaf.astype(dtype) if len(spec) > 1 else leaf, tree)


def rollout_shardings(parameters: nnx.State, mesh: Mesh) -> nnx.State:
    """Return where `for_rollout` puts parameters: sharded over `tp` alone.

    With fsdp each decoded token would gather every weight anew: 8 all-gathers in the body of the decode loop.
    """
    return map_with_spec(lambda leaf, spec: named_sharding(_without_fsdp(spec), leaf.shape, mesh), parameters)


def for_rollout(parameters: nnx.State, dtype: Any, mesh: Mesh) -> nnx.State:
    """Lay parameters out as the sampler wants them: matrices in `dtype`, norms in float32, whole along `fsdp`.

    What is so already, such as a frozen base on one GPU, is not copied: the result shares its memory.
    """
    ready, rest = split_ready(parameters, dtype, mesh)
    return nnx.merge_state(ready, _prepare(rest, dtype, mesh)) if rest else ready


def abstract_rollout(parameters: nnx.State, dtype: Any, mesh: Mesh) -> nnx.State:
    """Return the result of `for_rollout` as ShapeDtypeStructs."""
    made = jax.eval_shape(lambda tree: for_rollout(tree, dtype, mesh), parameters)
    return abstract_at(made, rollout_shardings(parameters, mesh))


def split_ready(parameters: nnx.State, dtype: Any, mesh: Mesh) -> tuple[nnx.State, nnx.State]:
    """Split parameters into those that the sampler can take as they are, and the others."""

    def is_ready(_: PathParts, variable: nnx.Variable) -> bool:
        spec = variable.spec
        cast = len(spec) > 1 and variable.dtype != dtype
        return not cast and fit_spec(spec, variable.shape, mesh) == fit_spec(_without_fsdp(spec), variable.shape, mesh)

    ready, rest = nnx.split_state(parameters, is_ready, ...)
    return ready, rest


@functools.partial(jax.jit, static_argnames=("dtype", "mesh"))
def _prepare(parameters: nnx.State, dtype: Any, mesh: Mesh) -> nnx.State:
    """Cast before gathering, so that what goes over the wire is `dtype`, and layer by layer.

    With the stacked arrays gathered at once XLA kept each of them twice: for Qwen3-4B on v5e:2x4, 7.5 GiB of
    temporaries beside 7.5 of weights, against 1.7 so.
    """

    def prepare(tree: nnx.State) -> nnx.State:
        tree = cast_matrices(tree, dtype)
        # Held to the trainer's sharding after the cast as well, or XLA may gather float32 and cast then.
        return jax.lax.with_sharding_constraint(constrain(tree, mesh), rollout_shardings(tree, mesh))

    layers, single = nnx.split_state(parameters, lambda path, _: path[0] == "layers", ...)
    return nnx.merge_state(jax.lax.map(prepare, layers) if layers else layers, prepare(single))


def _without_fsdp(spec: P) -> P:
    return P(*(None if name == "fsdp" else name for name in spec))


def map_with_spec(function: Callable[[Any, P], Any], tree: Any) -> Any:
    """Apply `function` to each leaf and its declared spec (none: ``P()``), keeping the tree's structure."""

    def apply(node: Any) -> Any:
        if isinstance(node, nnx.Variable):
            return jax.tree.map(lambda leaf: function(leaf, node.spec), node)
        return function(node, P())

    return jax.tree.map(apply, tree, is_leaf=lambda node: isinstance(node, nnx.Variable))


def fingerprint(parameters: Any) -> str:
    """Return a digest of all parameters, by which they are known again; the same on every mesh.

    Each array is summed up where it lies, in integers that wrap around, every number weighted by its place; what is
    hashed is these sums. (To hash all bytes of Qwen3-4B they would have to come to the host, 16 GB.)
    """
    digest = hashlib.sha256()
    for (path, _), total in zip(jax.tree.leaves_with_path(parameters), sums(parameters), strict=True):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.asarray(total).tobytes())
    return digest.hexdigest()


@jax.jit
def sums(tree: Any) -> list[jax.Array]:
    """Two weighted sums of the bits of each array, uint32 ``[2]``. The weights are odd: one flipped bit shows."""
    totals = []
    for x in jax.tree.leaves(tree):
        bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}")).astype(jnp.uint32)
        place = jnp.uint32(0)
        for axis, size in enumerate(x.shape):
            place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
        weights = ((place * jnp.uint32(odd) + jnp.uint32(odd >> 7)) | 1 for odd in (2654435761, 2246822519))
        totals.append(jnp.stack([(bits * weight).sum(dtype=jnp.uint32) for weight in weights]))
    return totals

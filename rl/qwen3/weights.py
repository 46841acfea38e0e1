"""Qwen3 checkpoints in Hugging Face format, read and written: config.json and safetensors, never pickle.

Reading has one parameter of all layers in flight at a time, writing the tensors of one file. A tensor of a checkpoint
has its output axis first, ours its inputs.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.typing import PathParts
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from rl import distributed
from rl.config import ConfigError
from rl.qwen3 import lora
from rl.qwen3.model import Qwen3, Qwen3Config, abstract
from rl.qwen3.presets import FIELDS
from rl.qwen3.tokenizer import Tokenizer

INDEX = "model.safetensors.index.json"
MOST_PROBLEMS = 6
"""Tensors to name; a checkpoint of another model has hundreds that do not fit."""


def resolve(path: str | Path) -> Path:
    """Return the folder of a checkpoint: `path`, or where the Hugging Face hub's files of that id are on this machine.

    A hub id is downloaded (json, safetensors and tokenizer files only), or found in the cache; with HF_HUB_OFFLINE=1
    only the cache is asked.

    Raises:
      ConfigError: if it is neither a folder here nor an id that the hub or the cache knows.
    """
    folder = Path(os.path.expanduser(path))
    return folder if folder.is_dir() else _download(path)


def _download(path: str | Path) -> Path:
    """Return where the hub's files of this id are on this machine."""
    if not re.fullmatch(r"\w[\w.-]*/[\w.-]+", str(path)):
        raise ConfigError(
            f"model.path = {path}: must be a folder that exists, or an id of the Hugging Face hub such as Qwen/Qwen3-4B"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(str(path), allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"model.path = {path}: no such folder, and not had from the hub ({reason})") from None


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint, and where it is in our parameters.

    Attributes:
      path: the parameter's path.
      layer: the tensor's place along the leading axis; None if the parameter is not stacked.
      shape: shape in the checkpoint.
    """

    path: tuple[str, ...]
    layer: int | None
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        name = ".".join(self.path)
        if self.layer is not None:
            name = name.replace("layers.", f"layers.{self.layer}.", 1)
        return name if self.path[0] == "lm_head" else f"model.{name}"


def _tensors(base: nnx.State) -> list[Tensor]:
    """List every tensor of the checkpoint, in the order in which `transformers` writes them: layer by layer."""
    tensors = []
    for parts, variable in nnx.to_flat_state(base):
        path = tuple(map(str, parts))
        if path[0] == "layers":
            shape = variable.shape[:0:-1]
            tensors += [Tensor(path, i, shape) for i in range(variable.shape[0])]
        else:
            tensors.append(Tensor(path, None, variable.shape))
    order = ["embed_tokens", "layers", "norm", "lm_head"]
    return sorted(tensors, key=lambda tensor: (order.index(tensor.path[0]), tensor.layer or 0))


def load(
    folder: Path | str, config: Qwen3Config, mesh: Mesh | None = None, key: jax.Array | None = None
) -> tuple[nnx.GraphDef[Qwen3], nnx.State]:
    """Read single or sharded safetensors straight into their shardings, parameter by parameter.

    Host memory stays at one parameter of all layers; each process of a job reads only what its devices hold.

    Args:
      folder: directory with `*.safetensors`, and their index if there are several.
      config: shape of the folder's config.json; with `lora`, the checkpoint is the base.
      mesh: devices that share the parameters; None puts them on one device.
      key: key of the adapters' random half; must be given with `config.lora`.

    Raises:
      ConfigError: naming a file that is missing or damaged; without such, the tensors that are missing, superfluous or
        of another shape, the first `MOST_PROBLEMS` of them. Nothing is loaded then.
    """
    graph, shapes = abstract(config, mesh)
    base = lora.split(shapes)[1] if config.lora else shapes
    tensors = _tensors(base)
    files = _survey(Path(folder), tensors, config.tie_word_embeddings)
    flat = []
    with contextlib.ExitStack() as opened:
        handles = {file: opened.enter_context(safe_open(file, "np")) for file in set(files.values())}
        for path, variable in nnx.to_flat_state(base):
            names = [tensor.name for tensor in tensors if tensor.path == tuple(map(str, path))]
            parts = [handles[files[name]].get_slice(name) for name in names]
            read = functools.partial(_read, parts, path, variable.dtype)
            place = variable.sharding or SingleDeviceSharding(jax.local_devices()[0])
            flat.append((path, variable.replace(jax.make_array_from_callback(variable.shape, place, read))))
    if config.lora:
        flat += nnx.to_flat_state(_adapters(config, mesh)(key))
    return graph, nnx.from_flat_state(flat)


def _read(parts: list[Any], path: PathParts, dtype: Any, index: tuple[slice, ...]) -> np.ndarray:
    """Read what a device holds of a parameter: a part of some layers' tensors, or of its only one."""
    if path[0] != "layers":
        return parts[0][index].astype(dtype)
    layers, *axes = index
    return np.stack([part[tuple(axes[::-1])].T.astype(dtype) for part in parts[layers]])


@functools.cache
def _adapters(config: Qwen3Config, mesh: Mesh | None) -> Callable[[jax.Array | None], nnx.State]:
    """Return a function that makes fresh adapters, those of `create` with the same key, without the random base.

    Kept, as it compiles for seconds: a notebook reads its model before a run, in it, and after it.
    """
    shapes = lora.split(abstract(config, mesh)[1])[0]
    return jax.jit(
        lambda key: lora.split(nnx.split(Qwen3(config, nnx.Rngs(key), mesh))[1])[0],
        out_shardings=jax.tree.map(lambda x: x.sharding, shapes),
    )


def _survey(folder: Path, wanted: list[Tensor], tied: bool) -> dict[str, Path]:
    """Return the file of each of the wanted tensors, by their names; one ConfigError says what is wrong."""
    shapes: dict[str, tuple[int, ...]] = {}
    holders: dict[str, Path] = {}
    for file in _files(folder):
        try:
            with safe_open(file, "np") as handle:
                held = {name: tuple(handle.get_slice(name).get_shape()) for name in handle.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"model.path = {folder}: {file.name} is missing or damaged ({error})") from None
        shapes |= held
        holders |= dict.fromkeys(held, file)
    if tied:
        shapes.pop("lm_head.weight", None)  # some tied checkpoints carry a copy, those of 0.6B and 1.7B
    names = {tensor.name: tensor for tensor in wanted}
    problems = [f"{name} is missing" for name in names if name not in shapes]
    problems += [f"{name} is not of this model" for name in shapes if name not in names]
    problems += [
        f"{name} has shape {shapes[name]}, which must be {tensor.shape}"
        for name, tensor in names.items()
        if shapes.get(name, tensor.shape) != tensor.shape
    ]
    if problems:
        more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise ConfigError(f"model.path = {folder}: {'; '.join(problems[:MOST_PROBLEMS])}{more}")
    return holders


def _files(folder: Path) -> list[Path]:
    """List the safetensors files of a checkpoint: those in its index, else model.safetensors, else all."""
    if (folder / INDEX).exists():
        try:
            listed = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"model.path = {folder}: cannot read {INDEX} ({error!r})") from None
    else:
        present = {file.name for file in folder.glob("*.safetensors")}
        listed = present & {"model.safetensors"} or present
    if not listed:
        raise ConfigError(f"model.path = {folder}: must hold *.safetensors; pickled weights are never read")
    return [folder / name for name in sorted(listed)]


def save(
    folder: Path | str,
    config: Qwen3Config,
    parameters: nnx.State,
    tokenizer: Tokenizer | None = None,
    *,
    dtype: Any = jnp.float32,
    max_shard_bytes: int = 2_000_000_000,
) -> None:
    """Write a folder that `load` and `transformers` read: safetensors, config.json, the tokenizer's files.

    An old config.json goes first and the new one comes last: a full disk or a crash leaves a folder that does not load.
    Every process of a job must call this; the first one writes.

    Args:
      folder: directory, made if it does not exist; a checkpoint in it is replaced.
      config: shape of `parameters`.
      parameters: sharded or not, without adapters (`lora.merge` first).
      tokenizer: whose files are copied; None leaves the tokenizer out.
      dtype: type of the stored numbers.
      max_shard_bytes: more than that goes into several files with an index; a file is in memory twice at a time.

    Raises:
      ConfigError: if the folder cannot be written.
    """
    if config.lora is not None:
        raise ValueError("adapters must be merged (`lora.merge`) before they are saved as one model")
    folder, dtype = Path(folder), jnp.dtype(dtype)
    tensors = _tensors(parameters)
    shards = _shards(tensors, dtype, max_shard_bytes)
    texts = {"config.json": _config_json(config, tokenizer, dtype)} | (tokenizer.files() if tokenizer else {})
    if len(shards) > 1:
        where = {tensor.name: name for name, part in shards.items() for tensor in part}
        texts[INDEX] = _json({"metadata": {"total_size": _size(tensors, dtype)}, "weight_map": where})
    values = {path: variable[...] for path, variable in nnx.to_flat_state(parameters)}
    main = distributed.is_main()
    try:
        if main:
            folder.mkdir(parents=True, exist_ok=True)
            for old in [folder / "config.json", *folder.glob("model*.safetensors"), folder / INDEX]:
                old.unlink(missing_ok=True)
        for name, part in shards.items():  # all processes take part in fetching each tensor
            fetched = {tensor.name: _fetch(values[tensor.path], tensor, dtype) for tensor in part}
            if main:
                (folder / name).write_bytes(to_bytes(fetched, metadata={"format": "pt"}))
        for name in sorted(texts if main else (), key=lambda name: name == "config.json"):
            (folder / name).write_bytes(texts[name])
    except OSError as error:
        raise ConfigError(f"{folder}: cannot write the checkpoint there ({error.strerror})") from None
    multihost_utils.sync_global_devices("checkpoint written")


def _shards(tensors: list[Tensor], dtype: np.dtype, limit: int) -> dict[str, list[Tensor]]:
    """Name the files and list what goes into each, in order; one file as long as all fits."""
    parts: list[list[Tensor]] = [[]]
    for tensor in tensors:
        if parts[-1] and _size([*parts[-1], tensor], dtype) > limit:
            parts.append([])
        parts[-1].append(tensor)
    if len(parts) == 1:
        return {"model.safetensors": parts[0]}
    return {f"model-{i:05d}-of-{len(parts):05d}.safetensors": part for i, part in enumerate(parts, 1)}


def _size(tensors: list[Tensor], dtype: np.dtype) -> int:
    return dtype.itemsize * sum(math.prod(tensor.shape) for tensor in tensors)


def _fetch(value: jax.Array, tensor: Tensor, dtype: np.dtype) -> np.ndarray:
    mesh = value.sharding.mesh if isinstance(value.sharding, NamedSharding) else None
    return np.ascontiguousarray(_extract(value, tensor.layer, dtype, mesh))


@functools.partial(jax.jit, static_argnames=("dtype", "mesh"))
def _extract(value: jax.Array, layer: int | None, dtype: np.dtype, mesh: Mesh | None) -> jax.Array:
    """Return one tensor in the checkpoint's form, whole on every device, so that any process can write it."""
    if layer is not None:
        value = jax.lax.dynamic_index_in_dim(value, layer, 0, keepdims=False).T
    value = value.astype(dtype)
    return value if mesh is None else jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P()))


def _config_json(config: Qwen3Config, tokenizer: Tokenizer | None, dtype: np.dtype) -> bytes:
    """Write config.json in the spelling of the published checkpoints, which transformers 4 and 5 read."""
    beside = tokenizer and tokenizer.folder / "config.json"
    published = json.loads(beside.read_text(encoding="utf-8")) if beside and beside.exists() else {}
    raw: dict[str, Any] = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    raw |= {name: getattr(config, name) for name in FIELDS}
    raw |= {"rope_scaling": None, "hidden_act": "silu", "attention_bias": False}
    raw |= {"use_sliding_window": False, "torch_dtype": dtype.name}
    raw |= {"max_position_embeddings": published.get("max_position_embeddings", 40_960)}
    if tokenizer:
        raw |= {"eos_token_id": tokenizer.stop_ids[0], "pad_token_id": tokenizer.pad_id}
    return _json(raw)


def _json(raw: Any) -> bytes:
    return (json.dumps(raw, indent=2) + "\n").encode()

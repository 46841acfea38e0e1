"""Checkpoints in Hugging Face format, read and written: config.json and safetensors, never pickle.

One parameter is read at a time, with the tensors of all layers stacked, and a file is written while its tensors are
fetched one by one. A tensor of a checkpoint has its output axis first, ours its inputs.
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
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from safetensors import SafetensorError, safe_open

from jaxlake.files import write_whole
from rl import distributed
from rl.config import ConfigError
from rl.model import lora
from rl.model.decoder import Decoder, DecoderConfig, abstract
from rl.model.presets import FIELDS, family_of
from rl.model.tokenizer import FILES, Tokenizer

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
BUFFERS = r"\.rotary_emb\.(inv_freq|cos_cached|sin_cached)$"
"""Names of tensors that are computed from config.json, and of which some checkpoints carry a copy."""
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""Names in safetensors of the dtypes that a model may be stored in."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint, and where it is in our parameters.

    Attributes:
      path: the parameter's path.
      layer: its place along the leading axis; None if the parameter is not stacked.
      shape: shape in the checkpoint; a matrix of a layer is the transpose of ours.
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


def resolve(path: str | Path) -> Path:
    """Return the folder of a checkpoint: `path`, or where the Hugging Face hub's files of that id are on this machine.

    A hub id, ORGANISATION/MODEL or ORGANISATION/MODEL@REVISION, is downloaded, as far as it is read here, or found in
    the cache; with HF_HUB_OFFLINE=1 only the cache is asked.
    """
    folder = Path(os.path.expanduser(path))
    if folder.is_dir():
        return folder
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    name, _, revision = str(path).partition("@")
    # Publishers keep more beside them, and as large: consolidated.safetensors, original/, onnx/.
    patterns = ["config.json", INDEX, "model*.safetensors", *FILES]
    try:
        # Offline said anew: huggingface-hub 1.27 asks the hub about a commit in the cache all the same.
        offline = constants.HF_HUB_OFFLINE
        cached = snapshot_download(name, revision=revision or None, allow_patterns=patterns, local_files_only=offline)
        return Path(cached)
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"student.model.path = {path}: no such folder, and not had from the hub ({reason})") from None


def _tensors(base: nnx.State) -> dict[str, Tensor]:
    """List every tensor of the checkpoint by name, in the order in which `transformers` writes them: layer by layer."""
    tensors = []
    for parts, variable in nnx.to_flat_state(base):
        path = tuple(map(str, parts))
        if path[0] == "layers":
            tensors += [Tensor(path, i, variable.shape[:0:-1]) for i in range(variable.shape[0])]
        else:
            tensors.append(Tensor(path, None, variable.shape))
    order = ["embed_tokens", "layers", "norm", "lm_head"]
    tensors.sort(key=lambda tensor: (order.index(tensor.path[0]), tensor.layer or 0))
    return {tensor.name: tensor for tensor in tensors}


def load(
    folder: Path | str, config: DecoderConfig, mesh: Mesh | None = None, key: jax.Array | None = None
) -> tuple[nnx.GraphDef[Decoder], nnx.State]:
    """Read single or sharded safetensors straight into their shardings, parameter by parameter.

    Host memory stays at the pages of the mapped files and two parameters of all layers (JAX lets go of one when it gets
    the next), device memory at the parameters. Each process of a job reads only what its devices hold.

    Args:
      folder: directory with model.safetensors, or several `*.safetensors` and their index, which names what is read.
      config: shape of the folder's config.json; with `lora`, the checkpoint is the base.
      mesh: devices that share the parameters; None puts them on one device.
      key: key of the adapters' random half; must be given with `config.lora`.
    """
    graph, shapes = abstract(config, mesh)
    base = lora.split(shapes)[1] if config.lora else shapes
    tensors, alone, flat = _tensors(base), SingleDeviceSharding(jax.local_devices()[0]), []
    with contextlib.ExitStack() as files:
        slices = _open(files, Path(folder), tensors, config.tie_word_embeddings)
        for path, variable in nnx.to_flat_state(base):
            parts = [slices[name] for name, tensor in tensors.items() if tensor.path == path]
            read = functools.partial(_read, parts, path[0] == "layers", variable.shape, variable.dtype)
            value = jax.make_array_from_callback(variable.shape, variable.sharding or alone, read)
            # Reading is faster than some devices' links: without this, parameters would pile up on the host.
            flat.append((path, variable.replace(jax.block_until_ready(value))))
    if config.lora:
        flat += nnx.to_flat_state(_adapters(config, mesh)(key))
    return graph, nnx.from_flat_state(flat)


def _open(files: contextlib.ExitStack, folder: Path, tensors: dict[str, Tensor], tied: bool) -> dict[str, Any]:
    """Open the files of a checkpoint, and return slices of its tensors, once these are all and only a model's.

    As in `transformers`, a model.safetensors is the whole checkpoint, and else the index names its files; other files
    beside them are no part of it, and a head beside a tied embedding is not read.
    """
    ignored = re.compile(f"{BUFFERS}|^lm_head.weight$" if tied else BUFFERS)
    slices: dict[str, Any] = {}
    try:
        names = [WHOLE]
        if not (folder / WHOLE).exists() and (folder / INDEX).exists():
            names = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        for file in (files.enter_context(safe_open(folder / name, "np")) for name in names):
            slices |= {name: file.get_slice(name) for name in file.keys() if not ignored.search(name)}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"student.model.path = {folder}: cannot read its safetensors ({error})") from None
    for name in sorted(tensors.keys() | slices.keys()):
        expected = tensors[name].shape if name in tensors else None
        shape = tuple(slices[name].get_shape()) if name in slices else None
        if shape != expected:
            raise ConfigError(f"student.model.path = {folder}: {name} has shape {shape}, which must be {expected}")
    return slices


def _read(
    parts: list[Any], stacked: bool, shape: tuple[int, ...], dtype: np.dtype, index: tuple[slice, ...]
) -> np.ndarray:
    """Return a device's part of a parameter from its tensors, of which there is one a layer if it is stacked."""
    if not stacked:
        return parts[0][index].astype(dtype)
    stack = np.empty([len(range(size)[axis]) for size, axis in zip(shape, index, strict=True)], dtype)
    for layer, part in zip(stack, parts[index[0]], strict=True):
        layer[...] = part[index[:0:-1]].T
    return stack


@functools.cache
def _adapters(config: DecoderConfig, mesh: Mesh | None) -> Callable[[jax.Array | None], nnx.State]:
    """Return a function that makes fresh adapters, those of `create` with the same key, without the random base.

    Kept, as it compiles for seconds: a notebook reads its model before a run, in it, and after it.
    """
    shapes = lora.split(abstract(config, mesh)[1])[0]
    return jax.jit(
        lambda key: lora.split(nnx.split(Decoder(config, nnx.Rngs(key), mesh))[1])[0],
        out_shardings=jax.tree.map(lambda x: x.sharding, shapes),
    )


def save(
    folder: Path | str,
    config: DecoderConfig,
    parameters: nnx.State,
    tokenizer: Tokenizer | None = None,
    *,
    dtype: Any = jnp.float32,
) -> None:
    """Write a folder that `load` and `transformers` read: model.safetensors, config.json, the tokenizer's files.

    config.json comes last, and an old one goes before the weights do: a crash leaves what was there before, or a folder
    that does not load. Every process of a job must call this; the first one writes.

    Args:
      folder: directory, made if it does not exist; a checkpoint in it is replaced.
      config: shape of `parameters`.
      parameters: sharded or not, without adapters (`lora.merge` first).
      tokenizer: whose files are copied; None leaves the tokenizer out.
      dtype: type of the stored numbers.
    """
    folder, dtype, main = Path(folder), jnp.dtype(dtype), distributed.is_main()
    values = {path: variable[...] for path, variable in nnx.to_flat_state(parameters)}
    tensors = _tensors(parameters)
    # The other processes take part in fetching each tensor, and write it nowhere.
    unfinished = folder / f"{WHOLE}.unfinished" if main else Path(os.devnull)
    if main:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with open(unfinished, "wb") as file:
            file.write(_header(tensors, dtype))
            for tensor in tensors.values():
                value = values[tensor.path]
                mesh = value.sharding.mesh if isinstance(value.sharding, NamedSharding) else None
                whole = np.ascontiguousarray(_extract(value, tensor.layer, dtype, mesh))
                file.write(whole.view(np.uint8).data)
            if main:
                file.flush()
                os.fsync(file.fileno())
        if main:
            (folder / "config.json").unlink(missing_ok=True)
            unfinished.rename(folder / WHOLE)
            texts = tokenizer.files() if tokenizer else {}
            for name, text in (texts | {"config.json": _config_json(config, tokenizer, dtype)}).items():
                write_whole(folder / name, text)
    finally:
        if main:
            unfinished.unlink(missing_ok=True)
    multihost_utils.sync_global_devices("checkpoint written")


def _header(tensors: dict[str, Tensor], dtype: np.dtype) -> bytes:
    """Return the beginning of a safetensors file, behind which the tensors follow in this order, row by row.

    The format is that of https://huggingface.co/docs/safetensors; the library's writer wants all tensors at once.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + dtype.itemsize * math.prod(tensor.shape)
        header[name] = {"dtype": DTYPES[dtype.name], "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text


@functools.partial(jax.jit, static_argnames=("dtype", "mesh"))
def _extract(value: jax.Array, layer: int | None, dtype: np.dtype, mesh: Mesh | None) -> jax.Array:
    """Return one tensor as the checkpoint has it, whole on every device, so that any process can write it."""
    if layer is not None:
        value = jax.lax.dynamic_index_in_dim(value, layer, 0, keepdims=False).T
    value = value.astype(dtype)
    return value if mesh is None else jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P()))


def _config_json(config: DecoderConfig, tokenizer: Tokenizer | None, dtype: np.dtype) -> bytes:
    """Write config.json in the spelling of the published checkpoints, which transformers 4 and 5 read."""
    beside = tokenizer and tokenizer.folder / "config.json"
    published = json.loads(beside.read_text(encoding="utf-8")) if beside and beside.exists() else {}
    family, scaling = family_of(config), config.rope_scaling
    raw: dict[str, Any] = {"architectures": [f"{family.capitalize()}ForCausalLM"], "model_type": family}
    raw |= {name: getattr(config, name) for name in FIELDS}
    raw |= {"rope_scaling": None if scaling is None else {"rope_type": "llama3"} | dataclasses.asdict(scaling)}
    raw |= {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False, "torch_dtype": dtype.name}
    raw |= {"max_position_embeddings": published.get("max_position_embeddings", 40_960)}
    if tokenizer:
        first, *others = tokenizer.stop_ids
        raw |= {"eos_token_id": [first, *others] if others else first, "pad_token_id": tokenizer.pad_id}
    return (json.dumps(raw, indent=2) + "\n").encode()

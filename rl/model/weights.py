"""Checkpoints in Hugging Face format, read and written: config.json and safetensors, never pickle.

Both ways one tensor is in flight at a time: a shard of a stacked parameter is filled on its device layer by layer, and
a file is written while its tensors are fetched. A tensor of a checkpoint has its output axis first, ours its inputs.
"""

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
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding
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
      shape: shape in the checkpoint.
      transposed: whether it is the transpose of ours; norms, biases, embedding and head are not.
    """

    path: tuple[str, ...]
    layer: int | None
    shape: tuple[int, ...]
    transposed: bool

    @property
    def name(self) -> str:
        name = ".".join(self.path)
        if self.layer is not None:
            name = name.replace("layers.", f"layers.{self.layer}.", 1)
        return name if self.path[0] == "lm_head" else f"model.{name}"

    def sharding(self, whole: NamedSharding | None) -> Sharding:
        """Return the sharding by which each device reads just what it needs of the parameter, laid out as `whole`."""
        if whole is None:
            return SingleDeviceSharding(jax.local_devices()[0])
        if self.layer is None:
            return whole
        axes = [*whole.spec, *[None] * (1 + len(self.shape) - len(whole.spec))][1:]
        return NamedSharding(whole.mesh, P(*(axes[::-1] if self.transposed else axes)))


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
            shape = variable.shape[:0:-1]
            tensors += [Tensor(path, i, shape, transposed=len(shape) == 2) for i in range(variable.shape[0])]
        else:
            tensors.append(Tensor(path, None, variable.shape, transposed=False))
    order = ["embed_tokens", "layers", "norm", "lm_head"]
    tensors.sort(key=lambda tensor: (order.index(tensor.path[0]), tensor.layer or 0))
    return {tensor.name: tensor for tensor in tensors}


def load(
    folder: Path | str, config: DecoderConfig, mesh: Mesh | None = None, key: jax.Array | None = None
) -> tuple[nnx.GraphDef[Decoder], nnx.State]:
    """Read single or sharded safetensors straight into their shardings, tensor by tensor.

    Host memory stays below the largest file plus one tensor, device memory at the parameters plus one tensor. Each
    process of a job reads only what its devices hold.

    Args:
      folder: directory with model.safetensors, or several `*.safetensors` and their index, which names what is read.
      config: shape of the folder's config.json; with `lora`, the checkpoint is the base.
      mesh: devices that share the parameters; None puts them on one device.
      key: key of the adapters' random half; must be given with `config.lora`.
    """
    graph, shapes = abstract(config, mesh)
    base = lora.split(shapes)[1] if config.lora else shapes
    tensors, variables = _tensors(base), dict(nnx.to_flat_state(base))
    files = weight_files(Path(folder), tensors, config.tie_word_embeddings)
    values = {
        path: jnp.zeros(x.shape, x.dtype, device=x.sharding) for path, x in variables.items() if path[0] == "layers"
    }
    for file, names in files.items():
        with safe_open(file, "np") as handle:  # one file mapped at a time: its pages count as memory while it is open
            for name in names:
                tensor, part = tensors[name], handle.get_slice(name)
                variable = variables[tensor.path]
                value = jax.make_array_from_callback(tensor.shape, tensor.sharding(variable.sharding), part.__getitem__)
                if tensor.layer is None:
                    values[tensor.path] = value.astype(variable.dtype)
                else:
                    values[tensor.path] = _insert(values[tensor.path], value, tensor.layer, variable.sharding)
                # Reading is faster than some devices' links: without this, tensors would pile up on the host.
                jax.block_until_ready(values[tensor.path])
    flat = [(path, variable.replace(values[path])) for path, variable in variables.items()]
    if config.lora:
        flat += nnx.to_flat_state(_adapters(config, mesh)(key))
    return graph, nnx.from_flat_state(flat)


def weight_files(folder: Path, tensors: dict[str, Tensor], tied: bool) -> dict[Path, list[str]]:
    """Return the files of a checkpoint, each with the names of its tensors, once these are all and only a model's.

    As in `transformers`, a model.safetensors is the whole checkpoint, and else the index names its files; other files
    beside them are no part of it, and a head beside a tied embedding is not read.
    """
    ignored = re.compile(f"{BUFFERS}|^lm_head.weight$" if tied else BUFFERS)
    files: dict[Path, list[str]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        names = [WHOLE]
        if not (folder / WHOLE).exists() and (folder / INDEX).exists():
            names = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        for file in (folder / name for name in names):
            with safe_open(file, "np") as handle:
                files[file] = [name for name in handle.keys() if not ignored.search(name)]  # noqa: SIM118 - no mapping
                shapes |= {name: tuple(handle.get_slice(name).get_shape()) for name in files[file]}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"student.model.path = {folder}: cannot read its safetensors ({error})") from None
    for name in sorted(tensors.keys() | shapes.keys()):
        expected, shape = tensors[name].shape if name in tensors else None, shapes.get(name)
        if shape != expected:
            raise ConfigError(f"student.model.path = {folder}: {name} has shape {shape}, which must be {expected}")
    return files


@functools.partial(jax.jit, static_argnames="sharding", donate_argnums=0)
def _insert(stack: jax.Array, tensor: jax.Array, layer: int, sharding: Sharding | None) -> jax.Array:
    """Write a checkpoint's tensor into the donated stack as one of its layers."""
    stack = jax.lax.dynamic_update_index_in_dim(stack, tensor.T.astype(stack.dtype), layer, 0)
    return stack if sharding is None else jax.lax.with_sharding_constraint(stack, sharding)


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

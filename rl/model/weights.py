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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, Sharding
from jax.sharding import PartitionSpec as P
from safetensors import safe_open

from rl import distributed
from rl.config import ConfigError
from rl.model import lora
from rl.model.decoder import Decoder, DecoderConfig, abstract
from rl.model.presets import FIELDS, architecture, family_of
from rl.model.survey import DTYPES, INDEX, TEXTS, WHOLE, Tensor, survey, weight_files
from rl.model.tokenizer import Tokenizer

LFS = b"version https://git-lfs.github.com/spec/"
HUB_ID = re.compile(r"(\w[\w.-]*/[\w.-]+)(?:@([\w./-]+))?")
"""A model of the Hugging Face hub, and a branch, tag or commit of it."""


def resolve(path: str | Path) -> Path:
    """Return the folder of a checkpoint: `path`, or where the Hugging Face hub's files of that id are on this machine.

    A hub id is downloaded (`TEXTS`, and the weights that the index names or else model.safetensors), or found in the
    cache; with HF_HUB_OFFLINE=1 only the cache is asked.

    Raises:
      ConfigError: if it is neither a folder here nor an id that the hub or the cache knows, or if the folder holds
        adapters alone, files that git-lfs has not fetched yet, or an index that cannot be used.
    """
    folder = Path(os.path.expanduser(path))
    folder = folder if folder.is_dir() else _download(path)
    if pointers := sorted(name for name in {*TEXTS, *weight_files(folder)} if _is_pointer(folder / name)):
        raise ConfigError(
            f"model.path = {folder}: {', '.join(pointers)} must be the files that git-lfs keeps elsewhere, and only "
            "point to them; run git lfs pull in that folder"
        )
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        raise ConfigError(
            f"model.path = {folder}: must be a whole model, and holds adapters alone; a run has the merged model in "
            "the folder above them, and PEFT's merge_and_unload makes one of others"
        )
    return folder


def _download(path: str | Path) -> Path:
    """Return where the hub's files of this id are on this machine."""
    if (hub := HUB_ID.fullmatch(str(path))) is None:
        raise ConfigError(
            f"model.path = {path}: must be a folder that exists, or an id of the Hugging Face hub such as "
            "Qwen/Qwen3-4B or Qwen/Qwen3-4B@REVISION"
        )
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    name, revision = hub.groups()
    # Said anew, because huggingface-hub 1.27 asks the hub about a commit in the cache all the same.
    download = functools.partial(snapshot_download, name, local_files_only=constants.HF_HUB_OFFLINE)
    try:
        folder = Path(download(revision=revision, allow_patterns=list(TEXTS)))
        # Publishers keep more beside them, and as large: consolidated.safetensors, original/, onnx/.
        names = sorted(weight_files(folder)) if (folder / INDEX).exists() else [WHOLE]
        return Path(download(revision=folder.name, allow_patterns=names))
    except ConfigError:  # the index cannot be used
        raise
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"model.path = {path}: no such folder, and not had from the hub ({reason})") from None


def _is_pointer(file: Path) -> bool:
    """Whether a clone without git-lfs has left these few lines in place of a file."""
    try:
        with file.open("rb") as handle:
            return handle.read(len(LFS)) == LFS
    except OSError:  # a folder, or a file that whoever needs it cannot read either
        return False


def _tensors(base: nnx.State) -> list[Tensor]:
    """List every tensor of the checkpoint, in the order in which `transformers` writes them: layer by layer."""
    tensors = []
    for parts, variable in nnx.to_flat_state(base):
        path = tuple(map(str, parts))
        if path[0] == "layers":
            shape = variable.shape[:0:-1]
            tensors += [Tensor(path, i, shape, transposed=len(shape) == 2) for i in range(variable.shape[0])]
        else:
            tensors.append(Tensor(path, None, variable.shape, transposed=False))
    order = ["embed_tokens", "layers", "norm", "lm_head"]
    return sorted(tensors, key=lambda tensor: (order.index(tensor.path[0]), tensor.layer or 0))


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

    Raises:
      ConfigError: naming the files or tensors that do not fit (`survey`), or a tensor with NaN or infinity. Nothing is
        loaded then.
    """
    graph, shapes = abstract(config, mesh)
    base = lora.split(shapes)[1] if config.lora else shapes
    places = survey(Path(folder), _tensors(base), config.tie_word_embeddings)

    variables = dict(nnx.to_flat_state(base))
    values = {}
    for path, variable in variables.items():
        if path[0] == "layers":
            values[path] = jnp.zeros(variable.shape, variable.dtype, device=variable.sharding)
    for file, tensors in places.items():
        with safe_open(file, "np") as handle:  # one file mapped at a time: its pages count as memory while it is open
            for name, tensor in tensors.items():
                variable, part = variables[tensor.path], handle.get_slice(name)
                value = jax.make_array_from_callback(tensor.shape, tensor.sharding(variable.sharding), part.__getitem__)
                if not _is_finite(value):
                    raise ConfigError(
                        f"model.path = {folder}: {name} must hold finite numbers, and has NaN or infinity; fetch or "
                        "convert the model anew (numbers above 65,504 overflow in float16, not in bfloat16)"
                    )
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


@functools.partial(jax.jit, static_argnames="sharding", donate_argnums=0)
def _insert(stack: jax.Array, tensor: jax.Array, layer: int, sharding: Sharding | None) -> jax.Array:
    """Write a checkpoint's tensor into the donated stack as one of its layers."""
    stack = jax.lax.dynamic_update_index_in_dim(stack, tensor.T.astype(stack.dtype), layer, 0)
    return stack if sharding is None else jax.lax.with_sharding_constraint(stack, sharding)


@jax.jit
def _is_finite(tensor: jax.Array) -> jax.Array:
    return jnp.isfinite(tensor).all()


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
    max_shard_bytes: int = 5_000_000_000,
) -> None:
    """Write a folder that `load` and `transformers` read: safetensors, config.json, the tokenizer's files.

    All is first written under other names, and config.json gets its own last: a full disk or a crash leaves what was
    there before, or a folder that does not load. Every process of a job must call this; the first one writes.

    Args:
      folder: directory, made if it does not exist; a checkpoint in it is replaced.
      config: shape of `parameters`.
      parameters: sharded or not, without adapters (`lora.merge` first).
      tokenizer: whose files are copied; None leaves the tokenizer out.
      dtype: type of the stored numbers.
      max_shard_bytes: more than that goes into several files with an index.

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
    # The other processes take part in fetching each tensor, and write it nowhere.
    unfinished = {name: folder / f"{name}.unfinished" if main else Path(os.devnull) for name in [*shards, *texts]}
    try:
        if main:
            folder.mkdir(parents=True, exist_ok=True)
        for name, part in shards.items():
            _write(unfinished[name], _contents(part, values, dtype))
        for name, text in texts.items():
            _write(unfinished[name], [text])
        if main:
            (folder / "config.json").unlink(missing_ok=True)
            for old in [*folder.glob("model*.safetensors"), folder / INDEX]:
                old.unlink(missing_ok=True)
            for name in sorted(unfinished, key=lambda name: name == "config.json"):
                unfinished[name].rename(folder / name)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot write the checkpoint there ({error.strerror})") from None
    finally:
        for file in unfinished.values() if main and folder.is_dir() else ():
            file.unlink(missing_ok=True)
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


def _contents(tensors: list[Tensor], values: dict[tuple, jax.Array], dtype: np.dtype) -> Iterator[bytes | np.ndarray]:
    """Yield a safetensors file in parts: the header, whose shapes are known beforehand, then one tensor at a time.

    The format is that of https://huggingface.co/docs/safetensors; the library's writer wants all tensors at once.
    """
    kind = next(short for short, long in DTYPES.items() if long == dtype.name)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + _size([tensor], dtype)
        header[tensor.name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors:
        value = values[tensor.path]
        mesh = value.sharding.mesh if isinstance(value.sharding, NamedSharding) else None
        yield np.asarray(_extract(value, tensor.layer, dtype, mesh))


@functools.partial(jax.jit, static_argnames=("dtype", "mesh"))
def _extract(value: jax.Array, layer: int | None, dtype: np.dtype, mesh: Mesh | None) -> jax.Array:
    """Return one tensor as the checkpoint has it, whole on every device, so that any process can write it."""
    if layer is not None:
        value = jax.lax.dynamic_index_in_dim(value, layer, 0, keepdims=False).T
    value = value.astype(dtype)
    return value if mesh is None else jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P()))


def _write(path: Path, parts: Iterable[bytes | np.ndarray]) -> None:
    """Write the parts one after the other, down to the disk."""
    with open(path, "wb") as file:
        for part in parts:
            file.write(part if isinstance(part, bytes) else np.ascontiguousarray(part).view(np.uint8).data)
        if path != Path(os.devnull):
            file.flush()
            os.fsync(file.fileno())


def _config_json(config: DecoderConfig, tokenizer: Tokenizer | None, dtype: np.dtype) -> bytes:
    """Write config.json in the spelling of the published checkpoints, which transformers 4 and 5 read."""
    beside = tokenizer and tokenizer.folder / "config.json"
    published = json.loads(beside.read_text(encoding="utf-8")) if beside and beside.exists() else {}
    family, scaling = family_of(config), config.rope_scaling
    raw: dict[str, Any] = {"architectures": [architecture(family)], "model_type": family}
    raw |= {name: getattr(config, name) for name in FIELDS}
    raw |= {"rope_scaling": None if scaling is None else {"rope_type": "llama3"} | dataclasses.asdict(scaling)}
    raw |= {"hidden_act": "silu", "attention_bias": False}
    raw |= {"use_sliding_window": False, "torch_dtype": dtype.name}
    raw |= {"max_position_embeddings": published.get("max_position_embeddings", 40_960)}
    if tokenizer:
        first, *others = tokenizer.stop_ids
        raw |= {"eos_token_id": [first, *others] if others else first, "pad_token_id": tokenizer.pad_id}
    return _json(raw)


def _json(raw: Any) -> bytes:
    return (json.dumps(raw, indent=2) + "\n").encode()

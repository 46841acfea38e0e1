"""Qwen3 checkpoints in Hugging Face format, read and written: config.json and safetensors, never pickle."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rl.config import ConfigError
from rl.qwen3.model import Qwen3, Qwen3Config

FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "tie_word_embeddings",
)
"""Of config.json, under the same names as ours; `rope_theta` has two spellings and is read apart."""


def read_config(folder: Path | str, dtype: Any) -> Qwen3Config:
    """The shape in a folder's config.json, raw: no class default stands in for a missing value.

    Raises:
      ConfigError: if the file is absent, is of another architecture or lacks a field.
    """
    path = Path(folder) / "config.json"
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path = {folder}: cannot read config.json ({error})") from None
    if raw.get("model_type") != "qwen3":
        raise ConfigError(f"{path}: model_type is {raw.get('model_type')!r}; a dense 'qwen3' is needed")
    # transformers 4 writes rope_theta at the top, transformers 5 inside rope_parameters.
    theta = raw.get("rope_theta", (raw.get("rope_parameters") or {}).get("rope_theta"))
    missing = [name for name in FIELDS if name not in raw] + (["rope_theta"] if theta is None else [])
    if missing:
        raise ConfigError(f"{path}: lacks {', '.join(missing)}")
    return Qwen3Config(**{name: raw[name] for name in FIELDS}, rope_theta=float(theta), dtype=dtype)


def load(
    folder: Path | str, shape: Qwen3Config, place: Callable[[nnx.State], nnx.State]
) -> tuple[nnx.GraphDef[Qwen3], nnx.State]:
    """Reads single or sharded safetensors as float32 parameters, one stacked tensor at a time.

    Args:
      folder: with config.json and *.safetensors.
      shape: of the folder's config.json.
      place: puts a part of the parameters where it belongs (`shard_parameters` on a mesh).

    Raises:
      ConfigError: naming every tensor that is missing, superfluous or of another shape; nothing is loaded then.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise ConfigError(f"model.path = {folder}: no *.safetensors there")
    try:
        handles = [safe_open(file, framework="flax") for file in files]
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"model.path = {folder}: cannot read its safetensors ({error})") from None
    holder = {name: handle for handle in handles for name in handle.keys()}  # noqa: SIM118 - a handle is no mapping
    graph, abstract = nnx.split(nnx.eval_shape(lambda: Qwen3(shape, nnx.Rngs(0))))

    flat = nnx.to_flat_state(abstract)
    wanted = {name: dims for path, variable in flat for name, dims in _tensors(path, variable.shape, shape).items()}
    problems = [f"{name} is missing" for name in wanted.keys() - holder.keys()]
    superfluous = holder.keys() - wanted.keys()
    if shape.tie_word_embeddings:
        superfluous = superfluous - {"lm_head.weight"}  # some tied checkpoints carry the copy
    problems += [f"{name} is not of this model" for name in superfluous]
    for name in wanted.keys() & holder.keys():
        found = tuple(holder[name].get_slice(name).get_shape())
        if found != wanted[name]:
            problems.append(f"{name} has shape {found}, not {wanted[name]}")
    if problems:
        raise ConfigError(f"model.path = {folder}: {'; '.join(sorted(problems))}")

    loaded = []
    for path, variable in flat:
        stack = [
            np.asarray(_ours(path, holder[name].get_tensor(name).astype(jnp.float32), variable.shape))
            for name in _tensors(path, variable.shape, shape)
        ]
        value = np.stack(stack) if path[0] == "layers" else stack[0]
        loaded.append((path, place(variable.replace(value))))
    return graph, nnx.from_flat_state(loaded)


def save(folder: Path | str, shape: Qwen3Config, parameters: nnx.State) -> None:
    """Writes config.json and one float32 model.safetensors that `load` and `transformers` read."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for path, variable in nnx.to_flat_state(parameters):
        value = np.asarray(variable[...])
        parts = value if path[0] == "layers" else value[None]
        for (name, dims), part in zip(_tensors(path, value.shape, shape).items(), parts, strict=True):
            tensors[name] = np.ascontiguousarray(_theirs(path, part).reshape(dims))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    raw = {name: getattr(shape, name) for name in FIELDS} | {"rope_theta": shape.rope_theta}
    raw |= {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "attention_bias": False}
    (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n")


def _tensors(path: tuple, shape: tuple[int, ...], config: Qwen3Config) -> dict[str, tuple[int, ...]]:
    """The checkpoint's tensors behind one of our parameters, with their shapes there; a stacked one has one a layer."""
    dims = shape[1:] if path[0] == "layers" else shape
    leaf = path[-1] if path[-1] == "weight" else f"{path[-1]}.weight"
    if path[-1] in ("q_proj", "k_proj", "v_proj"):
        dims = (dims[1] * dims[2], dims[0])
    elif path[-1] == "o_proj":
        dims = (dims[2], dims[0] * dims[1])
    elif path[0] == "layers" and len(dims) == 2:
        dims = dims[::-1]
    if path[0] == "layers":
        middle = ".".join((*path[1:-1], leaf))
        return {f"model.layers.{i}.{middle}": dims for i in range(config.num_hidden_layers)}
    name = ".".join((*path[:-1], leaf))
    return {name if path[0] == "lm_head" else f"model.{name}": dims}


def _ours(path: tuple, tensor: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """A checkpoint's tensor, output axis first, in our layout: input axes first, heads apart."""
    if path[0] != "layers":
        return tensor
    return tensor.T.reshape(shape[1:])


def _theirs(path: tuple, value: np.ndarray) -> np.ndarray:
    if path[0] != "layers" or value.ndim == 1:
        return value
    inputs = 2 if path[-1] == "o_proj" else 1
    return value.reshape(int(np.prod(value.shape[:inputs])), -1).T

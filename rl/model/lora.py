"""Low-rank adapters (Hu et al. 2021) on a model's projections: what is trained, what is merged, and PEFT's files.

The adapters themselves are two parameters of `model.Projection`, of flax's type `nnx.LoRAParam`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.typing import PathParts
from jax.experimental import multihost_utils
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from jaxlake.files import write_whole
from rl.config import ConfigError, LoRASection, refuse_difference

FILE = "adapter_model.safetensors"


def split(parameters: nnx.State) -> tuple[nnx.State, nnx.State]:
    """Return (trained, frozen): the adapters and the base; without adapters everything is trained and nothing frozen.

    The frozen half is the whole of a model without adapters: the reference policy costs no memory of its own.
    """
    adapters, rest = parameters.split(nnx.LoRAParam, ...)
    return (adapters, rest) if adapters else (rest, adapters)


def merge(parameters: nnx.State, config: LoRASection) -> nnx.State:
    """Return the parameters of a model without adapters that computes the same: W + alpha / rank * A B, in W's dtype.

    The sums are float32, one projection at a time. For sampling and for export: a base that is stored in bfloat16
    stays so, and is not to be trained on.
    """
    flat = dict(nnx.to_flat_state(parameters))
    scale = config.alpha / config.rank

    def add(w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return (w.astype(jnp.float32) + scale * (a @ b)).astype(w.dtype)

    for path in [path for path in flat if path[-1] == "lora_a"]:
        where, a, b = (*path[:-1], "weight"), flat.pop(path), flat.pop((*path[:-1], "lora_b"))
        w = flat[where][...]
        flat[where] = flat[where].replace(jax.jit(add, out_shardings=w.sharding)(w, a[...], b[...]))
    return nnx.from_flat_state(list(flat.items()))


def save(
    folder: Path | str,
    config: LoRASection,
    parameters: nnx.State,
    base_model: str | None = None,
    source: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the adapters as PEFT does, adapter_config.json and adapter_model.safetensors, in float32.

    In a job of several processes all call it and the first writes.

    Args:
      folder: directory, made if it does not exist.
      parameters: parameters of a model with adapters; the base is not written.
      base_model: folder or hub id of the base, for PEFT to find it.
      source: digests of what the adapters stand on; metadata of their file.
    """
    tensors: dict[str, np.ndarray] = {}
    adapters = nnx.to_flat_state(split(parameters)[0])
    for path, variable in adapters:
        stack = np.asarray(multihost_utils.process_allgather(variable[...], tiled=True))
        tensors |= {_name(path, i): np.ascontiguousarray(part.T) for i, part in enumerate(stack)}
    raw = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "revision": source.get("revision"),
        "r": config.rank,
        "lora_alpha": config.alpha,
        "target_modules": sorted({str(path[-2]) for path, _ in adapters}),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    if jax.process_index():
        return
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Not by the library's `save_file`, whose files are for their owner alone (0600), whatever the umask.
    write_whole(folder / FILE, to_bytes(tensors, metadata={"format": "pt"} | dict(source)))
    write_whole(folder / "adapter_config.json", (json.dumps(raw, indent=2) + "\n").encode())


def read_source(folder: Path | str) -> dict[str, str]:
    """Return what adapters stand on, among the other metadata of their file; ConfigError if that cannot be read."""
    try:
        with safe_open(Path(folder) / FILE, "np") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{folder}: cannot read the adapters there ({error})") from None


def load(folder: Path | str, parameters: nnx.State, source: Mapping[str, str]) -> nnx.State:
    """Return the parameters of a model with the adapters that `save` wrote in place of its own.

    Args:
      source: what `parameters` stand on, as `save` was told of it; ConfigError if it was another. PEFT's own files tell
        of none, and may have another scale or method, so they are refused.
    """
    refuse_other_source(Path(folder), read_source(folder), source)
    tensors = load_file(Path(folder) / FILE)
    adapters, base = split(parameters)
    read = []
    for path, variable in nnx.to_flat_state(adapters):
        stack = np.stack([tensors[_name(path, i)].T for i in range(variable.shape[0])])
        array = jax.make_array_from_callback(variable.shape, variable.sharding, stack.__getitem__)
        read.append((path, variable.replace(array)))
    return nnx.merge_state(nnx.from_flat_state(read), base)


def refuse_other_source(where: Path, was: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise ConfigError if what trained parameters stand on is not what they were trained with.

    Args:
      where: what holds the parameters.
      was, now: `rl.model.policy.Policy.source` when they were saved, and today's.
    """
    revision = f", revision {was['revision']}" if "revision" in was else ""
    remedy = f"student.model must be what it was trained with{revision}"
    before, after = ({name: source.get(name) for name in now if name != "revision"} for source in (was, now))
    refuse_difference(where, before, after, remedy)


def _name(path: PathParts, layer: int) -> str:
    """Return PEFT's name of one layer's part of ``layers.<...>.lora_a``; its tensors have the output axis first."""
    *modules, parameter = map(str, path[1:])
    return ".".join(("base_model.model.model.layers", str(layer), *modules, f"lora_{parameter[-1].upper()}.weight"))

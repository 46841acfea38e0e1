"""Low-rank adapters (Hu et al. 2021) on a model's projections: what is trained, what is merged, and PEFT's files.

The adapters themselves are two parameters of `model.Projection`, of flax's type `nnx.LoRAParam`.
"""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.typing import PathParts
from jax.experimental import multihost_utils
from safetensors import SafetensorError
from safetensors.numpy import save_file

from rl.config import ConfigError, LoRASection


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


def save(folder: Path | str, config: LoRASection, parameters: nnx.State, base_model: str | None = None) -> None:
    """Write the adapters as PEFT does, adapter_config.json and adapter_model.safetensors, in float32.

    In a job of several processes all call it and the first writes.

    Args:
      folder: made if it is not there.
      parameters: of a model with adapters; the base among them is not written.
      base_model: folder or hub id of the base, for PEFT to find it.

    Raises:
      ConfigError: if the folder cannot be written.
    """
    tensors: dict[str, np.ndarray] = {}
    for path, variable in nnx.to_flat_state(split(parameters)[0]):
        stack = np.asarray(multihost_utils.process_allgather(variable[...], tiled=True))
        tensors |= {_name(path, i): np.ascontiguousarray(part.T) for i, part in enumerate(stack)}
    raw = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "target_modules": list(config.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    if jax.process_index():
        return
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Under another name until it is whole, and the config last: no half an adapter that loads.
        save_file(tensors, folder / "adapter_model.tmp", metadata={"format": "pt"})
        os.replace(folder / "adapter_model.tmp", folder / "adapter_model.safetensors")
        (folder / "adapter_config.tmp").write_text(json.dumps(raw, indent=2) + "\n")
        os.replace(folder / "adapter_config.tmp", folder / "adapter_config.json")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{folder}: cannot write the adapters there ({error})") from None


def _name(path: PathParts, layer: int) -> str:
    """Return PEFT's name of one layer's part of ``layers.<...>.lora_a``; its tensors have the output axis first."""
    *modules, parameter = map(str, path[1:])
    return ".".join(("base_model.model.model.layers", str(layer), *modules, f"lora_{parameter[-1].upper()}.weight"))

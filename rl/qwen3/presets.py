"""Shapes of dense Qwen3 models: by name, those trained from scratch here and those published, or from a config.json."""

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from rl.config import ConfigError
from rl.qwen3.model import Qwen3Config

COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
FIELDS = (*COUNTS, "rms_norm_eps", "tie_word_embeddings")
"""Fields of config.json under the same names as ours; `rope_theta` has several places and is read on its own."""

# The shipped tokenizer has 896 tokens; sequences are short, hence the small base of the angles.
_TINY = Qwen3Config(
    vocab_size=896,
    hidden_size=96,
    intermediate_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    rope_theta=1e4,
)
# What the published ones share; theirs is https://huggingface.co/Qwen/Qwen3-<size>/blob/main/config.json.
_4B = Qwen3Config(
    vocab_size=151_936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    rope_theta=1e6,
)

PRESETS: dict[str, Qwen3Config] = {
    "tiny": _TINY,
    "small": dataclasses.replace(
        _TINY,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
    ),
    "qwen3-0.6b": dataclasses.replace(
        _4B, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16
    ),
    "qwen3-1.7b": dataclasses.replace(
        _4B, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16
    ),
    "qwen3-4b": _4B,
    "qwen3-4b-2507": dataclasses.replace(_4B, rope_theta=5e6),  # Instruct and Thinking alike
    "qwen3-8b": dataclasses.replace(_4B, hidden_size=4096, intermediate_size=12_288, tie_word_embeddings=False),
}
"""Matrix work in float32 and no adapters: a run replaces what its configuration says."""


def shape_of(name: str | Path, dtype: Any = jnp.float32) -> Qwen3Config:
    """Return the shape that a preset's name, a config.json or a folder with one stands for.

    Raises:
      ConfigError: if it is none of them, or the config.json is not one of a dense Qwen3.
    """
    if str(name) in PRESETS:
        return dataclasses.replace(PRESETS[str(name)], dtype=dtype)
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise ConfigError(f"model.shape = {name}: must be a config.json, its folder, or one of {', '.join(PRESETS)}")
    return read_config(path, dtype)


def read_config(path: Path | str, dtype: Any = jnp.float32) -> Qwen3Config:
    """Read the shape in a config.json, raw: no class default stands in for a missing value.

    Args:
      path: the file, or the folder it is in.
      dtype: type of the matrix work.

    Raises:
      ConfigError: if the file is absent, is of another architecture, lacks a field, or asks for what is not built.
    """
    path = Path(path)
    path = path / "config.json" if path.is_dir() else path
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot read it ({error})") from None
    if not isinstance(raw, dict) or raw.get("model_type") != "qwen3":
        kind = raw.get("model_type") if isinstance(raw, dict) else raw
        raise ConfigError(f"{path}: model_type = {kind!r} must be 'qwen3', a dense model")
    theta, problems = _read_rope(raw)
    architectures = raw.get("architectures") or ["Qwen3ForCausalLM"]
    if architectures != ["Qwen3ForCausalLM"]:
        problems.append(f"architectures = {architectures} must be Qwen3ForCausalLM")
    if raw.get("hidden_act", "silu") != "silu":
        problems.append(f"hidden_act = {raw['hidden_act']!r} must be 'silu'")
    layers = raw.get("layer_types") or []
    if raw.get("use_sliding_window") or not isinstance(layers, list) or any(x != "full_attention" for x in layers):
        problems.append("all layers must have full attention: a sliding window is not built")
    problems += [
        f"{key} is not built" for key in ("attention_bias", "num_experts", "quantization_config") if raw.get(key)
    ]
    missing = [name for name in FIELDS if name not in raw]
    if missing:
        problems.append(f"lacks {', '.join(missing)}")
    problems += [
        f"{name} = {raw[name]!r} must be a whole number above 0"
        for name in COUNTS
        if name in raw and (type(raw[name]) is not int or raw[name] < 1)
    ]
    if not _positive(raw.get("rms_norm_eps", 1)) or not isinstance(raw.get("tie_word_embeddings", True), bool):
        problems.append("rms_norm_eps must be a number above 0, tie_word_embeddings true or false")
    if problems:
        raise ConfigError(f"{path}: {'; '.join(problems)}")
    if raw["num_attention_heads"] % raw["num_key_value_heads"] or raw["head_dim"] % 2:
        raise ConfigError(
            f"{path}: num_attention_heads = {raw['num_attention_heads']} must be a multiple of num_key_value_heads = "
            f"{raw['num_key_value_heads']}, and head_dim = {raw['head_dim']} even"
        )
    return Qwen3Config(**{name: raw[name] for name in FIELDS}, rope_theta=theta, dtype=dtype)


def _read_rope(raw: dict[str, Any]) -> tuple[float, list[str]]:
    """Return the base of the angles, and what is wrong with it.

    transformers 4 writes `rope_theta` at the top and any scaling into `rope_scaling`; transformers 5 writes both into
    `rope_parameters`, and its class would put 10,000 for an absent one.
    """
    given = [raw, raw.get("rope_parameters"), raw.get("rope_scaling")]
    places = [place for place in given if isinstance(place, dict)]
    problems = [f"rope_parameters or rope_scaling is {place!r}" for place in given if place and place not in places]
    kinds = [place.get(key) for place in places[1:] for key in ("rope_type", "type")]
    problems += [f"rope scaling of type {kind!r} is not built" for kind in kinds if kind not in (None, "default")]
    if any(place.get("partial_rotary_factor") not in (None, 1) for place in places):
        problems.append("partial_rotary_factor is not built")
    thetas = [place["rope_theta"] for place in places if place.get("rope_theta") is not None]
    if not thetas:
        problems.append("lacks rope_theta")
    elif not all(_positive(theta) and theta == thetas[0] for theta in thetas):
        problems.append(f"rope_theta = {' and '.join(map(repr, thetas))} must be one number above 0")
    return (0.0 if problems else float(thetas[0])), problems


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf

"""Shapes of dense Qwen3 models: by name, those trained from scratch here and those published, or from a config.json."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from rl.config import ConfigError
from rl.decoder.model import DecoderConfig

FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "rope_theta",
    "tie_word_embeddings",
)
"""Fields of config.json under the same names as ours."""
BUILT = {
    "model_type": ("qwen3",),
    "architectures": (["Qwen3ForCausalLM"], None),
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "use_sliding_window": (False, None),
    "num_experts": (0, None),
    "quantization_config": (None,),
    "rope_type": ("default", None),
    "type": ("default", None),
    "partial_rotary_factor": (1, None),
}
"""Values of other fields that the model computes, the last for an absent one; with others it would be wrong."""

# The shipped tokenizer has 896 tokens; sequences are short, hence the small base of the angles.
_TINY = DecoderConfig(
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
_4B = DecoderConfig(
    vocab_size=151_936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    rope_theta=1e6,
)

PRESETS: dict[str, DecoderConfig] = {
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


def shape_of(name: str | Path, dtype: Any = jnp.float32) -> DecoderConfig:
    """Return the shape of a preset's name, a config.json or a folder with one.

    Raises:
      ConfigError: if it is none of them, or the config.json is not one of a dense Qwen3.
    """
    if str(name) in PRESETS:
        return dataclasses.replace(PRESETS[str(name)], dtype=dtype)
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise ConfigError(f"model.shape = {name}: must be a config.json, its folder, or one of {', '.join(PRESETS)}")
    return read_config(path, dtype)


def read_config(path: Path | str, dtype: Any = jnp.float32) -> DecoderConfig:
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
        raw = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: cannot read it ({error})") from None
    # transformers 4 writes rope_theta at the top and any scaling into rope_scaling, 5 both into rope_parameters.
    raw = (raw.get("rope_scaling") or {}) | (raw.get("rope_parameters") or {}) | raw
    problems = [
        f"{name} = {raw[name]!r} must be {allowed[0]!r}"
        for name, allowed in BUILT.items()
        if raw.get(name, allowed[-1]) not in allowed
    ]
    if set(raw.get("layer_types") or ()) - {"full_attention"}:
        problems.append("layer_types must be full_attention alone")
    if missing := [name for name in FIELDS if raw.get(name) is None]:
        problems.append(f"lacks {', '.join(missing)}")
    if problems:
        raise ConfigError(f"{path}: must be of a dense Qwen3: {'; '.join(problems)}")
    return DecoderConfig(**{name: raw[name] for name in FIELDS} | {"rope_theta": float(raw["rope_theta"])}, dtype=dtype)

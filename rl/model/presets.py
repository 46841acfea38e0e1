"""Shapes of dense decoders: by name, those trained from scratch here and those published, or from a config.json."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from rl.config import ConfigError
from rl.model.decoder import DecoderConfig, RopeScaling

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
FAMILIES = {"qwen3": (True, False), "qwen2": (False, True), "llama": (False, False), "mistral": (False, False)}
"""Values of `model_type` that are read, each with `qk_norm` and `qkv_bias`; tensors have the same names in all."""

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
# What the published Qwen3 share; theirs is https://huggingface.co/Qwen/Qwen3-<size>/blob/main/config.json.
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

# https://huggingface.co/HuggingFaceTB/SmolLM2-135M/blob/main/config.json
_SMOLLM2 = DecoderConfig(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    rope_theta=1e5,
    rms_norm_eps=1e-5,
    qk_norm=False,
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
    "smollm2-135m": _SMOLLM2,
    # https://huggingface.co/HuggingFaceTB/SmolLM2-360M/blob/main/config.json
    "smollm2-360m": dataclasses.replace(
        _SMOLLM2,
        hidden_size=960,
        intermediate_size=2560,
        num_hidden_layers=32,
        num_attention_heads=15,
        num_key_value_heads=5,
    ),
    # https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct/blob/main/config.json
    "qwen2.5-0.5b": dataclasses.replace(
        _4B,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        head_dim=64,
        qk_norm=False,
        qkv_bias=True,
    ),
    # https://huggingface.co/meta-llama/Llama-3.2-1B-Instruct/blob/main/config.json
    "llama-3.2-1b": dataclasses.replace(
        _SMOLLM2,
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        rope_theta=5e5,
        rope_scaling=RopeScaling(32.0, 1.0, 4.0, 8192),
    ),
}
"""Matrix work in float32 and no adapters: a run replaces what its configuration says."""


def shape_of(name: str | Path, dtype: Any = jnp.float32) -> DecoderConfig:
    """Return the shape of a preset's name, a config.json or a folder with one.

    Raises:
      ConfigError: if it is none of them, or the config.json is of no model that is built here.
    """
    if str(name) in PRESETS:
        return dataclasses.replace(PRESETS[str(name)], dtype=dtype)
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise ConfigError(
            f"student.model.shape = {name}: must be a config.json, its folder, or one of {', '.join(PRESETS)}"
        )
    return read_config(path, dtype)


def read_config(path: Path | str, dtype: Any = jnp.float32) -> DecoderConfig:
    """Read the shape in a config.json, as `transformers` means it.

    Args:
      path: the file, or the folder it is in.
      dtype: type of the matrix work.

    Raises:
      ConfigError: if `transformers` cannot read it, or the model computes what the decoder does not; the tensors of a
        checkpoint would not show it.
    """
    from transformers import AutoConfig  # 1.6 s to import where PyTorch is installed

    try:
        config = AutoConfig.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if config.model_type not in FAMILIES:
        raise ConfigError(f"{path}: model_type = {config.model_type} must be one of {', '.join(FAMILIES)}")
    rope = config.rope_parameters
    computed = {
        "hidden_act": (config.hidden_act, ("silu",)),
        "sliding_window": (getattr(config, "sliding_window", None), (None,)),
        "rope_type": (rope["rope_type"], ("default", "llama3")),
        "partial_rotary_factor": (rope.get("partial_rotary_factor", 1), (1,)),
    }
    for name, (value, values) in computed.items():
        if value not in values:
            raise ConfigError(f"{path}: {name} = {value} must be {' or '.join(map(str, values))}")
    qk_norm, qkv_bias = FAMILIES[config.model_type]
    scaled = rope["rope_type"] == "llama3"
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    fields = {"head_dim": head_dim, "rope_theta": float(rope["rope_theta"])}
    return DecoderConfig(
        **{name: getattr(config, name) for name in FIELDS if name not in fields},
        **fields,
        rope_scaling=RopeScaling(*(rope[field.name] for field in dataclasses.fields(RopeScaling))) if scaled else None,
        qk_norm=qk_norm,
        qkv_bias=qkv_bias,
        dtype=dtype,
    )


def family_of(config: DecoderConfig) -> str:
    """Return the first `model_type` of `FAMILIES` that computes a shape: Mistral without windows is Llama's."""
    return next(family for family, parts in FAMILIES.items() if parts == (config.qk_norm, config.qkv_bias))

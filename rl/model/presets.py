"""Shapes of dense decoders: by name, those trained from scratch here and those published, or from a config.json."""

import dataclasses
import json
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
BUILT = {
    "model_type": tuple(FAMILIES),
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
    "num_experts": (0, None),
    "quantization_config": (None,),
    "text_config": (None,),
    "rope_type": ("default", "llama3", None),
    "rope_interleaved": (False, None),
    "use_mrope": (False, None),
    "partial_rotary_factor": (1, None),
}
"""Values of other fields that the model computes, the last for an absent one; with others it would be wrong."""
ROPE = ("rope_type", "rope_theta", "partial_rotary_factor", "rope_interleaved")
"""Fields of the positions, which may stand in three places; those that follow belong to one type of scaling."""
SCALING = tuple(field.name for field in dataclasses.fields(RopeScaling))

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
        raise ConfigError(f"model.shape = {name}: must be a config.json, its folder, or one of {', '.join(PRESETS)}")
    return read_config(path, dtype)


def read_config(path: Path | str, dtype: Any = jnp.float32) -> DecoderConfig:
    """Read the shape in a config.json, raw: no class default stands in for a missing value.

    Args:
      path: the file, or the folder it is in.
      dtype: type of the matrix work.

    Raises:
      ConfigError: if the file is absent, is of another architecture, lacks a field, or asks for what is not built;
        or if it has two values of one field of its positions.
    """
    path = Path(path)
    path = path / "config.json" if path.is_dir() else path
    try:
        raw: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: cannot read it ({error})") from None
    family = str(raw.get("model_type"))
    raw |= _rope(path, raw) if family in FAMILIES else {}
    built = BUILT | {"architectures": ([architecture(family)], None)}
    if family == "mistral":
        raw, built = {"sliding_window": 4096} | raw, built | {"sliding_window": (None,)}  # its class's default
    problems = [
        f"{name} = {raw.get(name)!r} must be {' or '.join(repr(x) for x in allowed if x is not None) or None}"
        for name, allowed in built.items()
        if raw.get(name, allowed[-1]) not in allowed
    ]
    if set(raw.get("layer_types") or ()) - {"full_attention"}:
        problems.append("layer_types must be full_attention alone")
    sizes = raw.get("hidden_size"), raw.get("num_attention_heads")
    if family != "qwen3" and raw.get("head_dim") is None and all(isinstance(size, int) and size for size in sizes):
        raw["head_dim"] = raw["hidden_size"] // raw["num_attention_heads"]  # Qwen3's class has a number of its own
    scaling = SCALING if raw.get("rope_type") == "llama3" else ()
    if missing := [name for name in (*FIELDS, *scaling) if raw.get(name) is None]:
        problems.append(f"lacks {', '.join(missing)}")
    problems += [
        f"{name} = {raw[name]!r} must be a number, or true or false"
        for name in (*FIELDS, *scaling)
        if not isinstance(raw.get(name), int | float | None)
    ]
    if problems:
        raise ConfigError(f"{path}: must be of a dense decoder: {'; '.join(problems)}")
    qk_norm, qkv_bias = FAMILIES[family]
    return DecoderConfig(
        **{name: raw[name] for name in FIELDS} | {"rope_theta": float(raw["rope_theta"])},
        rope_scaling=RopeScaling(*(raw[name] for name in scaling)) if scaling else None,
        qk_norm=qk_norm,
        qkv_bias=qkv_bias,
        dtype=dtype,
    )


def _rope(path: Path, raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the positions, once all places in a config.json that name them agree.

    transformers 4 writes rope_theta at the top and a scaling into rope_scaling, and copies a rope_parameters that it
    does not know. 5 writes all into rope_parameters, and reads rope_scaling first, then that, then the top. So two
    values are two models.

    Raises:
      ConfigError: naming two places and their values.
    """
    said = {name: {name: raw[name]} for name in (*ROPE, *SCALING) if raw.get(name) is not None}
    for place in [name for name in ("rope_parameters", "rope_scaling") if raw.get(name)] or ["rope_scaling"]:
        table = raw.get(place) or {}
        if not isinstance(table, dict) or any(isinstance(value, dict) for value in table.values()):
            raise ConfigError(f"{path}: {place} = {table!r} must be one table for all layers")
        table = {name: value for name, value in table.items() if value is not None}
        # Neither version fills one table from the other, but each from the top.
        fields = {name: raw.get(name) for name in ROPE} | {"rope_type": table.get("type", "default")} | table
        for name in (*ROPE, *(SCALING if fields["rope_type"] == "llama3" else ())):
            said.setdefault(name, {})[f"{place}.{name}"] = fields.get(name)
        said["rope_type"][f"{place}.type"] = table.get("type", fields["rope_type"])
    for values in said.values():
        (first, value), *others = values.items()
        for other, another in others:
            if another != value:
                raise ConfigError(
                    f"{path}: {first} = {value!r} and {other} = {another!r} must be equal, as versions of transformers "
                    "differ in which they read; keep the one that the model was trained with"
                )
    return {name: next(reversed(values.values())) for name, values in said.items()}


def family_of(config: DecoderConfig) -> str:
    """Return the first `model_type` of `FAMILIES` that computes a shape: Mistral without windows is Llama's.

    Raises:
      ValueError: if there is none.
    """
    for family, parts in FAMILIES.items():
        if parts == (config.qk_norm, config.qkv_bias):
            return family
    raise ValueError("no family of models has both norms of queries and keys, and biases")


def architecture(family: str) -> str:
    """Return the class of a `model_type` in `transformers`."""
    return f"{family.capitalize()}ForCausalLM"

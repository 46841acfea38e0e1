"""Shapes of dense decoders: by name, those trained from scratch here and those published, or from a config.json."""

import dataclasses
import os
from pathlib import Path

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

# Vocabulary, hidden and feed-forward sizes, layers, heads, key-value heads, head size, base of the positions: those of
# https://huggingface.co/<organisation>/<model>/blob/main/config.json. The shipped tokenizer has 896 tokens.
_4B = DecoderConfig(151_936, 2560, 9728, 36, 32, 8, 128, 1e6)
PRESETS: dict[str, DecoderConfig] = {
    "tiny": DecoderConfig(896, 96, 256, 4, 4, 2, 32, 1e4),
    "small": DecoderConfig(896, 512, 1536, 8, 8, 4, 64, 1e4),
    "qwen3-0.6b": DecoderConfig(151_936, 1024, 3072, 28, 16, 8, 128, 1e6),
    "qwen3-1.7b": DecoderConfig(151_936, 2048, 6144, 28, 16, 8, 128, 1e6),
    "qwen3-4b": _4B,
    "qwen3-4b-2507": dataclasses.replace(_4B, rope_theta=5e6),  # Instruct and Thinking alike
    "qwen3-8b": DecoderConfig(151_936, 4096, 12_288, 36, 32, 8, 128, 1e6, tie_word_embeddings=False),
    "qwen2.5-0.5b": DecoderConfig(151_936, 896, 4864, 24, 14, 2, 64, 1e6, qk_norm=False, qkv_bias=True),
    "smollm2-135m": DecoderConfig(49_152, 576, 1536, 30, 9, 3, 64, 1e5, 1e-5, qk_norm=False),
    "smollm2-360m": DecoderConfig(49_152, 960, 2560, 32, 15, 5, 64, 1e5, 1e-5, qk_norm=False),
    "llama-3.2-1b": DecoderConfig(
        *(128_256, 2048, 8192, 16, 32, 8, 64, 5e5, 1e-5),
        rope_scaling=RopeScaling(32.0, 1.0, 4.0, 8192),
        qk_norm=False,
    ),
}
"""Matrix work in float32 and no adapters: a run replaces what its configuration says."""


def shape_of(name: str | Path) -> DecoderConfig:
    """Return the shape of a preset's name, a config.json or a folder with one."""
    if str(name) in PRESETS:
        return PRESETS[str(name)]
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise ConfigError(
            f"student.model.shape = {name}: must be a config.json, its folder, or one of {', '.join(PRESETS)}"
        )
    return read_config(path)


def read_config(path: Path | str) -> DecoderConfig:
    """Read the shape in a config.json, or in its folder's, as `transformers` means it.

    ConfigError if the model computes what the decoder does not, which the tensors of a checkpoint would not show.
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
        "is_causal": (getattr(config, "is_causal", True), (True,)),
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
    )


def family_of(config: DecoderConfig) -> str:
    """Return the first `model_type` of `FAMILIES` that computes a shape: Mistral without windows is Llama's."""
    return next(family for family, parts in FAMILIES.items() if parts == (config.qk_norm, config.qkv_bias))

"""Shapes of dense Qwen3 models: by name, those trained from scratch here and those published, or from a config.json."""

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import jax.numpy as jnp
import pydantic

from rl.config import ConfigError
from rl.qwen3.model import Qwen3Config

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


class _Rope(pydantic.BaseModel):
    """The rotary positions in a config.json: in that of transformers 4 at its top and in `rope_scaling`, of 5 in
    `rope_parameters`."""

    rope_theta: pydantic.PositiveFloat | None = None
    rope_type: Literal["default"] | None = None
    type: Literal["default"] | None = None
    partial_rotary_factor: Literal[1] | None = None


class _ConfigJson(_Rope):
    """The fields of a config.json that say how a dense Qwen3 is computed, with the values that are built.

    None of transformers' class defaults stands in for a missing value.
    """

    model_type: Literal["qwen3"]
    architectures: list[Literal["Qwen3ForCausalLM"]] | None = None
    vocab_size: pydantic.PositiveInt
    hidden_size: pydantic.PositiveInt
    intermediate_size: pydantic.PositiveInt
    num_hidden_layers: pydantic.PositiveInt
    num_attention_heads: pydantic.PositiveInt
    num_key_value_heads: pydantic.PositiveInt
    head_dim: Annotated[int, pydantic.Field(gt=0, multiple_of=2)]
    rms_norm_eps: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
    tie_word_embeddings: bool
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] | None = None
    use_sliding_window: Literal[False] | None = None
    layer_types: list[Literal["full_attention"]] | None = None
    num_experts: Literal[0] | None = None
    quantization_config: None = None
    rope_scaling: _Rope | None = None
    rope_parameters: _Rope | None = None

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads = {self.num_attention_heads} must be a multiple of num_key_value_heads = "
                f"{self.num_key_value_heads}"
            )
        if len(self.thetas) != 1:
            raise ValueError(f"rope_theta = {sorted(self.thetas)} must be one number")
        return self

    @property
    def thetas(self) -> set[float]:
        """Bases of the angles, in whatever place; transformers 5's class would put 10,000 for an absent one."""
        places = (self, self.rope_parameters, self.rope_scaling)
        return {place.rope_theta for place in places if place is not None and place.rope_theta is not None}


def read_config(path: Path | str, dtype: Any = jnp.float32) -> Qwen3Config:
    """Read the shape in a config.json.

    Args:
      path: the file, or the folder it is in.
      dtype: type of the matrix work.

    Raises:
      ConfigError: if the file is absent, is of another architecture, lacks a field, or asks for what is not built.
    """
    path = Path(path)
    path = path / "config.json" if path.is_dir() else path
    try:
        raw = _ConfigJson.model_validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it ({error})") from None
    except pydantic.ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ") for fault in error.errors())
        raise ConfigError(f"{path}: must be of a dense Qwen3: {'; '.join(faults)}") from None
    return Qwen3Config(**{name: getattr(raw, name) for name in FIELDS}, rope_theta=raw.thetas.pop(), dtype=dtype)

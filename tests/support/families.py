"""Small checkpoints of each family that the decoder reads, the same numbers on every machine."""

import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
"""Scaling that leaves the first frequency of heads of 16, mixes the second, and divides the others."""

SIZES = {
    "vocab_size": 48,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
}
CONFIGS = {
    "qwen3": SIZES | {"model_type": "qwen3", "head_dim": 8},
    "qwen2": SIZES | {"model_type": "qwen2", "tie_word_embeddings": True, "use_sliding_window": False},
    "llama": SIZES | {"model_type": "llama", "num_key_value_heads": 1},
    "llama3": SIZES | {"model_type": "llama", "head_dim": 16, "tie_word_embeddings": True, "rope_scaling": LLAMA3},
    "mistral": SIZES | {"model_type": "mistral", "head_dim": 8, "sliding_window": None},
}
"""Contents of config.json in the spelling of the published checkpoints, by the name of a case."""


def write_checkpoint(folder: Path, raw: dict, seed: int = 0) -> dict[str, np.ndarray]:
    """Write config.json and model.safetensors with uniform numbers: norms about 1, biases with variance 1."""
    d, n, k, f = (
        raw[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    )
    h = raw.get("head_dim") or d // n
    shapes = {"model.embed_tokens.weight": (raw["vocab_size"], d), "model.norm.weight": (d,)}
    if not raw["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (raw["vocab_size"], d)
    for i in range(raw["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes |= {f"{layer}{name}_layernorm.weight": (d,) for name in ("input", "post_attention")}
        shapes |= {f"{layer}mlp.{name}_proj.weight": (f, d) for name in ("gate", "up")}
        shapes |= {f"{layer}mlp.down_proj.weight": (d, f), f"{layer}self_attn.o_proj.weight": (d, n * h)}
        for name, heads in (("q", n), ("k", k), ("v", k)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (heads * h, d)
            if raw["model_type"] == "qwen2":
                shapes[f"{layer}self_attn.{name}_proj.bias"] = (heads * h,)
        if raw["model_type"] == "qwen3":
            shapes |= {f"{layer}self_attn.{name}_norm.weight": (h,) for name in "qk"}
    draw = np.random.default_rng(seed).random
    tensors = {}
    for name, shape in sorted(shapes.items()):
        noise = math.sqrt(3) * (2 * draw(shape) - 1)
        scale = 1 if name.endswith("bias") else 1.5 * shape[-1] ** -0.5
        tensors[name] = (1 + 0.3 * noise if "norm" in name else scale * noise).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(tensors, folder / "model.safetensors")
    return tensors

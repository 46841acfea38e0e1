"""Shapes of models that are small enough to compile in a moment, for tests that do not care which."""

import jax
from flax import nnx
from jax.sharding import Mesh

from rl.model.decoder import DecoderConfig
from rl.model.sharding import shardings

SMALL = DecoderConfig(
    vocab_size=16,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    rope_theta=1e4,
)
"""One layer, two heads that share their keys and values, sixteen tokens without a tokenizer."""

MEDIUM = DecoderConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rope_theta=1e6,
)
"""Two layers, four heads of which two share their keys and values."""

SMALL_JSON = {
    "model_type": "qwen3",
    "vocab_size": 896,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
}
"""The same as a config.json, with room for the shipped tokenizer."""


def shard_parameters(parameters: nnx.State, mesh: Mesh) -> nnx.State:
    """Place parameters, or an optimizer's state, by their declared specs."""
    return jax.device_put(parameters, shardings(parameters, mesh))

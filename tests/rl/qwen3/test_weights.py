"""Checkpoints in the real format: what is written is read back bit for bit, what does not fit is named."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from rl.config import ConfigError
from rl.qwen3 import weights
from rl.qwen3.model import Qwen3, Qwen3Config

SHAPE = Qwen3Config(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rope_theta=5e6,
)


def saved(folder, **changes):
    shape = Qwen3Config(**{**vars(SHAPE), **changes})
    graph, parameters = nnx.split(Qwen3(shape, nnx.Rngs(3)))
    weights.save(folder, shape, parameters)
    return shape, graph, parameters


@pytest.mark.parametrize("tied", [True, False])
def test_round_trip_is_bit_exact(tmp_path, tied):
    shape, graph, parameters = saved(tmp_path, tie_word_embeddings=tied)
    assert weights.read_config(tmp_path, jnp.float32) == shape
    graph_again, again = weights.load(tmp_path, shape, lambda part: part)
    assert graph_again == graph
    jax.tree.map(np.testing.assert_array_equal, parameters, again)


def test_names_are_those_of_the_reference(tmp_path):
    saved(tmp_path, tie_word_embeddings=False)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["model.layers.1.self_attn.o_proj.weight"].shape == (16, 32)
    assert tensors["model.layers.0.self_attn.k_proj.weight"].shape == (16, 16)
    assert tensors["model.layers.0.mlp.down_proj.weight"].shape == (16, 24)
    assert {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"} < tensors.keys()
    assert len(tensors) == 3 + 2 * 11


def test_every_misfit_is_named_at_once(tmp_path):
    shape, *_ = saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.norm.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((3, 5), np.float32)
    tensors["model.layers.7.mlp.up_proj.weight"] = np.zeros((24, 16), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError) as error:
        weights.load(tmp_path, shape, lambda part: part)
    message = str(error.value)
    assert "model.norm.weight is missing" in message
    assert "model.layers.0.mlp.up_proj.weight has shape (3, 5), not (24, 16)" in message
    assert "model.layers.7.mlp.up_proj.weight is not of this model" in message
    assert "\n" not in message


def test_theta_is_read_in_both_spellings_and_never_guessed(tmp_path):
    saved(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    theta = raw.pop("rope_theta")
    (tmp_path / "config.json").write_text(json.dumps(raw | {"rope_parameters": {"rope_theta": theta}}))
    assert weights.read_config(tmp_path, jnp.float32).rope_theta == 5e6
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="lacks rope_theta"):
        weights.read_config(tmp_path, jnp.float32)


def test_another_architecture_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="'llama'"):
        weights.read_config(tmp_path, jnp.float32)
    with pytest.raises(ConfigError, match="cannot read config.json"):
        weights.read_config(tmp_path / "nowhere", jnp.float32)

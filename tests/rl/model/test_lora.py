"""Adapters: what they change, what is trained, and PEFT's files."""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file
from shapes import MEDIUM, shard_parameters

from rl.config import LoRASection
from rl.config import load as load_config
from rl.model import lora, weights
from rl.model.decoder import abstract, token_positions
from rl.model.policy import Policy
from rl.model.sharding import make_mesh
from rl.model.tokenizer import Tokenizer

PLAIN = dataclasses.replace(MEDIUM, qk_norm=False, qkv_bias=True)  # what no adapter changes, biases and norms alike
ADAPTED = dataclasses.replace(PLAIN, lora=LoRASection(rank=4, alpha=8.0))
close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
TOKENS = np.random.default_rng(0).integers(0, 64, (2, 7))


@functools.partial(jax.jit, static_argnames="graph")
def logits(graph, *parameters) -> jax.Array:
    model, valid = nnx.merge(graph, *parameters), jnp.ones(TOKENS.shape, bool)
    return model.logits(model(TOKENS, token_positions(valid), valid))


@pytest.fixture(scope="module")
def adapted():
    """With every parameter drawn, B as well, as after some training."""
    graph, shapes = abstract(ADAPTED)
    rng = np.random.default_rng(1)
    return graph, jax.tree.map(lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), shapes)


def test_a_merged_model_computes_the_same(adapted):
    graph, parameters = adapted
    merged = lora.merge(parameters, ADAPTED.lora)
    assert jax.tree.structure(merged) == jax.tree.structure(abstract(PLAIN)[1])
    with_adapters = logits(graph, parameters)
    close(logits(abstract(PLAIN)[0], merged), with_adapters)
    assert np.abs(with_adapters - logits(abstract(PLAIN)[0], lora.split(parameters)[1])).max() > 0.1


def test_adapters_do_not_depend_on_the_mesh(adapted):
    mesh = make_mesh(4, 2)
    graph, spread = abstract(ADAPTED, mesh)[0], shard_parameters(adapted[1], mesh)
    close(logits(graph, spread), logits(*adapted))
    assert "tp" in spread["layers"]["mlp"]["down_proj"]["lora_a"][...].sharding.spec
    merged = lora.merge(spread, ADAPTED.lora)
    weight = "layers", "mlp", "down_proj", "weight"
    assert (
        dict(nnx.to_flat_state(merged))[weight][...].sharding == dict(nnx.to_flat_state(spread))[weight][...].sharding
    )


@pytest.mark.parametrize("mesh", [None, make_mesh(4, 2)])
def test_saved_adapters_come_back_bit_for_bit_on_any_mesh(adapted, tmp_path, mesh):
    lora.save(tmp_path, ADAPTED.lora, adapted[1])
    new = jax.tree.map(jnp.zeros_like, adapted[1])
    new = new if mesh is None else shard_parameters(new, mesh)
    trained, base = lora.split(lora.load(tmp_path, new, {}))
    jax.tree.map(np.testing.assert_array_equal, trained, lora.split(adapted[1])[0])
    jax.tree.map(np.testing.assert_array_equal, base, lora.split(new)[1])
    assert jax.tree.all(jax.tree.map(lambda x, y: x.sharding == y.sharding, trained, lora.split(new)[0]))


def test_a_runs_export_holds_the_merged_model_and_the_adapters_apart(adapted, tmp_path):
    """Every merged tensor is the base's plus alpha / rank * B A, computed from the files alone."""
    graph, parameters = adapted
    config = load_config(Path("configs/tiny.yaml"))
    policy = Policy(graph, ADAPTED, Tokenizer(), make_mesh(1, 1), config.student.text, config.student.sampler.rows)
    policy.save(tmp_path, parameters)
    weights.save(tmp_path / "base", PLAIN, lora.split(parameters)[1])
    merged, base = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "base"))
    adapters = load_file(tmp_path / "adapters" / "adapter_model.safetensors")
    for name, tensor in merged.items():
        prefix = f"base_model.model.{name.removesuffix('.weight')}."
        if name.endswith("_proj.weight"):
            a, b = (adapters.pop(f"{prefix}lora_{half}.weight") for half in "AB")
            close(tensor, base[name] + 8.0 / 4 * b @ a)
        else:
            np.testing.assert_array_equal(tensor, base[name])
    assert not adapters and merged.keys() == base.keys()

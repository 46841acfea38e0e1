"""Adapters: what they change, what is trained, and PEFT's files."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from rl.config import ConfigError
from rl.qwen3 import lora
from rl.qwen3.lora import LoRAConfig
from rl.qwen3.model import Qwen3Config, abstract, create, token_positions
from rl.qwen3.sharding import make_mesh, shard_parameters

PLAIN = Qwen3Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rope_theta=1e6,
)
ADAPTED = dataclasses.replace(PLAIN, lora=LoRAConfig(4, 8.0, ("q_proj", "o_proj", "up_proj", "down_proj")))
close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
TOKENS = np.random.default_rng(0).integers(0, 64, (2, 7))


@functools.partial(jax.jit, static_argnames="graph")
def logits(graph, *parameters) -> jax.Array:
    model, valid = nnx.merge(graph, *parameters), jnp.ones(TOKENS.shape, bool)
    return model.logits(model(TOKENS, token_positions(valid), valid))


def noisy(parameters: nnx.State) -> nnx.State:
    """The same with every B drawn, as after some training."""
    flat = nnx.to_flat_state(parameters)
    rng = np.random.default_rng(1)
    return nnx.from_flat_state(
        [
            (path, v.replace(jnp.asarray(rng.normal(size=v.shape), v.dtype)) if path[-1] == "lora_b" else v)
            for path, v in flat
        ]
    )


@pytest.fixture(scope="module")
def adapted():
    graph, parameters = create(ADAPTED, jax.random.key(0))
    return graph, noisy(parameters)


def test_a_merged_model_computes_the_same(adapted):
    graph, parameters = adapted
    plain, merged = lora.merge(parameters, ADAPTED)
    assert plain == PLAIN
    assert jax.tree.structure(merged) == jax.tree.structure(abstract(PLAIN)[1])
    with_adapters = logits(graph, parameters)
    close(logits(abstract(PLAIN)[0], merged), with_adapters)
    assert np.abs(with_adapters - logits(graph, lora.base(parameters))).max() > 0.1


def test_the_reference_policy_is_the_base(adapted):
    graph, parameters = adapted
    frozen = lora.split(parameters)[1]
    close(logits(graph, lora.base(parameters)), logits(abstract(PLAIN)[0], frozen))


def test_only_the_b_of_a_new_adapter_is_zero():
    trained, _ = lora.split(create(ADAPTED, jax.random.key(0))[1])
    for path, variable in nnx.to_flat_state(trained):
        assert np.all((np.asarray(variable[...]) == 0) == (path[-1] == "lora_b")), path


def test_only_adapters_are_trained_and_each_moves_the_logits(adapted):
    graph, parameters = adapted
    trained, frozen = lora.split(parameters)
    gradients = jax.grad(lambda t: (logits(graph, t, frozen) ** 2).sum())(trained)
    flat = nnx.to_flat_state(gradients)
    assert len(flat) == 2 * len(ADAPTED.lora.targets)
    for path, variable in flat:
        assert path[-1] in ("lora_a", "lora_b") and np.abs(np.asarray(variable[...])).max() > 0, path


def test_without_adapters_everything_is_trained_and_nothing_merged():
    _, parameters = abstract(PLAIN)
    trained, frozen = lora.split(parameters)
    assert jax.tree.structure(trained) == jax.tree.structure(parameters) and not jax.tree.leaves(frozen)
    assert lora.merge(parameters, PLAIN) == (PLAIN, parameters)


def test_the_base_is_stored_as_it_is_computed_with_and_the_adapters_in_float32():
    _, parameters = abstract(dataclasses.replace(ADAPTED, dtype=jnp.bfloat16))
    trained, frozen = lora.split(parameters)
    assert {leaf.dtype for leaf in jax.tree.leaves(trained)} == {jnp.dtype(jnp.float32)}
    for path, variable in nnx.to_flat_state(frozen):
        assert variable.dtype == (jnp.float32 if "norm" in path[-2] else jnp.bfloat16), path


def test_adapters_do_not_depend_on_the_mesh(adapted):
    mesh = make_mesh(4, 2)
    graph, spread = abstract(ADAPTED, mesh)[0], shard_parameters(adapted[1], mesh)
    close(logits(graph, spread), logits(*adapted))
    assert "tp" in spread["layers"]["mlp"]["down_proj"]["lora_a"][...].sharding.spec
    _, merged = lora.merge(spread, ADAPTED)
    weight = "layers", "mlp", "down_proj", "weight"
    assert (
        dict(nnx.to_flat_state(merged))[weight][...].sharding == dict(nnx.to_flat_state(spread))[weight][...].sharding
    )


def test_adapters_are_saved_as_peft_names_them_and_come_back_bit_for_bit(adapted, tmp_path):
    _, parameters = adapted
    lora.save(tmp_path, ADAPTED.lora, parameters, base_model="Qwen/Qwen3-4B")
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    assert len(tensors) == 2 * 4 * 2  # A and B, of four targets, in two layers
    a = tensors["base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"]
    b = tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"]
    np.testing.assert_array_equal(a, np.asarray(parameters["layers"]["mlp"]["up_proj"]["lora_a"][...])[1].T)
    assert a.shape == (4, 32) and b.shape == (32, 4)
    raw = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (raw["peft_type"], raw["r"], raw["lora_alpha"]) == ("LORA", 4, 8.0)
    assert raw["target_modules"] == ["q_proj", "o_proj", "up_proj", "down_proj"]
    assert lora.read_config(tmp_path) == ADAPTED.lora
    mesh = make_mesh(4, 2)
    for shapes in (abstract(ADAPTED)[1], abstract(ADAPTED, mesh)[1]):
        again = lora.load(tmp_path, lora.split(shapes)[0])
        jax.tree.map(np.testing.assert_array_equal, again, lora.split(parameters)[0])
    assert "tp" in again["layers"]["mlp"]["down_proj"]["lora_a"][...].sharding.spec


def test_every_misfit_of_an_adapter_is_named_at_once(adapted, tmp_path):
    _, parameters = adapted
    lora.save(tmp_path, ADAPTED.lora, parameters)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight".format
    tensors[name(7, "A")] = tensors.pop(name(0, "A"))
    tensors[name(1, "B")] = tensors[name(1, "B")][:3].copy()
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ConfigError) as error:
        lora.load(tmp_path, lora.split(parameters)[0])
    for part in (f"{name(0, 'A')} is missing", f"{name(7, 'A')} is not of this model", "has shape (3, 4), not (32, 4)"):
        assert part in str(error.value)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(ConfigError, match="cannot read it"):
        lora.load(tmp_path, lora.split(parameters)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "not use_dora"),
        ({"bias": "all"}, "without bias"),
        ({"peft_type": "IA3"}, "plain LoRA"),
        ({"target_modules": ["lm_head"]}, "target_modules"),
        ({"r": None}, "cannot read it"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(adapted, tmp_path, change, message):
    lora.save(tmp_path, ADAPTED.lora, adapted[1])
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=message):
        lora.read_config(tmp_path)

"""The model against the reference implementation's numbers, and against itself run in other ways."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rl.qwen3 import weights
from rl.qwen3.model import Qwen3, Qwen3Config, causal_mask, token_positions
from rl.qwen3.sharding import make_mesh, shard_batch, shard_parameters

DATA = Path(__file__).parent / "data"
TINY = Qwen3Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rope_theta=1e6,
)


def all_logits(model: Qwen3, tokens: jax.Array, valid: jax.Array) -> jax.Array:
    hidden, _ = model(tokens, token_positions(valid), causal_mask(valid))
    return model.logits(hidden)


def test_logits_equal_the_reference_implementation_on_left_padded_prompts():
    shape = weights.read_config(DATA / "qwen3", jnp.float32)
    graph, parameters = weights.load(DATA / "qwen3", shape, lambda part: part)
    golden = np.load(DATA / "qwen3_logits.npz")
    logits = all_logits(nnx.merge(graph, parameters), golden["tokens"], golden["mask"])
    where = golden["mask"]
    np.testing.assert_allclose(np.asarray(logits)[where], golden["logits"][where], rtol=1e-4, atol=2e-5)
    assert np.abs(golden["logits"][where]).max() > 1  # not a comparison of zeros


@pytest.mark.parametrize("tied", [True, False])
def test_no_parameter_is_zero_initialised(tied):
    shape = Qwen3Config(**{**vars(TINY), "tie_word_embeddings": tied})
    parameters = nnx.split(Qwen3(shape, nnx.Rngs(0)))[1]
    for path, variable in nnx.to_flat_state(parameters):
        assert np.all(np.asarray(variable[...]) != 0), path


def test_every_parameter_moves_the_logits():
    graph, parameters = nnx.split(Qwen3(TINY, nnx.Rngs(0)))
    tokens = jax.random.randint(jax.random.key(1), (2, 9), 0, TINY.vocab_size)
    valid = jnp.ones((2, 9), bool)
    gradients = jax.grad(lambda p: (all_logits(nnx.merge(graph, p), tokens, valid) ** 2).sum())(parameters)
    for path, variable in nnx.to_flat_state(gradients):
        assert np.abs(np.asarray(variable[...])).max() > 0, path


def test_a_token_does_not_see_what_comes_after_it():
    model = Qwen3(TINY, nnx.Rngs(0))
    tokens = jax.random.randint(jax.random.key(1), (1, 8), 0, TINY.vocab_size)
    valid = jnp.ones((1, 8), bool)
    before = all_logits(model, tokens, valid)
    after = all_logits(model, tokens.at[0, 6].add(1), valid)
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert np.abs(np.asarray(before - after))[:, 6:].max() > 1e-3


def test_padding_changes_nothing():
    model = Qwen3(TINY, nnx.Rngs(0))
    tokens = jax.random.randint(jax.random.key(1), (1, 6), 0, TINY.vocab_size)
    bare = all_logits(model, tokens, jnp.ones((1, 6), bool))
    padded = jnp.concatenate([jnp.full((1, 3), 7), tokens, jnp.full((1, 2), 9)], axis=1)
    valid = jnp.array([[False] * 3 + [True] * 6 + [False] * 2])
    np.testing.assert_allclose(all_logits(model, padded, valid)[:, 3:9], bare, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("fsdp", "tp"), [(8, 1), (4, 2), (2, 2)])
def test_logits_and_gradients_do_not_depend_on_the_mesh(fsdp, tp):
    graph, parameters = nnx.split(Qwen3(TINY, nnx.Rngs(0)))
    tokens = np.asarray(jax.random.randint(jax.random.key(1), (8, 6), 0, TINY.vocab_size))
    valid = np.ones((8, 6), bool)

    @jax.jit
    def loss_and_gradient(parameters, tokens, valid):
        def loss(p):
            logits = all_logits(nnx.merge(graph, p), tokens, valid)
            return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1).mean()

        return jax.value_and_grad(loss)(parameters)

    alone = loss_and_gradient(parameters, tokens, valid)
    mesh = make_mesh(fsdp, tp)
    spread = shard_parameters(parameters, mesh)
    assert len(spread["layers"]["mlp"]["gate_proj"][...].sharding.device_set) == fsdp * tp
    assert not spread["layers"]["mlp"]["gate_proj"][...].sharding.is_fully_replicated
    together = loss_and_gradient(spread, *shard_batch((tokens, valid), mesh))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), alone, together)

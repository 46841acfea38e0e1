"""The supervised step against cross-entropy by hand; its examples are tested with the run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rl import grpo, sft
from rl.logprobs import join, take
from rl.qwen3 import lora
from rl.qwen3.model import Qwen3Config, abstract, create, token_positions
from rl.qwen3.sharding import make_mesh, rows_for, shard_batch, shard_parameters

SHAPE = Qwen3Config(
    vocab_size=16,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    rope_theta=1e4,
)


@pytest.fixture(scope="module")
def parameters():
    return create(SHAPE, jax.random.key(0))[1]


def examples():
    """Six answers, each the prompt said backwards."""
    prompts = [[1, 2], [3], [4, 5, 6], [7, 8], [9], [10, 11, 12]]
    answers, mask = np.zeros((6, 3), np.int32), np.arange(3) < np.array([len(p) for p in prompts])[:, None]
    answers[mask] = [token for prompt in prompts for token in reversed(prompt)]
    return join(prompts, 3, answers, mask)


def cross_entropy(parameters, data):
    """Over all logits of all positions."""
    model = nnx.merge(abstract(SHAPE)[0], parameters)
    logprobs = jax.nn.log_softmax(model.logits(model(data.tokens, token_positions(data.valid), data.valid)))
    rows, at = np.arange(6)[:, None], examples().starts[:, None] + np.arange(3)
    return -(logprobs[rows, at - 1, data.tokens[rows, at]] * data.mask).sum() / data.mask.sum()


def test_a_step_goes_down_the_mean_cross_entropy_and_the_next_compiles_nothing(parameters):
    mesh, data, optimizer = make_mesh(4, 2), examples(), optax.sgd(1.0)
    value, gradient = jax.jit(jax.value_and_grad(cross_entropy))(parameters, data)
    trained, frozen = lora.split(shard_parameters(jax.tree.map(jnp.copy, parameters), mesh))
    batch = shard_batch(take(data, np.arange(6), rows_for(6, mesh)), mesh)  # eight rows on four devices, six count
    state = grpo.init(optimizer, trained, mesh)
    graph, _ = abstract(SHAPE, mesh)
    after, state, loss = sft.update(graph, optimizer, trained, frozen, state, batch, mesh=mesh)
    assert float(loss) == pytest.approx(float(value), rel=1e-5)
    for old, new, g in zip(*map(jax.tree.leaves, (parameters, after, gradient)), strict=True):
        np.testing.assert_allclose(np.asarray(old) - np.asarray(new), g, rtol=0, atol=1e-5 * np.abs(g).max())

    programs = sft.update._cache_size()
    *_, again = sft.update(graph, optimizer, after, frozen, state, batch, mesh=mesh)
    assert float(again) < float(loss)
    assert sft.update._cache_size() == programs

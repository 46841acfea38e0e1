"""The supervised step against cross-entropy by hand, and the order of its steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from shapes import SMALL, shard_parameters

from rl.config import WarmStartSection
from rl.learn import supervised
from rl.learn.optimizer import init_state
from rl.model import lora
from rl.model.decoder import abstract, create, token_positions
from rl.model.logprobs import join, take
from rl.model.sharding import make_mesh, rows_for, shard_batch


@pytest.fixture(scope="module")
def parameters():
    return create(SMALL, jax.random.key(0))[1]


def examples():
    """Six answers, each the prompt said backwards."""
    prompts = [[1, 2], [3], [4, 5, 6], [7, 8], [9], [10, 11, 12]]
    answers, mask = np.zeros((6, 3), np.int32), np.arange(3) < np.array([len(p) for p in prompts])[:, None]
    answers[mask] = [token for prompt in prompts for token in reversed(prompt)]
    return join(prompts, 3, answers, mask)


def cross_entropy(parameters, data):
    """Over all logits of all positions."""
    model = nnx.merge(abstract(SMALL)[0], parameters)
    logprobs = jax.nn.log_softmax(model.logits(model(data.tokens, token_positions(data.valid), data.valid)))
    rows, at = np.arange(6)[:, None], examples().starts[:, None] + np.arange(3)
    return -(logprobs[rows, at - 1, data.tokens[rows, at]] * data.mask).sum() / data.mask.sum()


@pytest.mark.heavy
def test_a_step_goes_down_the_mean_cross_entropy_and_the_next_compiles_nothing(parameters):
    mesh, data, optimizer = make_mesh(4, 2), examples(), optax.sgd(1.0)
    value, gradient = jax.jit(jax.value_and_grad(cross_entropy))(parameters, data)
    trained, frozen = lora.split(shard_parameters(jax.tree.map(jnp.copy, parameters), mesh))
    batch = shard_batch(take(data, np.arange(6), rows_for(6, mesh)), mesh)  # eight rows on four devices, six count
    state = init_state(optimizer, trained, mesh)
    graph, _ = abstract(SMALL, mesh)
    after, state, found = supervised.update(graph, optimizer, trained, frozen, state, batch, mesh=mesh)
    assert float(found["loss"]) == pytest.approx(float(value), rel=1e-5)
    assert float(found["gradient_norm"]) == pytest.approx(float(optax.global_norm(gradient)), rel=1e-5)
    assert float(found["update_skipped"]) == 0
    for old, new, g in zip(*map(jax.tree.leaves, (parameters, after, gradient)), strict=True):
        np.testing.assert_allclose(np.asarray(old) - np.asarray(new), g, rtol=0, atol=1e-5 * np.abs(g).max())

    programs = supervised.update._cache_size()
    *_, again = supervised.update(graph, optimizer, after, frozen, state, batch, mesh=mesh)
    assert float(again["loss"]) < float(found["loss"])
    assert supervised.update._cache_size() == programs


def test_the_engineers_examples_come_first_and_then_at_every_so_many_steps():
    settings = WarmStartSection(engineer_first=2, engineer_every=3)
    assert [step for step in range(10) if settings.is_of_engineer(step)] == [0, 1, 3, 6, 9]

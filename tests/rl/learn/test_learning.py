"""Sampling, advantages, loss and updates together: a small causal Qwen3 comes to say what is rewarded."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from shapes import SMALL

from rl.config import GRPOSection
from rl.config.choices import Advantage
from rl.learn import grpo
from rl.model.decoder import create, token_positions
from rl.model.logprobs import join
from rl.model.sharding import make_mesh

ONE = make_mesh(1, 1)


@functools.partial(jax.jit, static_argnames=("graph",))
def say_three(graph, parameters, prompts, key):
    """Samples three tokens after each prompt of two; the tokens, and their log-probabilities from all logits."""
    model, tokens = nnx.merge(graph, parameters), jnp.pad(prompts, ((0, 0), (0, 3)))
    valid, logprobs = jnp.ones(tokens.shape, bool), []
    for t in range(2, 5):
        logits = jax.nn.log_softmax(model.logits(model(tokens, token_positions(valid), valid)[:, t - 1]))
        drawn = jax.random.categorical(jax.random.fold_in(key, t), logits)
        tokens = tokens.at[:, t].set(drawn)
        logprobs.append(jnp.take_along_axis(logits, drawn[:, None], axis=-1))
    return tokens[:, 2:], jnp.concatenate(logprobs, axis=1)


@pytest.mark.heavy
def test_a_policy_learns_to_say_what_is_rewarded():
    graph, parameters = create(SMALL, jax.random.key(0), ONE)
    adam, settings = optax.adam(1e-2), GRPOSection(micro_batch=8)
    state = grpo.init(adam, parameters, ONE)
    prompts, groups = np.repeat(np.arange(8, dtype=np.int32).reshape(4, 2), 8, axis=0), np.arange(32) // 8
    shares = []
    for i in range(25):
        said, logprobs = map(np.asarray, say_three(graph, parameters, prompts, jax.random.key(i)))
        wanted = (said == 7).mean(axis=1).astype(np.float32)
        shares.append(wanted.mean())
        data = grpo.Batch(
            sequences=join(prompts.tolist(), 2, said, np.ones_like(said, bool)),
            sampler_logprobs=logprobs,
            advantages=np.repeat(grpo.advantages(wanted, groups, Advantage.GROUP_STD)[:, None], 3, axis=1),
        )
        parameters, state, metrics = grpo.update(graph, adam, parameters, state, data, ONE, settings, 3, lambda: None)
        if metrics["gradient_norm"]:
            assert metrics["mismatch_max"] < 1e-4  # who samples and who trains agree
    assert shares[0] < 0.2
    assert np.mean(shares[-3:]) > 0.7

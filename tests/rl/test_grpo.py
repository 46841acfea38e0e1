"""Advantages and loss by hand, gradients by finite differences of nothing but the formula, and a policy that learns."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rl import grpo
from rl.config import GRPOSection
from rl.qwen3.model import Qwen3, Qwen3Config
from rl.sampler import generate


def batch(old, advantages, mask=None):
    old = np.asarray(old, np.float32)
    mask = np.ones_like(old, bool) if mask is None else np.asarray(mask)
    nothing = np.zeros((len(old), 1), np.int32)
    return grpo.Batch(
        tokens=nothing, valid=nothing == 0, mask=mask, old_logprobs=old, advantages=np.asarray(advantages, np.float32)
    )


def test_advantages_are_standard_scores_within_each_group():
    rewards = np.array([[0.0, 0.0, 1.0, 1.0], [3.0, 1.0, 1.0, 3.0]], np.float32)
    np.testing.assert_allclose(
        grpo.group_advantages(rewards), [[-1, -1, 1, 1], [1, -1, -1, 1]], atol=1e-3
    )  # population standard deviations .5 and 1


def test_a_group_of_equals_teaches_nothing():
    advantages = grpo.group_advantages(np.array([[0.3, 0.3, 0.3]], np.float32))
    np.testing.assert_array_equal(advantages, 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 1.0, -1.1),
        (1.5, 1.0, -1.28),  # clipped above
        (0.5, 1.0, -0.5),  # a good token that became unlikely is not clipped
        (0.5, -1.0, 0.8),  # clipped below
        (1.5, -1.0, 1.5),  # a bad token that became likely is not clipped
    ],
)
def test_clipped_loss_of_one_token(ratio, advantage, expected):
    loss, _ = grpo.clipped_loss(jnp.log(jnp.array([[ratio]])), batch([[0.0]], [advantage]), 0.2, 0.28)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_loss_sums_over_tokens_not_over_answers():
    logprobs = jnp.zeros((2, 3))
    data = batch(np.zeros((2, 3)), [1.0, -2.0], [[True, True, True], [True, False, False]])
    loss, metrics = grpo.clipped_loss(logprobs, data, 0.2, 0.28)
    assert float(loss) == pytest.approx(-(3 * 1.0 + 1 * -2.0))
    assert float(metrics["ratio"]) == pytest.approx(4.0)
    assert float(metrics["clipped"]) == 0.0


def test_the_gradient_on_policy_is_the_policy_gradient():
    logprobs = jnp.array([[-1.0, -2.0], [-0.5, -3.0]])
    data = batch(logprobs, [1.5, -0.5], [[True, True], [True, False]])
    gradient = jax.grad(lambda x: grpo.clipped_loss(x, data, 0.2, 0.28)[0])(logprobs)
    np.testing.assert_allclose(gradient, [[-1.5, -1.5], [0.5, 0.0]], rtol=1e-6)


def test_masked_tokens_may_hold_anything():
    wild = jnp.array([[0.0, 1e4]])
    loss, _ = grpo.clipped_loss(wild, batch([[0.0, -1e4]], [1.0], [[True, False]]), 0.2, 0.28)
    assert float(loss) == pytest.approx(-1.0)


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


def sampled_batch(graph, parameters, prompts, key, advantages=None):
    """Answers of three tokens, rewarded by how often they say 7."""
    valid = np.ones_like(prompts, bool)
    rollout = generate(*(graph, parameters, prompts, valid, key, 1.0), samples=8, max_new_tokens=3, stop_ids=(15,))
    rollout = jax.tree.map(np.asarray, rollout)
    wanted = ((rollout.tokens == 7) & rollout.mask).sum(axis=-1)
    if advantages is None:
        advantages = grpo.group_advantages(wanted.astype(np.float32).reshape(-1, 8)).reshape(-1)
    data = grpo.Batch(
        tokens=np.concatenate([np.repeat(prompts, 8, axis=0), rollout.tokens], axis=1),
        valid=np.concatenate([np.repeat(valid, 8, axis=0), rollout.mask], axis=1),
        mask=rollout.mask,
        old_logprobs=rollout.logprobs,
        advantages=advantages,
    )
    return data, wanted.mean() / 3


def step(graph, parameters, data, micro_batch, optimizer=None, state=None):
    """One update of a copy of the parameters, which are donated."""
    optimizer = optimizer or optax.sgd(1.0)
    copy = jax.tree.map(jnp.copy, parameters)
    settings = GRPOSection(micro_batch=micro_batch)
    return grpo.update(
        graph, optimizer, copy, optimizer.init(copy) if state is None else state, data, lambda micro: micro, settings
    )


@pytest.mark.parametrize("micro_batch", [1, 5, 8, 64])
def test_micro_batches_add_up_to_the_gradient_of_the_mean_over_all_answer_tokens(micro_batch):
    graph, parameters = nnx.split(Qwen3(SHAPE, nnx.Rngs(0)))
    prompts = np.arange(8, dtype=np.int32).reshape(4, 2)
    advantages = np.random.default_rng(0).normal(size=32).astype(np.float32)
    advantages[8:16] = 0  # a group of equals: skipped, but its tokens count in the mean
    data, _ = sampled_batch(graph, parameters, prompts, jax.random.key(0), advantages)

    def loss(parameters):
        logprobs, _ = grpo.answer_logprobs(nnx.merge(graph, parameters), data.tokens, data.valid, 3, 1.0)
        ratio = jnp.exp(logprobs - data.old_logprobs)
        return -(ratio * data.advantages[:, None] * data.mask).sum() / data.mask.sum()

    expected = jax.grad(loss)(parameters)
    after, _, metrics = step(graph, parameters, data, micro_batch)
    found = jax.tree.map(lambda a, b: a - b, parameters, after)  # plain gradient descent at rate 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), found, expected)
    assert metrics["gradient_norm"] == pytest.approx(float(optax.global_norm(expected)), rel=1e-3)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-4)  # sampler and trainer agree


def test_nothing_to_learn_changes_nothing():
    graph, parameters = nnx.split(Qwen3(SHAPE, nnx.Rngs(0)))
    prompts = np.arange(4, dtype=np.int32).reshape(2, 2)
    data, _ = sampled_batch(graph, parameters, prompts, jax.random.key(0), np.zeros(16, np.float32))
    after, _, metrics = step(graph, parameters, data, 8)
    jax.tree.map(np.testing.assert_array_equal, parameters, after)
    assert metrics["gradient_norm"] == 0


def test_a_policy_learns_to_say_what_is_rewarded():
    graph, parameters = nnx.split(Qwen3(SHAPE, nnx.Rngs(0)))
    optimizer = optax.adam(1e-2)
    state = optimizer.init(parameters)
    prompts = np.arange(8, dtype=np.int32).reshape(4, 2)
    shares = []
    for i in range(25):
        data, share = sampled_batch(graph, parameters, prompts, jax.random.key(i))
        shares.append(share)
        parameters, state, _ = step(graph, parameters, data, 8, optimizer, state)
    assert np.mean(shares[:3]) < 0.2
    assert np.mean(shares[-3:]) > 0.7

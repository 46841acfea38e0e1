"""Advantages and loss by hand, gradients by finite differences of nothing but the formula, and a policy that learns."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rl import grpo
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


def test_the_loss_is_the_mean_over_all_tokens_of_the_batch_not_over_answers():
    logprobs = jnp.zeros((2, 3))
    data = batch(np.zeros((2, 3)), [1.0, -2.0], [[True, True, True], [True, False, False]])
    loss, metrics = grpo.clipped_loss(logprobs, data, 0.2, 0.28)
    assert float(loss) == pytest.approx(-(3 * 1.0 + 1 * -2.0) / 4)
    assert float(metrics["ratio"]) == pytest.approx(1.0)
    assert float(metrics["clipped"]) == 0.0


def test_the_gradient_on_policy_is_the_policy_gradient():
    logprobs = jnp.array([[-1.0, -2.0], [-0.5, -3.0]])
    data = batch(logprobs, [1.5, -0.5], [[True, True], [True, False]])
    gradient = jax.grad(lambda x: grpo.clipped_loss(x, data, 0.2, 0.28)[0])(logprobs)
    np.testing.assert_allclose(gradient, [[-0.5, -0.5], [0.5 / 3, 0.0]], rtol=1e-6)


def test_masked_tokens_may_hold_anything():
    wild = jnp.array([[0.0, 1e4]])
    loss, _ = grpo.clipped_loss(wild, batch([[0.0, -1e4]], [1.0], [[True, False]]), 0.2, 0.28)
    assert float(loss) == pytest.approx(-1.0)


def test_a_policy_learns_to_say_what_is_rewarded():
    shape = Qwen3Config(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        rope_theta=1e4,
    )
    graph, parameters = nnx.split(Qwen3(shape, nnx.Rngs(0)))
    optimizer = optax.adam(1e-2)
    state = optimizer.init(parameters)
    prompts = np.arange(8, dtype=np.int32).reshape(4, 2)
    valid = np.ones_like(prompts, bool)
    shares = []
    for step in range(25):
        rollout = jax.tree.map(
            np.asarray,
            generate(
                graph, parameters, prompts, valid, jax.random.key(step), 1.0, samples=8, max_new_tokens=3, stop_ids=(15,)
            ),
        )
        wanted = ((rollout.tokens == 7) & rollout.mask).sum(axis=-1)
        shares.append(wanted.mean() / 3)
        rewards = wanted.astype(np.float32).reshape(4, 8)
        data = grpo.Batch(
            tokens=np.concatenate([np.repeat(prompts, 8, axis=0), rollout.tokens], axis=1),
            valid=np.concatenate([np.repeat(valid, 8, axis=0), rollout.mask], axis=1),
            mask=rollout.mask,
            old_logprobs=rollout.logprobs,
            advantages=grpo.group_advantages(rewards).reshape(-1),
        )
        parameters, state, metrics = grpo.update(
            graph, optimizer, parameters, state, data, clip_low=0.2, clip_high=0.28, temperature=1.0
        )
        assert float(metrics["ratio"]) == pytest.approx(1.0, abs=1e-4)  # sampler and trainer agree
    assert np.mean(shares[:3]) < 0.2
    assert np.mean(shares[-3:]) > 0.7

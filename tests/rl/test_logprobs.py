"""Log-probabilities in blocks against log_softmax of all logits, and sequences against single rows without padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.model import logprobs
from rl.model.sharding import make_mesh, shard_batch


def plain(hidden, head, targets, temperature):
    full = jax.nn.log_softmax(jnp.einsum("BTD,VD->BTV", hidden, head) / temperature)
    return jnp.take_along_axis(full, targets[..., None], axis=-1)[..., 0], -(jnp.exp(full) * full).sum(axis=-1)


def arguments(batch, time, width, vocabulary):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(batch, time, width)).astype(np.float32)
    head = rng.normal(size=(vocabulary, width)).astype(np.float32) * 2 * width**-0.5
    return hidden, head, rng.integers(0, vocabulary, (batch, time)).astype(np.int32)


def gradients(function, hidden, head, targets, temperature, **rest):
    """Of a sum in which every log-probability and every entropy has a weight of its own."""
    weights = np.random.default_rng(1).normal(size=(2, *targets.shape)).astype(np.float32)

    def loss(hidden, head):
        logprobs, entropy = function(hidden, head, targets, temperature, **rest)
        return (logprobs * weights[0] + entropy * weights[1]).sum()

    return jax.jit(jax.grad(loss, argnums=(0, 1)))(hidden, head)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("time", "vocabulary", "block_bytes", "temperature"),
    [
        (7, 64, 2**26, 1.0),  # one block
        (1, 64, 2**7, 0.6),
        (7, 64, 2**9, 1.5),  # 16 blocks
        (5, 51, 2**8, 0.6),  # that 16 does not divide
        (5, 51, 1, 1.0),  # as many as there may be, most of two tokens
    ],
)
def test_blocks_of_the_vocabulary_give_the_log_softmax_of_all_of_it(
    monkeypatch, time, vocabulary, block_bytes, temperature
):
    monkeypatch.setattr(logprobs, "BLOCK_BYTES", block_bytes)
    given = (*arguments(3, time, 8, vocabulary), temperature)
    for found, expected in zip(logprobs.token_logprobs(*given), plain(*given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)
    for found, expected in zip(gradients(logprobs.token_logprobs, *given), gradients(plain, *given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=5e-6)


def test_memory_stays_far_below_that_of_all_logits(monkeypatch):
    monkeypatch.setattr(logprobs, "BLOCK_BYTES", 2**22)
    given = arguments(4, 256, 16, 32_768)
    all_logits = 4 * 256 * 32_768 * 4

    def loss(hidden, head):
        return sum(x.sum() for x in logprobs.token_logprobs(hidden, head, given[2], 1.0))

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*given[:2]).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < all_logits / 6


def test_a_frozen_head_costs_no_gradient(monkeypatch):
    monkeypatch.setattr(logprobs, "BLOCK_BYTES", 2**18)
    hidden, head, targets = arguments(2, 16, 64, 32_768)
    loss = jax.jit(jax.grad(lambda hidden: logprobs.token_logprobs(hidden, head, targets, 1.0)[0].sum()))
    assert loss.lower(hidden).compile().memory_analysis().temp_size_in_bytes < head.nbytes / 2


def test_a_mesh_gives_the_same(monkeypatch):
    monkeypatch.setattr(logprobs, "BLOCK_BYTES", 2**9)
    mesh = make_mesh(2, 4)
    hidden, head, targets = arguments(8, 6, 16, 256)
    given = (hidden, head, targets, 0.8)
    placed = *shard_batch((hidden, head, targets), mesh), 0.8
    for found, expected in zip(
        jax.jit(lambda *x: logprobs.token_logprobs(*x, 0.8, mesh))(*placed[:3]), plain(*given), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)
    found = gradients(logprobs.token_logprobs, *placed, mesh=mesh)
    for mine, theirs in zip(found, gradients(plain, *given), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=5e-6)


def test_an_answer_follows_its_prompt_and_padding_comes_last():
    rng = np.random.default_rng(2)
    prompts = [rng.integers(0, 24, n).tolist() for n in (5, 1, 3)]
    answers, lengths = rng.integers(0, 24, (3, 4)).astype(np.int32), np.array([4, 2, 1])
    joined = logprobs.join(prompts, 6, answers, np.arange(4) < lengths[:, None])
    assert joined.tokens.shape == joined.valid.shape == (3, 10)
    for i, prompt in enumerate(prompts):
        row = [*prompt, *answers[i, : lengths[i]]]
        np.testing.assert_array_equal(joined.tokens[i, : len(row)], row)
        np.testing.assert_array_equal(joined.valid[i], np.arange(10) < len(row))
        assert joined.starts[i] == len(prompt)

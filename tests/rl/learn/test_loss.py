"""Every loss beside its formula in float64 and with what it may not read; and the divergence's gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import losses
from rl.config import LearnSection
from rl.learn.loss import Batch, clipped, policy_loss
from rl.model.logprobs import Sequences

PLAIN = LearnSection()


def batch(advantages, old=None, sampler=None, reference=None, mask=None):
    """Answers with these advantages; log-probabilities of the sampler are those of the trainer unless given."""
    shape = next(np.shape(x) for x in (old, sampler, reference, mask) if x is not None)
    nothing = np.zeros((shape[0], 1), np.int32)
    mask = np.ones(shape, bool) if mask is None else np.array(mask)
    sampler = np.zeros(shape) if sampler is None and old is None else old if sampler is None else sampler
    return Batch(
        sequences=Sequences(tokens=nothing, valid=nothing == 0, starts=nothing[:, 0], mask=mask),
        sampler_logprobs=np.asarray(sampler, np.float32),
        advantages=np.broadcast_to(np.asarray(advantages, np.float32)[:, None], shape),
        old_logprobs=None if old is None else np.asarray(old, np.float32),
        reference_logprobs=None if reference is None else np.asarray(reference, np.float32),
    )


evaluate_jitted = jax.jit(jax.value_and_grad(policy_loss, argnums=(0, 1), has_aux=True), static_argnames=("settings",))


def evaluate(logprobs, data, settings=PLAIN, entropy=None):
    """(loss, what describes it, gradient by the log-probabilities, gradient by the entropies)."""
    logprobs = np.asarray(logprobs, np.float32)
    entropy = np.zeros_like(logprobs) if entropy is None else np.asarray(entropy, np.float32)
    (loss, sums), (by_logprobs, by_entropy) = evaluate_jitted(logprobs, entropy, data, settings=settings)
    return float(loss), {k: float(v) for k, v in sums.items()}, np.asarray(by_logprobs), np.asarray(by_entropy)


def test_without_old_log_probabilities_the_gradient_is_that_of_the_policy_itself():
    logprobs = [[-1.0, -2.0], [-0.5, -3.0]]
    mask = [[True, True], [True, False]]
    itself = evaluate(logprobs, batch([1.5, -0.5], sampler=logprobs, mask=mask))
    given = evaluate(logprobs, batch([1.5, -0.5], old=logprobs, mask=mask))
    np.testing.assert_allclose(itself[2], [[-1.5, -1.5], [0.5, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(itself[2], given[2])
    assert itself[:2] == given[:2]


def test_expected_gradient_of_the_divergence_over_all_tokens_of_a_softmax():
    """It is the gradient of the divergence of the reference from the policy."""
    logits, reference = jnp.array([0.3, -1.0, 0.8, 2.0]), jax.nn.log_softmax(jnp.array([1.0, 0.2, -0.5, 0.4]))
    settings = LearnSection(kl_coefficient=1.0)
    share = jax.nn.softmax(logits)  # each token as often as the policy draws it, which is not differentiated

    def expected(logits):
        def of_token(logprob, reference):
            data = batch([0.0], reference=[[0.0]]).replace(reference_logprobs=reference[None, None])
            return policy_loss(logprob[None, None], jnp.zeros((1, 1)), data, settings)[0]

        return (share * jax.vmap(of_token)(jax.nn.log_softmax(logits), reference)).sum()

    def divergence(logits):
        return (jnp.exp(reference) * (reference - jax.nn.log_softmax(logits))).sum()

    gradient = jax.jit(jax.grad(expected))(logits)
    np.testing.assert_allclose(gradient, jax.grad(divergence)(logits), atol=1e-6)
    assert np.abs(gradient).max() > 0.01


def test_entropy_is_a_bonus():
    data = batch([1.0, 1.0], old=np.zeros((2, 2)), mask=[[True, True], [True, False]])
    settings = LearnSection(entropy_coefficient=0.5)
    loss, sums, _, gradient = evaluate(np.zeros((2, 2)), data, settings, entropy=[[0.1, 0.2], [0.4, 9.0]])
    assert loss == pytest.approx(-3 - 0.5 * 0.7)
    assert sums["entropy"] == pytest.approx(0.7)
    np.testing.assert_allclose(gradient, [[-0.5, -0.5], [-0.5, 0]])


LOW, HIGH = 0.05, 0.08


def formula(name, new, old, sampler, advantage):
    """The losses of an answer's tokens, from the papers, and the gradient of their sum; float64 ``[T]``."""

    def bounded(ratio):
        gain, most = ratio * advantage, np.clip(ratio, 1 - LOW, 1 + HIGH) * advantage
        return -np.minimum(gain, most), (gain <= most) * -gain

    ratio, mean = np.exp(new - old), np.full(len(new), np.exp(np.mean(new - old)))
    weight = np.exp(old - sampler)
    match name:
        case "clipped":
            return bounded(ratio)
        case "gspo":
            value, slope = bounded(mean)
            return value, np.full(len(new), slope.mean())  # each token moves the mean of all by its share
        case "gspo_token":
            return bounded(mean)
        case "cispo":
            slope = -np.clip(ratio, 1 - LOW, 1 + HIGH) * advantage
            return slope * new, slope
        case "dppo":
            change = np.exp(new) - np.exp(sampler)
            keep = ~((advantage > 0) & (change > HIGH) | (advantage < 0) & (change < -LOW))
            value = keep * np.exp(new - sampler) * -advantage
            return value, value
        case "truncated":
            weight = np.minimum(weight, 2)
        case "truncated_answer":
            weight = np.minimum(weight.prod(), 2)
        case "icepop":
            weight = weight * (weight >= 0.5) * (weight <= 5)
    return tuple(weight * part for part in bounded(ratio))


LOSSES = {"clipped": clipped} | {
    name: getattr(losses, name)
    for name in ("gspo", "gspo_token", "cispo", "dppo", "truncated", "truncated_answer", "icepop")
}


def policy_loss_of(name, monkeypatch):
    monkeypatch.setattr("rl.learn.loss.find_loss", lambda _: LOSSES[name])
    settings = LearnSection(clip_low=LOW, clip_high=HIGH)
    return jax.value_and_grad(functools.partial(policy_loss, settings=settings), has_aux=True)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_those_of_their_formulas_in_float64(name, monkeypatch):
    rng = np.random.default_rng(3)
    mask = np.arange(9) < np.array([9, 4, 1, 0, 7, 3])[:, None]
    old = rng.uniform(-3, -0.8, mask.shape)
    new = old + rng.normal(0, 0.5, mask.shape) * (rng.random(mask.shape) < 0.8) + np.linspace(-0.4, 0.4, 6)[:, None]
    new, sampler = np.minimum(new, -1e-3), old + rng.normal(0, 0.6, mask.shape)
    advantages = rng.normal(0, 1, mask.shape)
    data = batch(np.zeros(6), old=np.where(mask, old, -np.inf), sampler=np.where(mask, sampler, np.nan), mask=mask)
    data = data.replace(advantages=np.where(mask, advantages, np.nan).astype(np.float32))
    given = jnp.asarray(np.where(mask, new, np.inf), jnp.float32)
    (loss, sums), gradient = policy_loss_of(name, monkeypatch)(given, jnp.zeros(mask.shape), data)

    total, expected = 0.0, np.zeros(mask.shape)
    for row, length in enumerate(mask.sum(axis=1)):
        if length:
            value, slope = formula(name, *(x[row, :length] for x in (new, old, sampler, advantages)))
            total += value.sum()
            expected[row, :length] = slope
    assert loss == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    assert sums["clipped_low"] > 0 and sums["clipped_high"] > 0  # the bounds were met


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_ratios_and_what_is_outside_of_the_mask_stay_finite(name, monkeypatch):
    garbage = [np.nan, np.inf, -1e4]
    old = np.array([[-60.0, -1e-6, *garbage], [-1e-6, -70.0, *garbage]])
    new = jnp.array([[-1e-6, -60.0, *garbage], [-80, -1e-6, *garbage]])
    data = batch([1.0, -1.0], old=old, mask=[[True] * 2 + [False] * 3] * 2)
    (loss, sums), gradient = policy_loss_of(name, monkeypatch)(new, jnp.array([[0.5, 0.5, *garbage]] * 2), data)
    assert np.isfinite([loss, *sums.values()]).all()
    assert np.isfinite(gradient).all()
    assert (gradient[:, 2:] == 0).all()

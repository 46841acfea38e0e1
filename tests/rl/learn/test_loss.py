"""Every variant of the loss by hand, and the expected gradients of the divergence's estimators over a whole softmax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.config import GRPOSection
from rl.config.choices import Aggregation, Correction, PolicyLoss
from rl.learn.grpo import Batch, denominator, policy_loss
from rl.model.logprobs import Sequences

PLAIN = GRPOSection()


def settings(**changes):
    return GRPOSection(**changes)


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


def evaluate(logprobs, data, chosen=PLAIN, entropy=None):
    """(loss, what describes it, gradient by the log-probabilities, gradient by the entropies)."""
    logprobs = np.asarray(logprobs, np.float32)
    entropy = np.zeros_like(logprobs) if entropy is None else np.asarray(entropy, np.float32)
    (loss, sums), (by_logprobs, by_entropy) = evaluate_jitted(logprobs, entropy, data, settings=chosen)
    return float(loss), {k: float(v) for k, v in sums.items()}, np.asarray(by_logprobs), np.asarray(by_entropy)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, None),
        (1.1, 1.0, -1.1, -1.1, None),
        (1.5, 1.0, -1.28, 0.0, "clipped_high"),
        (0.5, 1.0, -0.5, -0.5, None),  # a good token that became unlikely is not clipped
        (0.5, -1.0, 0.8, 0.0, "clipped_low"),
        (1.5, -1.0, 1.5, 1.5, None),  # a bad token that became likely is not clipped
        (8.0, -1.0, 8.0, 8.0, None),
    ],
)
def test_clipping_one_token(ratio, advantage, expected, slope, clipped):
    loss, sums, gradient, _ = evaluate([[np.log(ratio)]], batch([advantage], old=[[0.0]]))
    assert loss == pytest.approx(expected, rel=1e-5)
    assert gradient[0, 0] == pytest.approx(slope, rel=1e-5)
    assert {name for name in ("clipped_low", "clipped_high") if sums[name]} == ({clipped} if clipped else set())
    assert sums["ratio"] == sums["ratio_max"] == pytest.approx(ratio, rel=1e-5)


RAGGED = [[True, True, True], [True, False, False], [False, False, False]]


@pytest.mark.parametrize(
    ("aggregation", "total", "divisor"),
    [
        (Aggregation.TOKEN_MEAN, -(3 * 1.0 - 2.0), 4),
        (Aggregation.SEQUENCE_MEAN, -(1.0 - 2.0), 2),
        (Aggregation.CONSTANT, -(3 * 1.0 - 2.0), 20),
    ],
)
def test_aggregation_of_ragged_answers_of_which_one_has_no_token(aggregation, total, divisor):
    chosen = settings(aggregation=aggregation)
    data = batch([1.0, -2.0, 5.0], old=np.zeros((3, 3)), mask=RAGGED)
    loss, sums, gradient, _ = evaluate(np.zeros((3, 3)), data, chosen)
    assert loss == pytest.approx(total)
    assert denominator(chosen, tokens=4, sequences=2, max_new_tokens=10) == divisor
    assert (sums["ratio"], sums["mismatch_max"]) == (4, 0)  # described by tokens, however they are weighed
    weight = 1 / 3 if aggregation is Aggregation.SEQUENCE_MEAN else 1
    np.testing.assert_allclose(gradient, [[-weight] * 3, [2, 0, 0], [0, 0, 0]], rtol=1e-6)


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
    chosen = settings(kl_coefficient=1.0)
    share = jax.nn.softmax(logits)  # each token as often as the policy draws it, which is not differentiated

    def expected(logits):
        def one(logprob, reference):
            data = batch([0.0], reference=[[0.0]]).replace(reference_logprobs=reference[None, None])
            return policy_loss(logprob[None, None], jnp.zeros((1, 1)), data, chosen)[0]

        return (share * jax.vmap(one)(jax.nn.log_softmax(logits), reference)).sum()

    def divergence(logits):
        return (jnp.exp(reference) * (reference - jax.nn.log_softmax(logits))).sum()

    found = jax.jit(jax.grad(expected))(logits)
    np.testing.assert_allclose(found, jax.grad(divergence)(logits), atol=1e-6)
    assert np.abs(found).max() > 0.01


def test_entropy_is_a_bonus():
    data = batch([1.0, 1.0], old=np.zeros((2, 2)), mask=[[True, True], [True, False]])
    given = evaluate(np.zeros((2, 2)), data, settings(entropy_coefficient=0.5), entropy=[[0.1, 0.2], [0.4, 9.0]])
    loss, sums, _, gradient = given
    assert loss == pytest.approx(-3 - 0.5 * 0.7)
    assert sums["entropy"] == pytest.approx(0.7)
    np.testing.assert_allclose(gradient, [[-0.5, -0.5], [-0.5, 0]])


@pytest.mark.parametrize(
    ("correction", "weights"),
    [
        (Correction.NONE, [[1, 1], [1, 1]]),
        (Correction.TOKEN, [[2, 0.5], [1.5, 1]]),  # the first is 3, above the cap
        (Correction.SEQUENCE, [[1.5, 1.5], [1.5, 1.5]]),  # 3 x .5 and 1.5 x 1
        (Correction.ICEPOP, [[3, 0], [1.5, 1]]),  # .49 is below the band of .5 to 5
    ],
)
def test_importance_weights_of_the_trainer_against_the_sampler(correction, weights):
    second = 0.49 if correction is Correction.ICEPOP else 0.5
    sampler, old = np.full((2, 2), -2.0), np.log([[3, second], [1.5, 1]]) - 2
    chosen = settings(correction=correction)
    loss, sums, gradient, _ = evaluate(old, batch([1.0, -3.0], old=old, sampler=sampler), chosen)
    expected = -np.array(weights) * [[1.0], [-3.0]]
    assert loss == pytest.approx(expected.sum(), rel=1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)  # weights are numbers: they have no gradient
    if correction is Correction.NONE:
        assert "correction" not in sums
    else:
        assert sums["correction"] == pytest.approx(np.sum(weights), rel=1e-5)
    own = evaluate(old, batch([1.0, -3.0], sampler=sampler), chosen)
    assert own[0] == pytest.approx(loss) and own[1] == pytest.approx(sums)


@pytest.mark.parametrize("off", [0.01, -0.01])
def test_a_sampler_that_is_off_by_a_constant_is_measured_exactly(off):
    old = np.log([[0.3, 0.6], [0.2, 0.9]])
    data = batch([1.0, -1.0], old=old, sampler=old - off, mask=[[True, True], [True, False]])
    _, sums, _, _ = evaluate(old + 0.5, data)  # whatever the parameters are by now
    assert sums["mismatch_mean"] == pytest.approx(3 * 0.01, rel=1e-4)
    assert sums["mismatch_max"] == pytest.approx(0.01, rel=1e-4)
    assert sums["mismatch_factor"] == pytest.approx(3 * np.exp(0.01), rel=1e-6)
    assert sums["mismatch_k3"] == pytest.approx(3 * (np.exp(off) - 1 - off), rel=1e-3)


@pytest.mark.parametrize("what", [np.nan, np.inf, -1e4])
def test_what_stands_outside_the_mask_reaches_neither_loss_nor_gradient(what):
    mask = [[True, False], [False, False]]
    anything = np.where(mask, 0.0, what)
    data = batch([1.0, what], old=anything, sampler=-anything, reference=2 * anything, mask=mask)
    chosen = settings(
        aggregation=Aggregation.SEQUENCE_MEAN,
        kl_coefficient=0.1,
        entropy_coefficient=0.1,
        correction=Correction.SEQUENCE,
    )
    loss, sums, gradient, by_entropy = evaluate(np.zeros((2, 2)), data, chosen)
    assert loss == pytest.approx(-1.0)
    assert np.isfinite(list(sums.values())).all()
    np.testing.assert_allclose(gradient, [[-1.0, 0], [0, 0]])
    np.testing.assert_allclose(by_entropy, [[-0.1, 0], [0, 0]])


def torch_loss(loss, new, old, worth, low, high):
    """The losses of an answer's tokens in PyTorch, from the papers; float64 tensors ``[T]``."""
    torch = pytest.importorskip("torch")

    def clipped(ratio):
        return -torch.minimum(ratio * worth, ratio.clamp(1 - low, 1 + high) * worth)

    ratio, mean = (new - old).exp(), (new - old).mean().exp()
    match loss:
        case PolicyLoss.CLIPPED:
            return clipped(ratio)
        case PolicyLoss.GSPO:
            return clipped(mean.expand(len(new)))
        case PolicyLoss.GSPO_TOKEN:
            return clipped(mean.detach() * (new - new.detach()).exp())
        case PolicyLoss.CISPO:
            return -ratio.detach().clamp(1 - low, 1 + high) * worth * new
        case PolicyLoss.DPPO:
            change = new.exp() - old.exp()
            cut = ((worth > 0) & (change > high)) | ((worth < 0) & (change < -low))
            return -(~cut * ratio * worth)


@pytest.mark.parametrize("aggregation", [Aggregation.TOKEN_MEAN, Aggregation.SEQUENCE_MEAN])
@pytest.mark.parametrize("loss", PolicyLoss)
def test_losses_and_gradients_are_those_of_plain_pytorch_in_float64(loss, aggregation):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    mask = np.arange(9) < np.array([9, 4, 1, 0, 7, 3])[:, None]
    old = rng.uniform(-3, -0.8, mask.shape)
    new = old + rng.normal(0, 0.5, mask.shape) * (rng.random(mask.shape) < 0.8) + np.linspace(-0.4, 0.4, 6)[:, None]
    new = np.minimum(new, -1e-3)
    advantages = rng.normal(0, 1, mask.shape)
    chosen = settings(loss=loss, aggregation=aggregation, clip_low=0.05, clip_high=0.08)
    sampler = old if loss is PolicyLoss.DPPO else old - 0.1
    data = batch(np.zeros(6), old=old + 0.3 * (loss is PolicyLoss.DPPO), sampler=sampler, mask=mask)
    data = data.replace(advantages=np.where(mask, advantages, np.nan).astype(np.float32))
    found, sums, gradient, _ = evaluate(np.where(mask, new, np.inf), data, chosen)

    total, expected = 0.0, np.zeros(mask.shape)
    for row, length in enumerate(mask.sum(axis=1)):
        if length:
            tokens = torch.tensor(new[row, :length], dtype=torch.float64, requires_grad=True)
            before, worth = (torch.tensor(x[row, :length], dtype=torch.float64) for x in (old, advantages))
            losses = torch_loss(loss, tokens, before, worth, chosen.clip_low, chosen.clip_high)
            weighed = losses.sum() / (length if aggregation is Aggregation.SEQUENCE_MEAN else 1)
            weighed.backward()
            total += weighed.item()
            expected[row, :length] = tokens.grad.numpy()
    assert found == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    assert sums["clipped_low"] > 0 and sums["clipped_high"] > 0  # the bounds were met


@pytest.mark.parametrize("loss", PolicyLoss)
def test_every_loss_has_the_policy_gradient_where_nothing_has_moved(loss):
    old = np.log([[0.3, 0.6], [0.2, 0.9]])
    data = batch([1.0, -2.0], old=old, mask=[[True, True], [True, False]])
    gradient = evaluate(old, data, settings(loss=loss))[2]
    shared = loss is PolicyLoss.GSPO  # its ratio is that of the answer, each of whose tokens has a part in it
    np.testing.assert_allclose(gradient, [[-1, -1], [2, 0]], rtol=1e-5)
    assert not shared or gradient[0, 0] == gradient[0, 1]


@pytest.mark.parametrize("loss", PolicyLoss)
def test_extreme_ratios_and_masked_garbage_stay_finite(loss):
    old, new = (
        np.array([[-60.0, -1e-6, np.nan], [-1e-6, -70.0, -np.inf]]),
        np.array([[-1e-6, -60.0, 9], [-80, -1e-6, 9]]),
    )
    data = batch([1.0, -1.0], old=old, mask=[[True, True, False], [True, True, False]])
    found, sums, gradient, _ = evaluate(new, data, settings(loss=loss))
    assert np.isfinite([found, *sums.values()]).all()
    assert np.isfinite(gradient).all()
    assert (gradient[:, 2] == 0).all()


def test_a_ratio_to_the_sampler_takes_no_correction_for_it():
    with pytest.raises(ValueError, match="correction = icepop must be none: loss = dppo has its ratio to the sampler"):
        settings(loss=PolicyLoss.DPPO, correction=Correction.ICEPOP)

"""Losses of the literature for `student.learn.loss`: each a pure function of one record, as `rl.learn.loss.clipped` is.

    python -m rl.train --config configs/tiny.yaml student.learn.loss=examples.losses:cispo student.learn.minibatches=8

All arrays are float32 ``[..., T]``, an answer's tokens in the last axis, and 0 where `mask` is False. A function
returns the loss of each token, and metrics of each. The trainer adds divergence and entropy bonus, and leaves out the
tokens that do not count. With one update a step every ratio to `old` is 1: all but `dppo` and the importance weights
then have the gradient of `clipped`.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxlake.record import Array
from rl.learn.loss import LossInputs, clipped, log_ratio

Losses = tuple[Array, dict[str, Array]]

MAX_CORRECTION = 2.0
"""Bound of an importance weight (Yao et al. 2025)."""
ICEPOP = 0.5, 5.0
"""Bounds of an importance weight outside of which a token does not count (Ling Team 2025, "Every Step Evolves")."""


def gspo(inputs: LossInputs) -> Losses:
    """Return the clipped loss with one ratio for an answer, the geometric mean of its tokens' (Zheng et al. 2025).

    An answer is clipped as a whole. The bounds are narrow: the authors have 3e-4 and 4e-4.
    """
    mean = _mean(log_ratio(inputs.log_probability, inputs.old), inputs.mask)
    return clipped(dataclasses.replace(inputs, log_probability=mean, old=jnp.zeros_like(mean)))


def gspo_token(inputs: LossInputs) -> Losses:
    """Return GSPO's value, and the gradient of each token times its own advantage, for `student.learn.credit=exact`."""
    by_token = log_ratio(inputs.log_probability, inputs.old)
    mean = jax.lax.stop_gradient(_mean(by_token, inputs.mask) - by_token) + by_token
    return clipped(dataclasses.replace(inputs, log_probability=mean, old=jnp.zeros_like(mean)))


def cispo(inputs: LossInputs) -> Losses:
    """Return -clip(r) A log p with the clipped ratio as a constant (MiniMax-M1, Chen et al. 2025).

    A clipped token keeps its gradient, which matters where rare tokens do. The authors have no lower bound: clip_low=1.
    """
    _, metrics = clipped(inputs)
    weight = jnp.clip(metrics["ratio"], 1 - inputs.clip_low, 1 + inputs.clip_high)
    return -jax.lax.stop_gradient(weight) * inputs.advantage * inputs.log_probability, metrics


def dppo(inputs: LossInputs) -> Losses:
    """Return -r A against the sampler, and 0 for a token that has moved far as its advantage wants (Qi et al. 2026).

    The bounds are of the difference of probabilities, an estimate of the total variation by one token: a rare token may
    move far in ratio and little in probability.
    """
    ratio = jnp.exp(log_ratio(inputs.log_probability, inputs.sampler))
    change = jnp.exp(inputs.log_probability) - jnp.exp(inputs.sampler)
    low = (inputs.advantage < 0) & (change < -inputs.clip_low)
    high = (inputs.advantage > 0) & (change > inputs.clip_high)
    metrics = {"ratio": ratio, "ratio_max": ratio, "clipped_low": low, "clipped_high": high}
    return -jnp.where(low | high, 0, ratio * inputs.advantage), metrics


def truncated(inputs: LossInputs) -> Losses:
    """Return the clipped loss times the importance weight min(p_old / p_sampler, 2) of a token (Yao et al. 2025)."""
    weight = jnp.minimum(jnp.exp(log_ratio(inputs.old, inputs.sampler)), MAX_CORRECTION)
    return _weighed(inputs, weight)


def truncated_answer(inputs: LossInputs) -> Losses:
    """Return the clipped loss times the truncated importance weight of the answer, the product of its tokens'."""
    whole = log_ratio(inputs.old, inputs.sampler).sum(axis=-1, keepdims=True)
    weight = jnp.minimum(jnp.exp(whole), MAX_CORRECTION)
    return _weighed(inputs, jnp.broadcast_to(weight, inputs.mask.shape))


def icepop(inputs: LossInputs) -> Losses:
    """Return the clipped loss times a token's importance weight, and 0 where that is outside of `ICEPOP`."""
    weight = jnp.exp(log_ratio(inputs.old, inputs.sampler))
    return _weighed(inputs, jnp.where((weight >= ICEPOP[0]) & (weight <= ICEPOP[1]), weight, 0))


def _weighed(inputs: LossInputs, weight: Array) -> Losses:
    loss, metrics = clipped(inputs)
    weight = jax.lax.stop_gradient(weight)
    return weight * loss, metrics | {"correction": weight}


def _mean(log_ratios: Array, mask: Array) -> Array:
    """Return the mean over the tokens of an answer that count, for each of them, and 0 for the others."""
    mean = log_ratios.sum(axis=-1, keepdims=True) / jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)
    return jnp.where(mask, mean, 0)

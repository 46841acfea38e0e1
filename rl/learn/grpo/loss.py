"""The loss of GRPO and its variants, from log-probabilities to a sum; knows no model, no devices and no optimizer."""

import jax
import jax.numpy as jnp

from jaxlake.record import Array, Record, record
from rl.config import GRPOSection
from rl.config.choices import Aggregation, Correction, PolicyLoss
from rl.model.logprobs import Sequences, masked_sum

MAX_CORRECTION = 2.0
"""Bound of an importance weight (Yao et al. 2025)."""
ICEPOP = 0.5, 5.0
"""Bounds of an importance weight outside of which a token does not count (Ling Team 2025, "Every Step Evolves")."""
MAX_LOG_RATIO = 20.0
"""Bound of a log-ratio. Beyond it the ratio of probabilities stays e^20 = 4.9e8, or its inverse, without gradient."""


@record
class Batch(Record):
    """Prompts with their answers, for one update.

    Attributes:
      sequences: ``B`` prompts with answers of at most T tokens.
      sampler_logprobs: float32 ``[B, T]``, of the answer tokens when they were sampled.
      advantages: float32 ``[B, T]``, of each token; values outside of the mask may be anything.
      old_logprobs: float32 ``[B, T]``, by the trainer's parameters before the first update on this rollout. None: this
        is its one update, so they are those of the parameters being trained, exactly and without a forward pass.
      reference_logprobs: float32 ``[B, T]``, by the policy that the divergence is measured from; None: it is not.
    """

    sequences: Sequences
    sampler_logprobs: Array
    advantages: Array
    old_logprobs: Array | None = None
    reference_logprobs: Array | None = None


def policy_loss(
    logprobs: jax.Array, entropy: jax.Array, batch: Batch, settings: GRPOSection
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Compute the clipped policy-gradient loss with its variants, summed and not reduced; everything in float32.

    A sum and no mean, so that the micro-batches of all processes add up to the loss of the whole batch, which is
    divided once, by `denominator`. Values where the mask is False may be anything.

    Args:
      logprobs, entropy: float32 ``[B, T]`` under the parameters being trained.

    Returns:
      The scalar sum, and what describes it: sums over the answer tokens, and maxima in what ends with ``_max``.
    """
    mask = jnp.asarray(batch.sequences.mask)
    old = jax.lax.stop_gradient(logprobs) if batch.old_logprobs is None else batch.old_logprobs
    advantages = batch.advantages

    mismatch = _log_ratio(old, batch.sampler_logprobs, mask)
    described: dict[str, Array] = {
        "mismatch_mean": jnp.abs(mismatch),
        "mismatch_factor": jnp.exp(jnp.abs(mismatch)),
        "mismatch_k3": jnp.expm1(mismatch) - mismatch,  # estimates the sampler's divergence from the trainer
        "mismatch_max": jnp.abs(mismatch),
    }
    if settings.correction is not Correction.NONE:
        if settings.correction is Correction.SEQUENCE:
            mismatch = jnp.broadcast_to(mismatch.sum(axis=-1, keepdims=True), mask.shape)
        weight = jnp.exp(jnp.minimum(mismatch, MAX_LOG_RATIO))
        if settings.correction is Correction.ICEPOP:
            weight = jnp.where((weight >= ICEPOP[0]) & (weight <= ICEPOP[1]), weight, 0)
        else:
            weight = jnp.minimum(weight, MAX_CORRECTION)
        advantages *= weight
        described["correction"] = weight

    if settings.loss is PolicyLoss.DPPO:
        old = batch.sampler_logprobs
    loss, of_loss = token_losses(logprobs, entropy, old, advantages, batch.reference_logprobs, mask, settings)
    if settings.aggregation is Aggregation.SEQUENCE_MEAN:
        loss /= jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)
    return masked_sum(loss, mask), describe(of_loss | described, mask)


def token_losses(
    logprobs: Array,
    entropy: Array,
    old_logprobs: Array,
    advantages: Array,
    reference_logprobs: Array | None,
    mask: Array,
    settings: GRPOSection,
) -> tuple[jax.Array, dict[str, Array]]:
    """Compute the loss of each token, and what describes it; all arrays ``[...]``, see `Batch` and `policy_loss`.

    The losses with a ratio of whole answers have the tokens of an answer in the last axis.
    """
    advantages = jnp.where(mask, advantages, 0)
    log_ratio = _log_ratio(logprobs, old_logprobs, mask)
    if settings.loss in (PolicyLoss.GSPO, PolicyLoss.GSPO_TOKEN):
        mean = log_ratio.sum(axis=-1, keepdims=True) / jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)
        if settings.loss is PolicyLoss.GSPO_TOKEN:
            mean = jax.lax.stop_gradient(mean - log_ratio) + log_ratio
        log_ratio = jnp.where(mask, mean, 0)
    ratio = jnp.exp(log_ratio)
    low, high = ratio < 1 - settings.clip_low, ratio > 1 + settings.clip_high
    if settings.loss is PolicyLoss.DPPO:
        change = jnp.where(mask, jnp.exp(logprobs) - jnp.exp(old_logprobs), 0)
        low, high = change < -settings.clip_low, change > settings.clip_high
    described: dict[str, Array] = {
        "ratio": ratio,
        "clipped_low": (advantages < 0) & low,
        "clipped_high": (advantages > 0) & high,
        "entropy": entropy,
        "ratio_max": ratio,
    }
    clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)  # two bounds: "clip higher", DAPO
    match settings.loss:
        case PolicyLoss.CISPO:
            loss = -jax.lax.stop_gradient(clipped) * advantages * jnp.where(mask, logprobs, 0)
        case PolicyLoss.DPPO:
            loss = -jnp.where(described["clipped_low"] | described["clipped_high"], 0, ratio * advantages)
        case _:
            loss = -jnp.minimum(ratio * advantages, clipped * advantages)
    if settings.kl_coefficient > 0:
        assert reference_logprobs is not None
        log_ratio = _log_ratio(logprobs, reference_logprobs, mask)
        divergence = jnp.expm1(-log_ratio) + log_ratio  # never negative: Schulman's third estimator
        loss += settings.kl_coefficient * divergence
        described["kl_reference"] = divergence
    if settings.entropy_coefficient > 0:
        loss -= settings.entropy_coefficient * entropy
    return loss, described


def describe(values: dict[str, Array], mask: Array) -> dict[str, jax.Array]:
    """Return sums over the tokens that count, and maxima in what ends with ``_max``; nothing has a gradient."""

    def one(name: str, values: Array) -> jax.Array:
        return jnp.where(mask, values, 0).max() if name.endswith("_max") else masked_sum(values, mask)

    return jax.lax.stop_gradient({name: one(name, x) for name, x in values.items()})


def denominator(settings: GRPOSection, tokens: int, sequences: int, max_new_tokens: int) -> int:
    """Return what the sum of `policy_loss` over a whole optimizer batch is divided by, once.

    Args:
      tokens: number of tokens in the loss, of all processes, those of answers without a gradient included.
      sequences: answers with at least one such token.
      max_new_tokens: the most tokens that an answer may have.
    """
    match settings.aggregation:
        case Aggregation.TOKEN_MEAN:
            return tokens
        case Aggregation.SEQUENCE_MEAN:
            return sequences
        case Aggregation.CONSTANT:
            return sequences * max_new_tokens


def _log_ratio(logprobs: Array, others: Array, mask: Array) -> jax.Array:
    """Return their difference within `MAX_LOG_RATIO`; 0 where it does not count, else garbage reached gradients."""
    return jnp.clip(jnp.where(mask, logprobs - others, 0), -MAX_LOG_RATIO, MAX_LOG_RATIO)

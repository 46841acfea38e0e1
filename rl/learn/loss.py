"""The loss of answer tokens, and of a player's moves: a pure function of one record; knows no model and no optimizer.

`clipped` is the loss of GRPO. `examples/losses.py` has others, which a configuration names as ``module:function``.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxlake.record import Array, Record, record
from rl.config import LearnSection, LossFields, extensions
from rl.model.logprobs import Sequences, masked_sum

MAX_LOG_RATIO = 20.0
"""Bound of a log-ratio. Beyond it the ratio of probabilities stays e^20 = 4.9e8, or its inverse, without gradient."""


@record
class Batch(Record):
    """Prompts with their answers, for one update.

    Attributes:
      sequences: ``B`` prompts with answers of at most T tokens.
      sampler_logprobs, advantages, reference_logprobs: float32 ``[B, T]``, as in `LossInputs`.
      old_logprobs: likewise. None: this is the rollout's one update, so they are those of the parameters being trained,
        exactly and without a forward pass.
    """

    sequences: Sequences
    sampler_logprobs: Array
    advantages: Array
    old_logprobs: Array | None = None
    reference_logprobs: Array | None = None


@dataclasses.dataclass(frozen=True)
class LossInputs:
    """Tokens, or moves, with what their loss is computed from; float32 arrays ``[...]``, an answer in the last axis.

    Attributes:
      log_probability: log-probabilities under the parameters being trained.
      old: log-probabilities under the trainer's parameters before the first update on this rollout.
      sampler: log-probabilities as the sampler drew the tokens.
      advantage: advantage of each token.
      entropy: entropy of the distribution that the token is drawn from.
      mask: bool, the tokens that count. A loss gets 0 in all other arrays where it is False.
      reference: log-probabilities under the policy that the divergence is measured from; None: it is not in the loss.
      clip_low, clip_high: the settings of these names.
    """

    log_probability: Array
    old: Array
    sampler: Array
    advantage: Array
    entropy: Array
    mask: Array
    reference: Array | None
    clip_low: float
    clip_high: float


Loss = Callable[[LossInputs], tuple[Array, dict[str, Array]]]
"""Returns the loss of each token, and metrics of each: their means are logged, of names that end in ``_max`` maxima."""


def clipped(inputs: LossInputs) -> tuple[Array, dict[str, Array]]:
    """Return PPO's loss -min(r A, clip(r) A) (Schulman et al. 2017), with two bounds (DAPO, Yu et al. 2025)."""
    ratio, advantage = jnp.exp(log_ratio(inputs.log_probability, inputs.old)), inputs.advantage
    bounded = jnp.clip(ratio, 1 - inputs.clip_low, 1 + inputs.clip_high)
    metrics = {
        "ratio": ratio,
        "clipped_low": (advantage < 0) & (ratio < 1 - inputs.clip_low),
        "clipped_high": (advantage > 0) & (ratio > 1 + inputs.clip_high),
        "ratio_max": ratio,
    }
    return -jnp.minimum(ratio * advantage, bounded * advantage), metrics


def log_ratio(log_probability: Array, other: Array) -> Array:
    """Return the logarithm of the ratio of two probabilities, within `MAX_LOG_RATIO`."""
    return jnp.clip(log_probability - other, -MAX_LOG_RATIO, MAX_LOG_RATIO)


def find_loss(name: str) -> Loss:
    """Return the loss of that name: `clipped`, or a function ``module:function`` of the user's own."""
    return extensions.find("student.learn.loss", name) if extensions.is_own(name) else clipped


def token_losses(inputs: LossInputs, settings: LossFields) -> tuple[Array, dict[str, Array]]:
    """Return the loss of each token with divergence and entropy bonus, and its metrics; all ``[...]``.

    Values where the mask is False may be anything, and what is returned there means nothing.
    """
    zero = {
        field.name: jnp.where(inputs.mask, value, 0)
        for field in dataclasses.fields(inputs)
        if field.name not in ("mask", "clip_low", "clip_high") and (value := getattr(inputs, field.name)) is not None
    }
    inputs = dataclasses.replace(inputs, **zero)
    loss, metrics = find_loss(settings.loss)(inputs)
    metrics = metrics | {"entropy": inputs.entropy}
    if settings.kl_coefficient > 0:
        assert inputs.reference is not None
        away = log_ratio(inputs.log_probability, inputs.reference)
        divergence = jnp.expm1(-away) + away  # never negative: Schulman's third estimator
        loss += settings.kl_coefficient * divergence
        metrics["kl_reference"] = divergence
    if settings.entropy_coefficient > 0:
        loss -= settings.entropy_coefficient * inputs.entropy
    return loss, metrics


def policy_loss(
    logprobs: jax.Array, entropy: jax.Array, batch: Batch, settings: LearnSection
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the sum of the losses of a batch's tokens, and metrics as `describe` returns them; all in float32.

    A sum and no mean, so that the micro-batches of all processes add up to the loss of the whole batch, which is
    divided once, by the number of its tokens (DAPO, Yu et al. 2025).

    Args:
      logprobs, entropy: float32 ``[B, T]`` under the parameters being trained.
    """
    mask = jnp.asarray(batch.sequences.mask)
    old = jax.lax.stop_gradient(logprobs) if batch.old_logprobs is None else batch.old_logprobs
    inputs = LossInputs(
        log_probability=logprobs,
        old=old,
        sampler=batch.sampler_logprobs,
        advantage=batch.advantages,
        entropy=entropy,
        mask=mask,
        reference=batch.reference_logprobs,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
    )
    loss, metrics = token_losses(inputs, settings)
    mismatch = log_ratio(jnp.where(mask, old, 0), jnp.where(mask, batch.sampler_logprobs, 0))
    metrics |= {
        "mismatch_mean": jnp.abs(mismatch),
        "mismatch_factor": jnp.exp(jnp.abs(mismatch)),
        "mismatch_k3": jnp.expm1(mismatch) - mismatch,  # estimates the sampler's divergence from the trainer
        "mismatch_max": jnp.abs(mismatch),
    }
    return masked_sum(loss, mask), describe(metrics, mask)


def describe(metrics: dict[str, Array], mask: Array) -> dict[str, jax.Array]:
    """Return sums over the tokens that count, and maxima in what ends with ``_max``; nothing has a gradient."""

    def one(name: str, values: Array) -> jax.Array:
        return jnp.where(mask, values, 0).max() if name.endswith("_max") else masked_sum(values, mask)

    return jax.lax.stop_gradient({name: one(name, x) for name, x in metrics.items()})

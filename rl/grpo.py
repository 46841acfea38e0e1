"""Group Relative Policy Optimization: advantages, the clipped loss and one update; knows nothing of boards or text."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from rl.config import GRPOSection
from rl.qwen3.model import Qwen3, causal_mask, token_positions


@chex.dataclass(frozen=True)
class Batch:
    """Prompts with their answers, for one update.

    Attributes:
      tokens: int32 ``[B, T0 + T]``, left-padded prompts, then answers.
      valid: bool ``[B, T0 + T]``, False on padding at either end.
      mask: bool ``[B, T]``, answer tokens that count in the loss.
      old_logprobs: float32 ``[B, T]``, of the answer tokens when they were sampled.
      advantages: float32 ``[B]``.
    """

    tokens: chex.Array
    valid: chex.Array
    mask: chex.Array
    old_logprobs: chex.Array
    advantages: chex.Array


def group_advantages(rewards: np.ndarray, epsilon: float = 1e-4) -> np.ndarray:
    """(r - mean) / (std + epsilon) within each prompt's answers (Shao et al. 2024), population standard deviation.

    A group whose rewards are all equal gets zeros, hence no gradient.

    Args:
      rewards: float32 ``[P, G]``.

    Returns:
      float32 ``[P, G]``.
    """
    centred = rewards - rewards.mean(axis=-1, keepdims=True)
    return centred / (rewards.std(axis=-1, keepdims=True) + epsilon)


def answer_logprobs(
    model: Qwen3, tokens: jax.Array, valid: jax.Array, answer_tokens: int, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """Log-probability of each of the last `answer_tokens` tokens, and the entropy of the distribution it came from.

    Args:
      tokens, valid: ``[B, T0 + T]`` as in `Batch`.
      answer_tokens: T.
      temperature: the softmax's, the same as in sampling.

    Returns:
      Two float32 ``[B, T]``.
    """
    hidden, _ = model(tokens, token_positions(valid), causal_mask(valid))
    logits = model.logits(hidden[:, -answer_tokens - 1 : -1]) / temperature
    logprobs = jax.nn.log_softmax(logits)
    entropy = -(jnp.exp(logprobs) * logprobs).sum(axis=-1)
    return jnp.take_along_axis(logprobs, tokens[:, -answer_tokens:, None], axis=-1)[..., 0], entropy


def clipped_loss(
    logprobs: jax.Array, batch: Batch, clip_low: float, clip_high: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The token mean over the whole batch of -min(ratio * A, clip(ratio, 1 - low, 1 + high) * A).

    Args:
      logprobs: float32 ``[B, T]`` under the parameters being trained.

    Returns:
      The scalar loss, and scalars that describe it.
    """
    ratio = jnp.exp(jnp.clip(logprobs - batch.old_logprobs, -20.0, 20.0))
    advantages = batch.advantages[:, None]
    clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    objective = jnp.minimum(ratio * advantages, clipped * advantages)
    metrics = {
        "ratio": masked_mean(ratio, batch.mask),
        "clipped": masked_mean(clipped * advantages < ratio * advantages, batch.mask),
    }
    return -masked_mean(objective, batch.mask), metrics


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of `values` where `mask`, 0 if nowhere."""
    return jnp.where(mask, values, 0).sum() / jnp.maximum(mask.sum(), 1)


@functools.partial(
    jax.jit,
    static_argnames=("graph", "optimizer", "clip_low", "clip_high", "temperature"),
    donate_argnames=("parameters", "optimizer_state"),
)
def update(
    graph: nnx.GraphDef[Qwen3],
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    optimizer_state: optax.OptState,
    batch: Batch,
    *,
    clip_low: float,
    clip_high: float,
    temperature: float,
) -> tuple[nnx.State, optax.OptState, dict[str, jax.Array]]:
    """One step of the optimizer on the clipped loss; the old parameters and optimizer state are donated."""

    def loss(parameters):
        model = nnx.merge(graph, parameters)
        logprobs, entropy = answer_logprobs(model, batch.tokens, batch.valid, batch.mask.shape[1], temperature)
        value, metrics = clipped_loss(logprobs, batch, clip_low, clip_high)
        return value, dict(metrics, loss=value, entropy=masked_mean(entropy, batch.mask))

    gradients, metrics = jax.grad(loss, has_aux=True)(parameters)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, parameters)
    metrics["gradient_norm"] = optax.global_norm(gradients)
    return optax.apply_updates(parameters, updates), optimizer_state, metrics


def make_optimizer(settings: GRPOSection) -> optax.GradientTransformation:
    """AdamW at a constant rate, gradients clipped by their global norm."""
    return optax.chain(
        optax.clip_by_global_norm(settings.max_gradient_norm),
        optax.adamw(settings.learning_rate, b2=0.98, weight_decay=settings.weight_decay),
    )

"""Group Relative Policy Optimization: advantages, the clipped loss and one update; knows nothing of boards or text."""

import functools
from collections.abc import Callable

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
    """The sum over answer tokens of -min(ratio * A, clip(ratio, 1 - low, 1 + high) * A).

    A sum and no mean, so that micro-batches add up to the loss of the whole batch, which divides by its tokens once.

    Args:
      logprobs: float32 ``[B, T]`` under the parameters being trained.

    Returns:
      The scalar loss, and sums over the answer tokens that describe it.
    """
    ratio = jnp.exp(jnp.clip(logprobs - batch.old_logprobs, -20.0, 20.0))
    advantages = batch.advantages[:, None]
    clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    objective = jnp.minimum(ratio * advantages, clipped * advantages)
    metrics = {
        "ratio": masked_sum(ratio, batch.mask),
        "clipped": masked_sum(clipped * advantages < ratio * advantages, batch.mask),
    }
    return -masked_sum(objective, batch.mask), metrics


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum of `values` where `mask`, whatever stands elsewhere."""
    return jnp.where(mask, values, 0).sum()


def update(
    graph: nnx.GraphDef[Qwen3],
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    optimizer_state: optax.OptState,
    batch: Batch,
    place: Callable[[Batch], Batch],
    settings: GRPOSection,
) -> tuple[nnx.State, optax.OptState, dict[str, float]]:
    """One step of the optimizer on the mean of the clipped loss over the batch's answer tokens.

    Answers without an advantage, those of groups whose rewards are all equal, have no gradient and are not computed:
    of the tiny run's answers that is about half. The others go through in micro-batches of one shape.

    Args:
      parameters, optimizer_state: donated.
      batch: numpy arrays.
      place: puts a micro-batch onto the devices.

    Returns:
      The new parameters and optimizer state, and scalars that describe the step.
    """
    rows = np.flatnonzero(batch.advantages)
    if not len(rows):
        return parameters, optimizer_state, dict.fromkeys(("loss", "gradient_norm"), 0.0)
    gradients, sums = jax.tree.map(jnp.zeros_like, parameters), []
    for start in range(0, len(rows), settings.micro_batch):
        chosen = np.resize(rows[start : start + settings.micro_batch], settings.micro_batch)
        micro = jax.tree.map(lambda x, chosen=chosen: x[chosen], batch)
        repeated = np.arange(settings.micro_batch) >= len(rows) - start  # the last one is filled up, for nothing
        gradients, described = accumulate(
            graph,
            parameters,
            gradients,
            place(micro.replace(mask=micro.mask & ~repeated[:, None])),
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            temperature=settings.temperature,
        )
        sums.append(described)
    tokens, counted = batch.mask.sum(), batch.mask[rows].sum()
    parameters, optimizer_state, norm = apply(optimizer, parameters, optimizer_state, gradients, np.float32(1 / tokens))
    total = {name: sum(float(described[name]) for described in sums) for name in sums[0]}
    metrics = {name: total[name] / counted for name in ("ratio", "clipped", "entropy")}
    return parameters, optimizer_state, metrics | {"loss": total["loss"] / tokens, "gradient_norm": float(norm)}


@functools.partial(
    jax.jit, static_argnames=("graph", "clip_low", "clip_high", "temperature"), donate_argnames=("gradients",)
)
def accumulate(
    graph: nnx.GraphDef[Qwen3],
    parameters: nnx.State,
    gradients: nnx.State,
    batch: Batch,
    *,
    clip_low: float,
    clip_high: float,
    temperature: float,
) -> tuple[nnx.State, dict[str, jax.Array]]:
    """Adds a micro-batch's unreduced gradient to those before it, which are donated; also sums that describe it."""

    def loss(parameters):
        model = nnx.merge(graph, parameters)
        logprobs, entropy = answer_logprobs(model, batch.tokens, batch.valid, batch.mask.shape[1], temperature)
        value, sums = clipped_loss(logprobs, batch, clip_low, clip_high)
        return value, sums | {"loss": value, "entropy": masked_sum(entropy, batch.mask)}

    new, sums = jax.grad(loss, has_aux=True)(parameters)
    return jax.tree.map(jnp.add, gradients, new), sums


@functools.partial(jax.jit, static_argnames=("optimizer",), donate_argnames=("parameters", "optimizer_state"))
def apply(
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    optimizer_state: optax.OptState,
    gradients: nnx.State,
    scale: jax.Array,
) -> tuple[nnx.State, optax.OptState, jax.Array]:
    """One step of the optimizer on `scale` times the gradients, and their norm; the old state is donated."""
    gradients = jax.tree.map(lambda g: g * scale, gradients)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, parameters)
    return optax.apply_updates(parameters, updates), optimizer_state, optax.global_norm(gradients)


def make_optimizer(settings: GRPOSection) -> optax.GradientTransformation:
    """AdamW at a constant rate, gradients clipped by their global norm."""
    return optax.chain(
        optax.clip_by_global_norm(settings.max_gradient_norm),
        optax.adamw(settings.learning_rate, b2=0.98, weight_decay=settings.weight_decay),
    )

"""Group Relative Policy Optimization: advantages, the clipped loss and one update; knows nothing of boards or text."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from rl import distributed
from rl.config import GRPOSection
from rl.logprobs import Sequences, abstract_sequences, answer_logprobs, take
from rl.qwen3 import lora, sharding
from rl.qwen3.model import Qwen3


@chex.dataclass(frozen=True)
class Batch:
    """Prompts with their answers, for one update.

    Attributes:
      sequences: of ``B`` prompts with answers of at most T tokens.
      old_logprobs: float32 ``[B, T]``, of the answer tokens when they were sampled.
      advantages: float32 ``[B]``.
    """

    sequences: Sequences
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
        "ratio": masked_sum(ratio, batch.sequences.mask),
        "clipped": masked_sum(clipped * advantages < ratio * advantages, batch.sequences.mask),
    }
    return -masked_sum(objective, batch.sequences.mask), metrics


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum of `values` where `mask`, whatever stands elsewhere."""
    return jnp.where(mask, values, 0).sum()


def update(
    graph: nnx.GraphDef[Qwen3],
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    optimizer_state: optax.OptState,
    batch: Batch,
    mesh: Mesh,
    settings: GRPOSection,
) -> tuple[nnx.State, optax.OptState, dict[str, float]]:
    """One step of the optimizer on the mean of the clipped loss over the batch's answer tokens.

    Answers without an advantage, those of groups whose rewards are all equal, have no gradient and are not computed:
    of the tiny run's answers that is about half. The others go through in micro-batches of one shape, as many as the
    process with the most of them needs; what a process lacks, and what `fsdp` needs for equal parts, is filled up with
    rows that do not count.

    Args:
      parameters, optimizer_state: donated; of the parameters, those that are trained (`lora.split`).
      batch: this process's rows, numpy arrays.

    Returns:
      The new parameters and optimizer state, and scalars that describe the step, the same on every process.
    """
    rows = np.flatnonzero(batch.advantages)
    size = sharding.rows_for(settings.micro_batch, mesh)
    counts = np.array([[-(-len(rows) // size), batch.sequences.mask.sum(), batch.sequences.mask[rows].sum()]], np.int32)
    everywhere = distributed.gather(counts)
    rounds, (tokens, counted) = everywhere[:, 0].max(), everywhere[:, 1:].sum(axis=0)
    if not rounds:
        return parameters, optimizer_state, dict.fromkeys(("loss", "gradient_norm"), 0.0)

    trained, frozen = lora.split(parameters)
    gradients, sums = zeros_like(trained, mesh=mesh), []
    for start in range(0, rounds * size, size):
        part = rows[start : start + size]
        filled = np.resize(part, size)
        micro = Batch(
            sequences=take(batch.sequences, part, size),
            old_logprobs=batch.old_logprobs[filled],
            advantages=batch.advantages[filled],
        )
        gradients, described = accumulate(
            graph,
            trained,
            frozen,
            gradients,
            sharding.shard_batch(micro, mesh),
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            temperature=settings.temperature,
            mesh=mesh,
        )
        sums.append(described)
    scale = np.float32(1 / tokens)
    trained, optimizer_state, norm = apply(optimizer, trained, optimizer_state, gradients, scale, mesh=mesh)
    total = {name: sum(float(described[name]) for described in sums) for name in sums[0]}
    metrics = {name: total[name] / counted for name in ("ratio", "clipped", "entropy")}
    metrics |= {"loss": total["loss"] / tokens, "gradient_norm": float(norm)}
    return nnx.merge_state(trained, frozen), optimizer_state, metrics


@functools.partial(
    jax.jit, static_argnames=("graph", "clip_low", "clip_high", "temperature", "mesh"), donate_argnames=("gradients",)
)
def accumulate(
    graph: nnx.GraphDef[Qwen3],
    trained: nnx.State,
    frozen: nnx.State,
    gradients: nnx.State,
    batch: Batch,
    *,
    clip_low: float,
    clip_high: float,
    temperature: float,
    mesh: Mesh,
) -> tuple[nnx.State, dict[str, jax.Array]]:
    """Adds a micro-batch's unreduced gradient to those before it, which are donated; also sums that describe it."""

    def loss(trained):
        logprobs, entropy = answer_logprobs(nnx.merge(graph, trained, frozen), batch.sequences, temperature)
        value, sums = clipped_loss(logprobs, batch, clip_low, clip_high)
        return value, sums | {"loss": value, "entropy": masked_sum(entropy, batch.sequences.mask)}

    new, sums = jax.grad(loss, has_aux=True)(trained)
    # Held to the parameters' sharding: left alone, XLA chose others for some, lost the donation and compiled again.
    return sharding.constrain(jax.tree.map(jnp.add, gradients, sharding.constrain(new, mesh)), mesh), sums


@functools.partial(jax.jit, static_argnames=("optimizer", "mesh"), donate_argnames=("trained", "optimizer_state"))
def apply(
    optimizer: optax.GradientTransformation,
    trained: nnx.State,
    optimizer_state: optax.OptState,
    gradients: nnx.State,
    scale: jax.Array,
    *,
    mesh: Mesh,
) -> tuple[nnx.State, optax.OptState, jax.Array]:
    """One step of the optimizer on `scale` times the gradients, and their norm; the old state is donated."""
    gradients = jax.tree.map(lambda g: g * scale, gradients)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, trained)
    trained = optax.apply_updates(trained, updates)
    return *sharding.constrain((trained, optimizer_state), mesh), optax.global_norm(gradients)


def init(optimizer: optax.GradientTransformation, parameters: nnx.State, mesh: Mesh) -> optax.OptState:
    """The optimizer's first state, for what is trained of the parameters; its moments lie where those do."""
    trained, _ = lora.split(parameters)
    places = sharding.shardings(jax.eval_shape(optimizer.init, trained), mesh)
    return jax.jit(optimizer.init, out_shardings=places)(trained)


@functools.partial(jax.jit, static_argnames=("mesh",))
def zeros_like(trained: nnx.State, *, mesh: Mesh) -> nnx.State:
    """A gradient to begin with, where the parameters lie."""
    return sharding.constrain(jax.tree.map(jnp.zeros_like, trained), mesh)


def make_optimizer(settings: GRPOSection) -> optax.GradientTransformation:
    """AdamW at a constant rate, gradients clipped by their global norm."""
    return optax.chain(
        optax.clip_by_global_norm(settings.max_gradient_norm),
        optax.adamw(settings.learning_rate, b2=0.98, weight_decay=settings.weight_decay),
    )


def lower(
    graph: nnx.GraphDef[Qwen3],
    parameters: nnx.State,
    optimizer: optax.GradientTransformation,
    settings: GRPOSection,
    prompt_tokens: int,
    answer_tokens: int,
    mesh: Mesh,
) -> dict[str, jax.stages.Lowered]:
    """The two programs of `update` as it would run them, made from shapes alone.

    Args:
      parameters: ShapeDtypeStructs (`model.abstract`).
      prompt_tokens, answer_tokens: room for each.
    """
    trained, frozen = sharding.abstract(lora.split(parameters), mesh)
    state = sharding.abstract(jax.eval_shape(optimizer.init, trained), mesh)
    rows = sharding.rows_for(settings.micro_batch, mesh)
    shape = jax.ShapeDtypeStruct
    batch = Batch(
        sequences=abstract_sequences(rows, prompt_tokens, answer_tokens),
        old_logprobs=shape((rows, answer_tokens), jnp.float32),
        advantages=shape((rows,), jnp.float32),
    )
    return {
        "accumulate": accumulate.lower(
            graph,
            trained,
            frozen,
            trained,
            sharding.abstract_batch(batch, mesh),
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            temperature=settings.temperature,
            mesh=mesh,
        ),
        "apply": apply.lower(optimizer, trained, state, trained, shape((), jnp.float32), mesh=mesh),
    }

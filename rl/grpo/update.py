"""One update of the parameters: micro-batches of one shape, sums over all processes, and nothing that is not finite."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlake.record import Array, Record, record
from rl import distributed
from rl.config import GRPOSection
from rl.grpo.loss import Batch, denominator, policy_loss
from rl.grpo.optimizer import step
from rl.qwen3 import lora, sharding
from rl.qwen3.logprobs import Sequences, abstract_sequences, answer_logprobs, cut, fill, take
from rl.qwen3.model import Qwen3


@record
class Total(Record):
    """Sums over the micro-batches so far.

    Attributes:
      gradients: of the trained parameters.
      loss: float32 scalar.
    """

    gradients: nnx.State
    loss: Array


def update(
    graph: nnx.GraphDef[Qwen3],
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    state: optax.OptState,
    batch: Batch,
    mesh: Mesh,
    settings: GRPOSection,
    max_new_tokens: int,
    check: Callable[[], None],
) -> tuple[nnx.State, optax.OptState, dict[str, float]]:
    """Take one step of the optimizer on the loss of all processes' rows, aggregated as `settings` say.

    Answers without an advantage, such as those of groups whose rewards are all equal, have no gradient unless
    divergence or entropy are in the loss, and are not computed. The others go through in `micro_batches`.

    Args:
      parameters, state: donated; of the parameters, those that are trained (`lora.split`).
      batch: this process's rows, numpy arrays, of any number.
      max_new_tokens: the most that an answer may have.
      check: called by all processes before each micro-batch and before the parameters are donated. What it raises
        ends the update, and nothing has changed.

    Returns:
      The new parameters and optimizer state, and what describes the step, the same on every process. Where loss or
      gradient norm are not finite, the numbers of both are the old ones and ``update_skipped`` is 1. Means and maxima
      are over the tokens of the answers that went through, ``rows_computed`` of all; if none did, there is nothing
      but the loss, 0, the norm, 0, and these two.
    """
    mask = batch.sequences.mask
    counts = mask.any(axis=-1)
    rows = np.flatnonzero((mask & (batch.advantages != 0)).any(axis=-1) if settings.needs_advantage else counts)
    size = sharding.rows_for(settings.micro_batch, mesh)
    counted = [len(rows), len(mask), mask.sum(), counts.sum(), mask[rows].sum()]
    computed, answers, tokens, sequences, through = distributed.all_gather(np.array([counted], np.int32)).sum(axis=0)
    if not computed:
        return parameters, state, dict.fromkeys(("loss", "gradient_norm", "update_skipped", "rows_computed"), 0.0)

    trained, frozen = lora.split(parameters)
    total, described = zeros_like(trained, mesh=mesh), []
    for part, room in micro_batches(batch.sequences, rows, size):
        check()
        micro = sharding.shard_batch(_filled(batch, part, size, room), mesh)
        total, sums = accumulate(graph, trained, frozen, total, micro, settings=settings, mesh=mesh)
        described.append(sums)
        # One ahead and no more: else all would be waiting for the device before the second check.
        jax.block_until_ready(described[-2:-1])
    check()
    scale = np.float32(1 / denominator(settings, int(tokens), int(sequences), max_new_tokens))
    trained, state, norm, finite = apply(optimizer, trained, state, total, scale, mesh=mesh)

    described, value, norm, finite = jax.device_get((described, total.loss, norm, finite))
    metrics = {
        "loss": float(value * scale),
        "gradient_norm": float(norm),
        "update_skipped": float(not finite),
        "rows_computed": float(computed / answers),
    }
    for name in described[0]:
        values = np.array([sums[name] for sums in described], np.float64)
        metrics[name] = float(values.max() if name.endswith("_max") else values.sum() / through)
    return nnx.merge_state(trained, frozen), state, metrics


def answer_logprobs_of(
    graph: nnx.GraphDef[Qwen3],
    parameters: nnx.State,
    sequences: Sequences,
    mesh: Mesh,
    settings: GRPOSection,
    check: Callable[[], None],
) -> np.ndarray:
    """Compute log-probabilities of answers by the trainer's forward pass, each in the shape that it has in `update`.

    In the same shape, because products of another are summed in another order, and a ratio that should be 1 is not.

    Args:
      sequences: this process's rows, numpy arrays, of any number.
      check: called by all processes before each micro-batch; may raise.

    Returns:
      float32 ``[B, T]``; 0 outside of the mask. Rows without a token that counts are not computed.
    """
    rows = np.flatnonzero(sequences.mask.any(axis=-1))
    size = sharding.rows_for(settings.micro_batch, mesh)
    gathered = np.zeros(sequences.mask.shape, np.float32)
    for part, room in micro_batches(sequences, rows, size):
        check()
        micro = sharding.shard_batch(take(cut(sequences, room), part, size), mesh)
        logprobs = logprobs_of(graph, parameters, micro, temperature=settings.temperature, mesh=mesh)
        gathered[part, :room] = sharding.local_rows(logprobs)[: len(part)]
    return np.where(sequences.mask, gathered, 0)


def micro_batches(sequences: Sequences, rows: np.ndarray, size: int) -> list[tuple[np.ndarray, int]]:
    """List which of this process's `rows`, at most `size`, go through together, and the room for their answers.

    An answer goes where a quarter of the room is enough for it, or half, or else all: of answers of 27 tokens on
    average and 128 at most, two thirds of what is computed would otherwise be padding (2.06 s of processor time an
    update against 0.79, benchmarks/grpo_step.py). So its shape hangs on the answer alone, wherever it is computed.

    Each room has as many micro-batches as the process with the most of them needs. What a process lacks, and what
    `fsdp` needs for equal parts, is to be filled up with rows that do not count.
    """
    most, lengths = sequences.mask.shape[1], sequences.valid.sum(axis=-1) - sequences.starts
    rooms = np.unique([max(most // 4, 1), max(most // 2, 1), most])
    parts = [rows[np.searchsorted(rooms, lengths[rows]) == i] for i in range(len(rooms))]
    counts = distributed.all_gather(np.array([[-(-len(part) // size) for part in parts]], np.int32)).max(axis=0)
    return [
        (part[i * size : (i + 1) * size], int(room))
        for part, room, count in zip(parts, rooms, counts, strict=True)
        for i in range(count)
    ]


def _filled(batch: Batch, rows: np.ndarray, size: int, room: int) -> Batch:
    """Take `size` rows with room for answers of `room` tokens; those beyond `rows` do not count."""
    others = jax.tree.map(lambda x: x[:, :room] if x.ndim == 2 else x, batch.replace(sequences=None))
    return fill(others, rows, size).replace(sequences=take(cut(batch.sequences, room), rows, size))


@functools.partial(jax.jit, static_argnames=("graph", "settings", "mesh"), donate_argnames=("total",))
def accumulate(
    graph: nnx.GraphDef[Qwen3],
    trained: nnx.State,
    frozen: nnx.State,
    total: Total,
    batch: Batch,
    *,
    settings: GRPOSection,
    mesh: Mesh,
) -> tuple[Total, dict[str, jax.Array]]:
    """Add a micro-batch's unreduced loss and gradient to those before it, which are donated.

    Returns:
      The new total, and what `policy_loss` says of the micro-batch.
    """

    def loss(trained: nnx.State) -> tuple[jax.Array, dict[str, jax.Array]]:
        logprobs, entropy = answer_logprobs(nnx.merge(graph, trained, frozen), batch.sequences, settings.temperature)
        if settings.entropy_coefficient == 0:
            entropy = jax.lax.stop_gradient(entropy)
        return policy_loss(logprobs, entropy, batch, settings)

    (value, described), new = jax.value_and_grad(loss, has_aux=True)(trained)
    # Held to the parameters' sharding: left alone, XLA chose others for some, lost the donation and compiled again.
    new = Total(gradients=sharding.constrain(new, mesh), loss=value)
    return sharding.constrain(jax.tree.map(jnp.add, total, new), mesh), described


@functools.partial(jax.jit, static_argnames=("optimizer", "mesh"), donate_argnames=("trained", "state"))
def apply(
    optimizer: optax.GradientTransformation,
    trained: nnx.State,
    state: optax.OptState,
    total: Total,
    scale: jax.Array,
    *,
    mesh: Mesh,
) -> tuple[nnx.State, optax.OptState, jax.Array, jax.Array]:
    """Take one step of the optimizer on `scale` times the gradients; the old parameters and state are donated.

    Returns:
      Parameters and state, the gradients' global norm, and whether this and the loss are finite. Where they are not,
      parameters and state come back as they were.
    """
    gradients = jax.tree.map(lambda g: g * scale, total.gradients)
    *new, norm, finite = step(optimizer, trained, state, gradients, total.loss)
    return *sharding.constrain(tuple(new), mesh), norm, finite


@functools.partial(jax.jit, static_argnames=("graph", "temperature", "mesh"))
def logprobs_of(
    graph: nnx.GraphDef[Qwen3], parameters: nnx.State, sequences: Sequences, *, temperature: float, mesh: Mesh
) -> jax.Array:
    """Compute log-probabilities of a micro-batch's answers, ``[B, T]`` over `fsdp`."""
    logprobs, _ = answer_logprobs(nnx.merge(graph, parameters), sequences, temperature)
    return jax.lax.with_sharding_constraint(logprobs, NamedSharding(mesh, P("fsdp")))


def init(optimizer: optax.GradientTransformation, parameters: nnx.State, mesh: Mesh) -> optax.OptState:
    """Make the optimizer's first state, for what is trained of the parameters; its moments lie where those do."""
    trained, _ = lora.split(parameters)
    places = sharding.shardings(jax.eval_shape(optimizer.init, trained), mesh)
    return jax.jit(optimizer.init, out_shardings=places)(trained)


@functools.partial(jax.jit, static_argnames=("mesh",))
def zeros_like(trained: nnx.State, *, mesh: Mesh) -> Total:
    """Make a total to begin with, where the parameters lie."""
    zeros = Total(gradients=jax.tree.map(jnp.zeros_like, trained), loss=jnp.zeros((), jnp.float32))
    return sharding.constrain(zeros, mesh)


def lower(
    graph: nnx.GraphDef[Qwen3],
    parameters: nnx.State,
    optimizer: optax.GradientTransformation,
    settings: GRPOSection,
    prompt_tokens: int,
    answer_tokens: int,
    mesh: Mesh,
) -> dict[str, jax.stages.Lowered]:
    """Lower the programs of `update` and `answer_logprobs_of`, for the longest answers, made from shapes alone.

    Args:
      parameters: ShapeDtypeStructs (`model.abstract`).
      prompt_tokens, answer_tokens: room for each.
    """
    trained, frozen = sharding.abstract(lora.split(parameters), mesh)
    state = sharding.abstract(jax.eval_shape(optimizer.init, trained), mesh)
    rows = sharding.rows_for(settings.micro_batch, mesh)
    shape: Any = jax.ShapeDtypeStruct  # stands where an array will
    logprobs = shape((rows, answer_tokens), jnp.float32)
    batch = Batch(
        sequences=abstract_sequences(rows, prompt_tokens, answer_tokens),
        sampler_logprobs=logprobs,
        advantages=logprobs,
        old_logprobs=logprobs if settings.updates > 1 else None,
        reference_logprobs=logprobs if settings.kl_coefficient > 0 else None,
    )
    batch = sharding.abstract_batch(batch, mesh)
    total = Total(gradients=trained, loss=shape((), jnp.float32))
    return {
        "accumulate": accumulate.lower(graph, trained, frozen, total, batch, settings=settings, mesh=mesh),
        "apply": apply.lower(optimizer, trained, state, total, shape((), jnp.float32), mesh=mesh),
        "logprobs": logprobs_of.lower(
            graph, sharding.abstract(parameters, mesh), batch.sequences, temperature=settings.temperature, mesh=mesh
        ),
    }

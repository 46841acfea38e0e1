"""One update of the parameters: micro-batches of few shapes, sums over all processes, nothing that is not finite."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlake.record import Array, Record, record
from rl import distributed
from rl.config import LearnSection
from rl.learn.loss import Batch, policy_loss
from rl.learn.optimizer import step
from rl.model import lora, sharding
from rl.model.decoder import Decoder
from rl.model.logprobs import Sequences, abstract_sequences, answer_logprobs, cut, fill, take

ENOUGH_TOKENS = 4096
"""Tokens of a micro-batch on one device: more at once use an accelerator no better, and wait for a longer one."""
FINEST = 16
"""Widths are multiples of it: fewer programs for short sequences, whose padding costs less than a compilation."""


class MicroBatch(NamedTuple):
    """Answers that go through together: rows of this process's batch, filled up to a size, cut or padded to a width."""

    rows: np.ndarray
    size: int
    width: int


@record
class Total(Record):
    """Sums of gradients and losses over the micro-batches so far."""

    gradients: nnx.State
    loss: Array


def update(
    graph: nnx.GraphDef[Decoder],
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    state: optax.OptState,
    batch: Batch,
    mesh: Mesh,
    settings: LearnSection,
    check: Callable[[], None],
) -> tuple[nnx.State, optax.OptState, dict[str, float]]:
    """Take one step of the optimizer on the loss of all processes' rows, a mean over their answer tokens.

    Answers without an advantage have no gradient unless divergence or entropy are in the loss, and are not computed.

    Args:
      parameters, state: donated; of the parameters, those that are trained (`lora.split`).
      batch: this process's rows, numpy arrays, of any number.
      check: called by all processes before each micro-batch and before the parameters are donated. What it raises
        ends the update, and nothing has changed.

    Returns:
      Parameters, optimizer state, and metrics, the same on every process. Where loss or gradient norm are not finite,
      both are as they were and ``update_skipped`` is 1. Means and maxima are over the tokens of the answers that went
      through, ``rows_computed`` of all; if none did, there are only the loss, the norm, and these two, all 0.
    """
    mask = batch.sequences.mask
    learns = mask & (batch.advantages != 0) if settings.needs_advantage else mask
    rows = np.flatnonzero(learns.any(axis=-1))
    counted = [len(rows), len(mask), mask.sum(), mask[rows].sum()]
    computed, answers, tokens, through = distributed.all_gather(np.array([counted], np.int32)).sum(axis=0)
    if not computed:
        return parameters, state, dict.fromkeys(("loss", "gradient_norm", "update_skipped", "rows_computed"), 0.0)

    trained, frozen = lora.split(parameters)
    total, described = zeros_like(trained, mesh=mesh), []
    for part in micro_batches(batch.sequences, rows, settings.micro_batch, mesh):
        check()
        micro = sharding.shard_batch(_part(batch, part), mesh)
        total, sums = accumulate(graph, trained, frozen, total, micro, settings=settings, mesh=mesh)
        described.append(sums)
        # One ahead and no more: else all would be waiting for the device before the second check.
        jax.block_until_ready(described[-2:-1])
    check()
    scale = np.float32(1 / int(tokens))
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
    graph: nnx.GraphDef[Decoder],
    parameters: nnx.State,
    sequences: Sequences,
    mesh: Mesh,
    settings: LearnSection,
    check: Callable[[], None],
) -> np.ndarray:
    """Compute log-probabilities of answers by the trainer's forward pass, float32 ``[B, T]``, 0 outside of the mask.

    Each in the shape that it has in `update`, because products of another are summed in another order, and a ratio that
    should be 1 is not. So the rows, numpy arrays, must be this process's of one update. `check` is called by all
    processes before each micro-batch, and may raise.
    """
    rows = np.flatnonzero(sequences.mask.any(axis=-1))
    gathered = np.zeros(sequences.mask.shape, np.float32)
    for part, size, width in micro_batches(sequences, rows, settings.micro_batch, mesh):
        check()
        micro = sharding.shard_batch(take(cut(sequences, width), part, size), mesh)
        logprobs = logprobs_of(graph, parameters, micro, temperature=settings.temperature, mesh=mesh)
        gathered[part, : logprobs.shape[1]] = sharding.local_rows(logprobs)[: len(part)]
    return np.where(sequences.mask, gathered, 0)


def micro_batches(sequences: Sequences, rows: np.ndarray, most: int, mesh: Mesh) -> list[MicroBatch]:
    """Share out this process's `rows` over micro-batches, at most `most` rows of all processes each.

    The longest go first, each micro-batch as wide as its longest row, rounded up to one of `widths`. For 64 answers of
    1,500 tokens on average, log-normal and cut off at 8,192, that is 1.15 times the work of the tokens that there are,
    where padding all of them is 5.9 times (benchmarks/padding.py). All processes list the same sizes and widths.
    """
    lengths = sequences.valid.sum(axis=-1, dtype=np.int32)
    order = rows[np.argsort(-lengths[rows], kind="stable")]
    count = int(distributed.all_gather(np.array([[len(order)]], np.int32)).max())
    mine = np.zeros(count, np.int32)
    mine[: len(order)] = lengths[order]
    longest = distributed.all_gather(mine[None]).max(axis=0)
    room = sequences.tokens.shape[1]
    ladder = widths(room)
    parts: list[MicroBatch] = []
    done = 0
    while done < count:
        width = ladder[np.searchsorted(ladder, longest[done])]
        size = rows_of_width(width, room, most, mesh)
        parts.append(MicroBatch(order[done : done + size], size, width))
        done += size
    return parts


def widths(room: int) -> list[int]:
    """Return the widths that rows are padded to, in order: the whole room, and four an octave down to a sixteenth.

    So a ninth of a long row is padding on average. Each is a program, made when it is first needed: 17 for 8,704
    tokens, 5 for the 80 of the tiny run.
    """
    ladder = [room]
    while True:
        below = ladder[-1] - 1
        step = max(FINEST, (1 << below.bit_length()) // 8)
        width = below // step * step
        if 16 * width < room:
            return ladder[::-1]
        ladder.append(width)


def rows_of_width(width: int, room: int, most: int, mesh: Mesh) -> int:
    """Return this process's rows of a micro-batch, at most `most` of all processes, and as many on each device.

    They have as many tokens as `ENOUGH_TOKENS` take of rows of the whole room. So the widest take the most memory.
    """
    devices = sharding.rows_for(1, mesh)
    on_each = sharding.rows_for(most, mesh) // devices
    budget = min(on_each, -(-ENOUGH_TOKENS // room)) * room
    return devices * min(on_each, budget // width)


def _part(batch: Batch, part: MicroBatch) -> Batch:
    """Take the rows of a micro-batch, filled up with such that do not count."""
    sequences = cut(batch.sequences, part.width)
    arrays = jax.tree.map(lambda x: x[:, : sequences.mask.shape[1]], batch.replace(sequences=None))
    return fill(arrays, part.rows, part.size).replace(sequences=take(sequences, part.rows, part.size))


@functools.partial(jax.jit, static_argnames=("graph", "settings", "mesh"), donate_argnames=("total",))
def accumulate(
    graph: nnx.GraphDef[Decoder],
    trained: nnx.State,
    frozen: nnx.State,
    total: Total,
    batch: Batch,
    *,
    settings: LearnSection,
    mesh: Mesh,
) -> tuple[Total, dict[str, jax.Array]]:
    """Add a micro-batch's unreduced loss and gradient to the total, which is donated; also return what describes it."""

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
    """Take one step of the optimizer on `scale` times the gradients; see `rl.learn.optimizer.step`.

    The old parameters and state are donated.
    """
    gradients = jax.tree.map(lambda g: g * scale, total.gradients)
    *new, norm, finite = step(optimizer, trained, state, gradients, total.loss)
    return *sharding.constrain(tuple(new), mesh), norm, finite


@functools.partial(jax.jit, static_argnames=("graph", "temperature", "mesh"))
def logprobs_of(
    graph: nnx.GraphDef[Decoder], parameters: nnx.State, sequences: Sequences, *, temperature: float, mesh: Mesh
) -> jax.Array:
    """Compute log-probabilities of a micro-batch's answers, ``[B, T]`` over `fsdp`."""
    logprobs, _ = answer_logprobs(nnx.merge(graph, parameters), sequences, temperature)
    return jax.lax.with_sharding_constraint(logprobs, NamedSharding(mesh, P("fsdp")))


@functools.partial(jax.jit, static_argnames=("mesh",))
def zeros_like(trained: nnx.State, *, mesh: Mesh) -> Total:
    """Make a total to begin with, where the parameters lie."""
    zeros = Total(gradients=jax.tree.map(jnp.zeros_like, trained), loss=jnp.zeros((), jnp.float32))
    return sharding.constrain(zeros, mesh)


def lower_gradient(
    graph: nnx.GraphDef[Decoder],
    parameters: nnx.State,
    settings: LearnSection,
    prompt_tokens: int,
    answer_tokens: int,
    mesh: Mesh,
) -> jax.stages.Lowered:
    """Lower `accumulate` for the longest answers, from ShapeDtypeStructs alone."""
    trained, frozen = sharding.abstract(lora.split(parameters), mesh)
    room = prompt_tokens + answer_tokens
    rows = rows_of_width(room, room, settings.micro_batch, mesh) * jax.process_count()
    shape: Any = jax.ShapeDtypeStruct  # in the place of a later array
    logprobs = shape((rows, answer_tokens), jnp.float32)
    batch = Batch(
        sequences=abstract_sequences(rows, prompt_tokens, answer_tokens),
        sampler_logprobs=logprobs,
        advantages=logprobs,
        old_logprobs=logprobs if settings.minibatches > 1 else None,
        reference_logprobs=logprobs if settings.kl_coefficient > 0 else None,
    )
    total = Total(gradients=trained, loss=shape((), jnp.float32))
    batch = sharding.abstract_at(batch, jax.tree.map(lambda _: NamedSharding(mesh, P("fsdp")), batch))
    return accumulate.lower(graph, trained, frozen, total, batch, settings=settings, mesh=mesh)

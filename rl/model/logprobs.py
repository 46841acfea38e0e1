"""Log-probabilities of tokens already written: sequences as the trainer holds them, and the head's softmax."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.sharding import Mesh

from jaxlake.record import Array, Record, record
from rl.model.attention import device_of
from rl.model.decoder import Decoder, constrain, token_positions

BLOCK_BYTES = 2**26
"""Most memory a device should spend on one block of float32 logits: 64 MiB."""
MOST_BLOCKS = 32
"""Largest number of blocks. Of 151,936 tokens, 4,748 a block: narrower products would waste an accelerator."""


@record
class Sequences(Record):
    """Prompts, each with its answer right behind it, padded at the end.

    Attributes:
      tokens: int32 ``[B, L]``; L is larger than T.
      valid: bool ``[B, L]``, False on the padding.
      starts: int32 ``[B]``, where the answer begins, at least 1.
      mask: bool ``[B, T]``, answer tokens that count in the loss.
    """

    tokens: Array
    valid: Array
    starts: Array
    mask: Array


def join(prompts: Sequence[Sequence[int]], room: int, answers: Array, mask: Array) -> Sequences:
    """Put prompts and their answers into numpy sequences.

    Args:
      prompts: ids of each, at most `room`.
      answers: int32 ``[B, T]``.
      mask: bool ``[B, T]``, the answers' tokens, without a gap from the first on.
    """
    starts = np.array([len(prompt) for prompt in prompts], np.int32)
    width = room + answers.shape[1]
    tokens, valid = np.zeros((len(prompts), width), np.int32), np.arange(width) < (starts + mask.sum(axis=1))[:, None]
    for row, prompt, answer, counts in zip(tokens, prompts, answers, mask, strict=True):
        written = answer[counts]
        row[: len(prompt)] = prompt
        row[len(prompt) : len(prompt) + len(written)] = written
    return Sequences(tokens=tokens, valid=valid, starts=starts, mask=mask)


def take(sequences: Sequences, rows: Array, count: int) -> Sequences:
    """Take the numpy sequences at `rows`, filled up to `count` with repetitions of which no token counts."""
    taken = fill(sequences, rows, count)
    return taken.replace(mask=taken.mask & (np.arange(count) < len(rows))[:, None])


def cut(sequences: Sequences, width: int) -> Sequences:
    """Keep the first `width` tokens of each row, at least two, and the room for answers that this leaves."""
    return sequences.replace(
        tokens=sequences.tokens[:, :width], valid=sequences.valid[:, :width], mask=sequences.mask[:, : width - 1]
    )


def fill(tree: Any, rows: Array, count: int) -> Any:
    """Take `rows` of each array's first axis, repeated until there are `count`; ones where `rows` is empty.

    Ones, because a sequence of them is sound: a row without a valid token would have no attention to normalise.
    """
    return jax.tree.map(
        lambda x: x[np.resize(rows, count)] if len(rows) else np.ones((count, *x.shape[1:]), x.dtype), tree
    )


def masked_sum(values: Array, mask: Array) -> jax.Array:
    """Sum `values` where `mask`, whatever the other values are."""
    return jnp.where(mask, values, 0).sum()


def abstract_sequences(rows: int, prompt_tokens: int, answer_tokens: int) -> Sequences:
    """Return the ShapeDtypeStructs of sequences with this much room."""
    prompts = [[0] * prompt_tokens] * rows
    answers = np.zeros((rows, answer_tokens), np.int32)
    return jax.eval_shape(lambda: join(prompts, prompt_tokens, answers, answers == 0))


def answer_logprobs(model: Decoder, sequences: Sequences, temperature: float) -> tuple[jax.Array, jax.Array]:
    """Return the log-probability of each answer token, and the entropy of the distribution it came from.

    The head sees the answers' positions only.

    Args:
      temperature: the softmax's, the same as in sampling.

    Returns:
      Two float32 ``[B, T]``; values outside of `mask` mean nothing.
    """
    width, time = sequences.tokens.shape[1], sequences.mask.shape[1]
    hidden = model(sequences.tokens, token_positions(sequences.valid), sequences.valid)
    # Where a row has no room for `time` tokens from its answer on, they begin before it, and are moved afterwards.
    begin = jnp.minimum(sequences.starts - 1, width - time - 1)
    part = jax.vmap(lambda row, start: jax.lax.dynamic_slice_in_dim(row, start, time))
    hidden = constrain(part(hidden, begin), model.mesh, "fsdp", None, None)
    outputs = token_logprobs(hidden, model.head, part(sequences.tokens, begin + 1), temperature, model.mesh)
    logprobs, entropy = (part(jnp.pad(x, ((0, 0), (0, time))), sequences.starts - 1 - begin) for x in outputs)
    return logprobs, entropy


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def token_logprobs(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, temperature: float, mesh: Mesh | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return log-probabilities of `targets` and entropies from hidden states, without ever holding all logits.

    They are made, and made again for the gradient, in blocks of the vocabulary. Blocks of time would do for memory on
    one device; on several, each of them would need the whole head and add a gradient of its size to the others'
    (1.4 GiB for Qwen3-4B), while a block of the vocabulary needs its own rows once.

    Args:
      hidden: ``[B, T, D]`` in the compute dtype, over `fsdp`.
      head: ``[V, D]``, V over `tp` and D over `fsdp`; used in the dtype of `hidden`.
      targets: int32 ``[B, T]``.
      temperature: divisor of the logits.
      mesh: the model's mesh; None on one device.

    Returns:
      Two float32 ``[B, T]``. Where the entropy only describes, behind a `stop_gradient`, its gradient costs nothing.
    """
    return _forward(hidden, head, targets, temperature, mesh)[0]


Residuals = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Arrays for the backward pass: hidden, head, targets, normalizer, entropy."""


def _forward(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, temperature: float, mesh: Mesh | None
) -> tuple[tuple[jax.Array, jax.Array], Residuals]:
    blocks = _Blocks(hidden, head, temperature, mesh)

    def add(i: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        top, total, weighted, chosen = sums
        logits, ids, _ = blocks.logits(i)
        new_top = jnp.maximum(top, logits.max(axis=-1))
        scale, weights = jnp.exp(top - new_top), jnp.exp(logits - new_top[..., None])
        total = total * scale + weights.sum(axis=-1)
        weighted = weighted * scale + (weights * logits).sum(axis=-1)
        # A sum and no gather: it stays within the device that holds the row, and the gradient needs no scatter.
        return new_top, total, weighted, chosen + jnp.where(ids == targets[..., None], logits, 0).sum(axis=-1)

    zeros = jnp.zeros(targets.shape, jnp.float32)
    top, total, weighted, chosen = jax.lax.fori_loop(0, blocks.count, add, (zeros - 1e30, zeros, zeros, zeros))
    normalizer = top + jnp.log(total)
    entropy = normalizer - weighted / total
    return (chosen - normalizer, entropy), (hidden, head, targets, normalizer, entropy)


def _backward(
    temperature: float, mesh: Mesh | None, residuals: Residuals, gradients: tuple[Any, Any]
) -> tuple[jax.Array, jax.Array, None]:
    hidden, head, targets, normalizer, entropy = residuals
    blocks = _Blocks(hidden, head, temperature, mesh)
    # Of the two outputs, one that nothing depends on has no array of zeros for a gradient, but this mark of one.
    d_logprobs, d_entropy = (None if isinstance(d, SymbolicZero) else d[..., None] / temperature for d in gradients)

    def add(i: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        d_hidden, d_head = sums
        logits, ids, block = blocks.logits(i)
        logs = logits - normalizer[..., None]
        d_logits = jnp.zeros_like(logits)
        if d_logprobs is not None:
            d_logits += ((ids == targets[..., None]) - jnp.exp(logs)) * d_logprobs
        if d_entropy is not None:
            d_logits -= jnp.exp(logs) * (logs + entropy[..., None]) * d_entropy
        d_logits = d_logits.astype(hidden.dtype)
        d_hidden += jnp.einsum("BTV,VD->BTD", d_logits, block, preferred_element_type=jnp.float32)
        d_block = jnp.einsum("BTV,BTD->VD", d_logits, hidden, preferred_element_type=jnp.float32)
        d_block = constrain(d_block, mesh, "tp", "fsdp")
        return d_hidden, jax.lax.dynamic_update_index_in_dim(d_head, d_block, i, axis=1)

    d_hidden = constrain(jnp.zeros(hidden.shape, jnp.float32), mesh, "fsdp", None, None)
    d_head = constrain(jnp.zeros(blocks.head.shape, jnp.float32), mesh, "tp", None, "fsdp")
    d_hidden, d_head = jax.lax.fori_loop(0, blocks.count, add, (d_hidden, d_head))
    d_head = d_head.reshape(-1, head.shape[1])[: head.shape[0]]
    return d_hidden.astype(hidden.dtype), d_head.astype(head.dtype), None


token_logprobs.defvjp(
    lambda hidden, head, targets, *rest: _forward(hidden.value, head.value, targets.value, *rest),
    _backward,
    symbolic_zeros=True,
)


class _Blocks:
    """The head matrix in `count` blocks; block i has every count-th row from i on, so that each of `tp` has a part."""

    def __init__(self, hidden: jax.Array, head: jax.Array, temperature: float, mesh: Mesh | None):
        devices = 1 if mesh is None else mesh.size
        wanted = 4 * math.prod(hidden.shape[:2]) * head.shape[0] / devices / BLOCK_BYTES
        self.count = min(1 << max(math.ceil(math.log2(wanted)), 0), MOST_BLOCKS)
        # GPUs' products need sides that 8 divides, and of 151,936 tokens 32 blocks have 4,748: with 4,864 an H200 makes
        # a step of Qwen3-4B 8 % faster. TPUs pad by themselves, without a copy of the head.
        aligned = 64 if self.count > 1 and device_of(mesh).platform == "gpu" else 1
        self.padding = -head.shape[0] % (self.count * aligned)
        padded = jnp.pad(head.astype(hidden.dtype), ((0, self.padding), (0, 0))) if self.padding else head
        self.head = padded.reshape(-1, self.count, head.shape[1])
        self.hidden, self.temperature, self.mesh = hidden, temperature, mesh

    def logits(self, i: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return float32 logits ``[B, T, V / count]`` of block i, its token ids and its rows of the head."""
        block = jax.lax.dynamic_index_in_dim(self.head, i, axis=1, keepdims=False).astype(self.hidden.dtype)
        # Cast on each device, then gathered over fsdp.
        block = constrain(constrain(block, self.mesh, "tp", "fsdp"), self.mesh, "tp", None)
        logits = jnp.einsum("BTD,VD->BTV", self.hidden, block, preferred_element_type=jnp.float32) / self.temperature
        logits = constrain(logits, self.mesh, "fsdp", None, "tp")
        ids = jnp.arange(len(block)) * self.count + i
        if self.padding:
            logits = jnp.where(ids < self.head.size // self.head.shape[-1] - self.padding, logits, -1e30)
        return logits, ids, block

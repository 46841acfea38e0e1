"""Causal self-attention behind one function, and attention of new tokens to a cache; axis letters as in `model`."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxlake.record import Array
from rl.model.sharding import cache_spec

ROW_MAJOR = Layout(major_to_minor=(0, 1, 2, 3, 4))
"""How a cache lies in memory, its axes in their own order: XLA:TPU would lay it out for the write, and copy it."""
ZERO = np.int32(0)
"""A place in an array beside others that are int32; Python's 0 is int64 under `jax_enable_x64`."""
SLOTS_AT_ONCE = 256
"""Slots of a row in one pass of `read_rows`: half a MiB of Qwen3-4B's keys. Half of them are too many on average."""


Kernel = Callable[[jax.Array, jax.Array, jax.Array, Array], jax.Array]
"""Attention of whole sequences: `cudnn` on NVIDIA GPUs, `splash` on TPUs, `xla` anywhere."""


def attend(q: jax.Array, k: jax.Array, v: jax.Array, valid: Array, kernel: Kernel, mesh: Mesh | None) -> jax.Array:
    """Compute grouped-query causal self-attention of whole sequences, with the softmax in float32.

    Args:
      q: ``[B, T, N, H]``.
      k, v: ``[B, T, K, H]``.
      valid: bool ``[B, T]``, False on padding; with cuDNN's kernel all of it on the right.
      kernel: the kernel, as `choose_kernel` returns it.
      mesh: the model's mesh, rows over `fsdp` and heads over `tp`; None on one device.

    Returns:
      ``[B, T, N, H]``; values on padding mean nothing, and are finite.
    """
    if kernel is xla or mesh is None:
        return kernel(q, k, v, valid)
    rows = "fsdp" if q.shape[0] % mesh.shape["fsdp"] == 0 else None
    heads = "tp" if k.shape[2] % mesh.shape["tp"] == 0 else None
    whole = P(rows, None, heads, None)
    # The kernel's outputs do not say over which axes they vary, which `check_vma` would ask for.
    spread = jax.shard_map(
        kernel, mesh=mesh, in_specs=(whole, whole, whole, P(rows, None)), out_specs=whole, check_vma=False
    )
    return spread(q, k, v, valid)


def device_of(mesh: Mesh | None) -> jax.Device:
    """Return one of the devices of a mesh; without a mesh, the first of this machine."""
    return jax.devices()[0] if mesh is None else mesh.devices.flat[0]


def choose_kernel(device: jax.Device, dtype: jnp.dtype, head_dim: int) -> Kernel:
    """Return the platform's own kernel where dtype and head size fit it, and else XLA's."""
    if device.platform == "tpu":
        return splash
    fits = dtype in (jnp.bfloat16, jnp.float16) and head_dim <= 128 and head_dim % 8 == 0
    major = str(getattr(device, "compute_capability", "")).split(".")[0]  # NVIDIA's alone is a number
    return cudnn if fits and major.isdigit() and int(major) >= 8 else xla


def cudnn(q: jax.Array, k: jax.Array, v: jax.Array, valid: Array) -> jax.Array:
    """Run cuDNN's fused kernel, which wants the padding on the right: a mask would become a bias, and be slow."""
    time = q.shape[1]
    if time % 2:  # JAX refuses a gradient through an odd length
        q, k, v = (jnp.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in (q, k, v))
        valid = jnp.pad(valid, ((0, 0), (0, 1)))
    lengths = valid.sum(axis=-1, dtype=jnp.int32)
    # What the kernel writes on padding, forward and backward, is not promised to be a number, and 0 * NaN is NaN.
    q, k, v = (jnp.where(valid[:, :, None, None], x, 0) for x in (q, k, v))
    y = jax.nn.dot_product_attention(
        q, k, v, is_causal=True, query_seq_lengths=lengths, key_value_seq_lengths=lengths, implementation="cudnn"
    )
    return jnp.where(valid[:, :, None, None], y, 0)[:, :time]


def splash(q: jax.Array, k: jax.Array, v: jax.Array, valid: Array, interpret: bool = False) -> jax.Array:
    """Run the Pallas kernel for TPUs, padding being another segment; `interpret`: anywhere, slowly, for tests."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    time, heads, dim = q.shape[1:]
    padded = -(-time // 128) * 128  # the kernel's blocks are multiples of a TPU's 128 lanes
    block = next(size for size in (512, 384, 256, 128) if padded % size == 0)
    sides = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    blocks = kernel.BlockSizes(**dict.fromkeys((f"block_{side}" for side in sides), block))  # type: ignore[arg-type]
    run = kernel.make_splash_mha(
        masks.MultiHeadMask([masks.CausalMask((padded, padded))] * heads),
        block_sizes=blocks,
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
    more = padded - time
    q, k, v = (jnp.pad(x, ((0, 0), (0, more), (0, 0), (0, 0))).swapaxes(1, 2) for x in (q * dim**-0.5, k, v))
    segments = jnp.pad(valid, ((0, 0), (0, more))).astype(jnp.int32)
    y = jax.vmap(run)(q, k, v, kernel.SegmentIds(segments, segments))
    return y.swapaxes(1, 2)[:, :time]


def xla(q: jax.Array, k: jax.Array, v: jax.Array, valid: Array) -> jax.Array:
    """Write the scores out: right for any padding, on any platform, and quadratic in memory."""
    batch, time, heads, dim = q.shape
    groups = k.shape[2]
    k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)  # [B, K, S, H]
    # The query heads of a group lie in one axis with the time: 7 ms against 20 on the CPU with two axes.
    q = q.reshape(batch, time, groups, -1, dim).transpose(0, 2, 3, 1, 4).reshape(batch, groups, -1, dim)
    scores = jnp.einsum("BKXH,BKSH->BKXS", q, k, preferred_element_type=jnp.float32) * dim**-0.5
    scores = scores.reshape(batch, groups, -1, time, time)
    mask = jnp.tril(jnp.ones((time, time), bool)) & valid[:, None, :]  # [B, T, S]
    scores = jnp.where(mask[:, None, None], scores, -1e30)  # finite: a row of padding sees nothing and stays finite
    probabilities = jax.nn.softmax(scores, axis=-1).astype(v.dtype).reshape(batch, groups, -1, time)
    y = jnp.einsum("BKXS,BKSH->BKXH", probabilities, v).reshape(batch, groups, -1, time, dim)
    return y.transpose(0, 3, 1, 2, 4).reshape(batch, time, heads, dim)


def attend_cached(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    cache: tuple[Array, Array],
    layer: jax.Array | int,
    lengths: jax.Array,
    kernel: Kernel,
    mesh: Mesh | None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Write one new token a row to a layer of the cache, and compute its attention to the row's tokens so far.

    A row reads its own tokens and not the room for more: `flash_decoding` where cuDNN's kernel computes whole sequences
    (it has none for a cache), `read_rows` elsewhere. The softmax is in float32.

    Args:
      q: ``[B, N, H]``.
      k, v: ``[B, K, H]``.
      cache: keys and values ``[L, B, K, S, H]``.
      layer: number of the layer among the L.
      lengths: int32 ``[B]``, at most S: tokens of each row with the new one, whose slot is the last of them. 0 where
        nothing is wanted of a row: its slot 0 is written, nothing is read, and its result is 0.
      kernel: the model's kernel, as `choose_kernel` returns it.
      mesh: the model's mesh.

    Returns:
      ``[B, N, H]``, and the cache.
    """
    _, _, groups, slots, dim = cache[0].shape
    on_gpu = device_of(mesh).platform == "gpu"
    fused = kernel is cudnn and slots >= 16 and dim >= 16 and dim.bit_count() == 1
    read = flash_decoding if fused else functools.partial(read_rows, at_once=on_gpu)

    def write_and_read(
        q: jax.Array, k: jax.Array, v: jax.Array, keys: Array, values: Array, layer: jax.Array, lengths: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        last = jnp.maximum(lengths - 1, 0)
        keys, values = (write(old, new, layer, last, on_gpu) for old, new in ((keys, k), (values, v)))
        return read(q, keys, values, layer, lengths), keys, values

    arguments = q, k, v, *cache, jnp.asarray(layer, jnp.int32), lengths
    if mesh is None:
        y, *written = write_and_read(*arguments)
    else:
        whole = cache_spec(groups, mesh)
        row = P("fsdp", whole[2], None)
        y, *written = jax.shard_map(
            write_and_read,
            mesh=mesh,
            in_specs=(row, row, row, whole, whole, P(), P("fsdp")),
            out_specs=(row, whole, whole),
            check_vma=False,
        )(*arguments)
    return y, (written[0], written[1])


def write(cache: Array, new: jax.Array, layer: jax.Array, slots: jax.Array, at_once: bool) -> jax.Array:
    """Write ``[B, K, H]`` into a layer of the cache ``[L, B, K, S, H]``, each row at its own of `slots`, in place.

    Row by row, unless `at_once` as in `read_rows`: for a scatter XLA:TPU copies the whole cache, twice a layer.
    """
    if at_once:
        return jnp.asarray(cache).at[layer, jnp.arange(len(slots)), :, slots].set(new)

    def row(i: jax.Array, cache: jax.Array) -> jax.Array:
        place = layer, i.astype(jnp.int32), ZERO, slots[i], ZERO
        written = jax.lax.dynamic_update_slice(cache, new[i][None, None, :, None], place)
        return with_layout_constraint(written, ROW_MAJOR)

    return jax.lax.fori_loop(0, len(slots), row, cache)


def read_rows(
    q: jax.Array, keys: jax.Array, values: jax.Array, layer: jax.Array, lengths: jax.Array, at_once: bool = False
) -> jax.Array:
    """Read a layer of the cache row by row, `SLOTS_AT_ONCE` slots at a time, as far as each row is filled.

    At 32 rows of 256 tokens, all filled, four layers of width 512 take 24 ms a token on one core, against 81 with all
    rows in one sum of products over a cache whose rows lie side by side.

    Args:
      q, lengths: arguments of `attend_cached`.
      keys, values: ``[L, B, K, S, H]``.
      layer: int32 scalar.
      at_once: all rows side by side, as far as the longest is filled: GPUs, on which each pass through a loop waits for
        the host.

    Returns:
      ``[B, N, H]``.
    """
    _, batch, groups, slots, dim = keys.shape
    tile = min(slots, SLOTS_AT_ONCE)

    def row(inputs: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        number, mine, length = inputs

        def body(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            total, peak, weight = carry
            begin = i * tile
            start = jnp.minimum(begin, slots - tile)  # the last tile overlaps the one before it, and leaves that out
            size = 1, 1, groups, tile, dim
            k, v = (jax.lax.dynamic_slice(x, (layer, number, ZERO, start, ZERO), size)[0, 0] for x in (keys, values))
            at = start + jnp.arange(tile)
            scores = jnp.einsum("KGH,KSH->KGS", mine, k, preferred_element_type=jnp.float32) * dim**-0.5
            scores = jnp.where((at >= begin) & (at < length), scores, -1e30)
            higher = jnp.maximum(peak, scores.max(axis=-1))
            shares = jnp.exp(scores - higher[..., None])
            fade = jnp.exp(peak - higher)
            read = jnp.einsum("KGS,KSH->KGH", shares.astype(v.dtype), v, preferred_element_type=jnp.float32)
            return total * fade[..., None] + read, higher, weight * fade + shares.sum(axis=-1)

        nothing = jnp.zeros(mine.shape, jnp.float32)
        start = nothing, jnp.full(mine.shape[:2], -1e30, jnp.float32), nothing[..., 0]
        total, _, weight = jax.lax.fori_loop(0, -(-length // tile), body, start)
        return total / jnp.maximum(weight, 1.0)[..., None]  # at least 1, the largest one's, but in rows of no tokens

    inputs = jnp.arange(batch, dtype=jnp.int32), q.reshape(batch, groups, -1, dim), lengths
    read = jax.vmap(row)(inputs) if at_once else jax.lax.map(row, inputs)
    return read.reshape(q.shape).astype(values.dtype)


def flash_decoding(
    q: jax.Array, keys: jax.Array, values: jax.Array, layer: jax.Array, lengths: jax.Array, interpret: bool = False
) -> jax.Array:
    """Read a layer of the cache once, as Triton's kernel on a GPU; `interpret`: anywhere, slowly, for tests.

    Each program reads an eighth of the slots of one row and key-value head, 256 at least, as far as they are filled,
    and what they found is joined afterwards (Dao et al. 2023, Flash-Decoding). For that each hands on 8 KiB, empty
    ones too: at 256 of 8,704 slots each, they would be two thirds of the bytes that a row of 1,500 tokens needs.

    Args:
      q, lengths: arguments of `attend_cached`.
      keys, values: the whole cache, ``[L, B, K, S, H]``, S at least 16 and H a power of two, 16 or more: a slice of it
        would be a copy.
      layer: int32 scalar.

    Returns:
      ``[B, N, H]``.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    _, batch, groups, slots, dim = keys.shape
    tile = min(64, 1 << (slots.bit_length() - 1))
    most = max(256, -(-slots // (8 * tile)) * tile)
    heads = q.shape[1] // groups
    rows = 16 * -(-heads // 16)  # a matrix unit's products have 16 rows at least
    q = (q * dim**-0.5).astype(keys.dtype).reshape(batch, groups, heads, dim)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, rows - heads), (0, 0)))

    def kernel(layer_ref, q_ref, k_ref, v_ref, length_ref, sum_ref, peak_ref, weight_ref):  # type: ignore[no-untyped-def]
        row, group, part = (pl.program_id(axis) for axis in range(3))
        layer, mine, length = layer_ref[0], q_ref[row, group], length_ref[row]

        def body(i, carry):  # type: ignore[no-untyped-def]
            total, peak, weight = carry
            begin = part * most + i * tile
            start = jnp.minimum(begin, slots - tile)  # the last tile overlaps the one before it, and leaves that out
            k, v = (ref[layer, row, group, pl.ds(start, tile)] for ref in (k_ref, v_ref))
            at = start + jnp.arange(tile)
            counts = (at >= begin) & (at < length)
            scores = jnp.where(counts, jnp.dot(mine, k.T, preferred_element_type=jnp.float32), -1e30)
            higher = jnp.maximum(peak, scores.max(axis=1))
            shares = jnp.where(counts, jnp.exp(scores - higher[:, None]), 0.0)
            fade = jnp.exp(peak - higher)
            read = jnp.dot(shares.astype(v.dtype), v, preferred_element_type=jnp.float32)
            return total * fade[:, None] + read, higher, weight * fade + shares.sum(axis=1)

        nothing = jnp.zeros((rows, dim), jnp.float32), jnp.full(rows, -1e30, jnp.float32), jnp.zeros(rows, jnp.float32)
        filled = jnp.clip(length - part * most, 0, most)
        found = jax.lax.fori_loop(0, (filled + tile - 1) // tile, body, nothing)
        for ref, x in zip((sum_ref, peak_ref, weight_ref), found, strict=True):
            ref[part, group, row] = x

    grid = batch, groups, -(-slots // most)
    lead = grid[2], groups, batch, rows
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((*lead, dim), lead, lead)]
    run = pl.pallas_call(
        kernel,
        out_shape=shapes,
        grid=grid,
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        name="flash_decoding",
    )
    total, peak, weight = run(layer[None], q, keys, values, lengths)
    share = jnp.exp(peak - peak.max(axis=0))
    weight = jnp.maximum((weight * share).sum(axis=0), 1.0)  # at least 1, the largest one's, but in rows of no tokens
    read = (total * share[..., None]).sum(axis=0) / weight[..., None]  # [K, B, rows, H]
    return read[:, :, :heads].transpose(1, 0, 2, 3).reshape(batch, groups * heads, dim).astype(values.dtype)

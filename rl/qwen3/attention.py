"""Causal self-attention behind one function, and attention of new tokens to a cache; axis letters as in `model`."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxlake.record import Array
from rl.config import ConfigError
from rl.config.choices import AttentionKind
from rl.qwen3.sharding import cache_spec


def attend(q: jax.Array, k: jax.Array, v: jax.Array, valid: Array, kind: AttentionKind, mesh: Mesh | None) -> jax.Array:
    """Compute grouped-query causal self-attention of whole sequences, with the softmax in float32.

    Args:
      q: ``[B, T, N, H]``.
      k, v: ``[B, T, K, H]``.
      valid: bool ``[B, T]``, False on padding; with cuDNN's kernel all of it on the right.
      kind: the kernel, as `choose_kernel` returns it: not AUTO.
      mesh: of the model, rows over `fsdp` and heads over `tp`; None on one device.

    Returns:
      ``[B, T, N, H]``; what stands on padding means nothing, and is finite.
    """
    kernel = {AttentionKind.XLA: xla, AttentionKind.CUDNN: cudnn, AttentionKind.SPLASH: splash}[kind]
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


def choose_kernel(kind: AttentionKind, device: jax.Device, dtype: jnp.dtype, head_dim: int) -> AttentionKind:
    """Return the kernel that `kind` means on a device; AUTO takes the platform's own where dtype and head size fit it.

    Raises:
      ConfigError: if another kind than AUTO cannot run there; one line that says why.
    """
    platform, obstacles = device.platform, dict[AttentionKind, str]()
    if platform != "tpu":
        obstacles[AttentionKind.SPLASH] = f"the device must be a TPU, not a {platform}"
    if platform != "gpu":
        obstacles[AttentionKind.CUDNN] = f"the device must be an NVIDIA GPU, not a {platform}"
    elif not _is_ampere_or_later(device):
        obstacles[AttentionKind.CUDNN] = f"the GPU must be NVIDIA's, Ampere or later, not a {device.device_kind}"
    elif dtype not in (jnp.bfloat16, jnp.float16):
        obstacles[AttentionKind.CUDNN] = f"model.dtype must be bfloat16, not {jnp.dtype(dtype)}"
    elif head_dim > 128 or head_dim % 8:
        obstacles[AttentionKind.CUDNN] = f"head_dim = {head_dim} must be a multiple of 8 and at most 128"
    if kind is AttentionKind.AUTO:
        return next(k for k in (AttentionKind.SPLASH, AttentionKind.CUDNN, AttentionKind.XLA) if k not in obstacles)
    if kind in obstacles:
        raise ConfigError(f"model.attention = {kind}: {obstacles[kind]}")
    return kind


def _is_ampere_or_later(device: jax.Device) -> bool:
    """Read the compute capability; AMD's GPUs, which are also of the platform "gpu", have none that is a number."""
    major = str(getattr(device, "compute_capability", "")).split(".")[0]
    return major.isdigit() and int(major) >= 8


def cudnn(q: jax.Array, k: jax.Array, v: jax.Array, valid: Array) -> jax.Array:
    """Run cuDNN's fused kernel, which wants the padding on the right: a mask would become a bias, and be slow."""
    lengths = valid.sum(axis=-1, dtype=jnp.int32)
    # What the kernel writes on padding, forward and backward, is not promised to be a number, and 0 * NaN is NaN.
    q, k, v = (jnp.where(valid[:, :, None, None], x, 0) for x in (q, k, v))
    y = jax.nn.dot_product_attention(
        q, k, v, is_causal=True, query_seq_lengths=lengths, key_value_seq_lengths=lengths, implementation="cudnn"
    )
    return jnp.where(valid[:, :, None, None], y, 0)


def splash(q: jax.Array, k: jax.Array, v: jax.Array, valid: Array, interpret: bool = False) -> jax.Array:
    """Run the Pallas kernel for TPUs, padding being another segment; `interpret`: anywhere, slowly, for tests."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    time, heads, dim = q.shape[1:]
    padded = -(-time // 128) * 128  # the kernel's blocks are multiples of a TPU's 128 lanes
    block = next(size for size in (512, 384, 256, 128) if padded % size == 0)
    blocks = kernel.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
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
    keys: jax.Array,
    values: jax.Array,
    layer: jax.Array | int,
    seen: jax.Array,
    kind: AttentionKind,
    mesh: Mesh | None,
) -> jax.Array:
    """Compute attention of one new token a row to a layer of the cache, with the softmax in float32.

    Beside cuDNN's kernel for whole sequences, which has none for a cache in this layout, it is `flash_decoding`.
    Elsewhere products and sums, not matrix products, which have as few rows as a key-value head has query heads: they
    make XLA copy the layer out of the cache, transposed, on CPU and TPU alike. The sums of a group's query heads are
    one operation with several results, so that the cache is read once and not once for each of them, except on the CPU,
    where that is not vectorised (19 ms a token against 30 at batch 32, four layers of width 512, one core).

    Args:
      q: ``[B, N, H]``.
      keys, values: ``[L, S, K, B, H]``.
      layer: which of the L.
      seen: bool ``[B, S]``, the slots a row looks at, at least one.
      kind: the model's kernel, as `choose_kernel` returns it.
      mesh: of the model.

    Returns:
      ``[B, N, H]``.
    """
    batch, heads, dim = q.shape
    if kind is AttentionKind.CUDNN and keys.shape[1] >= 16 and dim >= 16 and dim.bit_count() == 1:
        number = jnp.asarray(layer, jnp.int32)
        if mesh is None:
            return flash_decoding(q, keys, values, number, seen)
        cache = cache_spec(keys.shape[2], mesh)
        row = P("fsdp", cache[2], None)
        spread = jax.shard_map(
            flash_decoding, mesh=mesh, in_specs=(row, cache, cache, P(), P("fsdp")), out_specs=row, check_vma=False
        )
        return spread(q, keys, values, number, seen)
    keys, values = keys[layer], values[layer]
    q = q.reshape(batch, keys.shape[1], -1, dim).transpose(2, 1, 0, 3).astype(jnp.float32) * dim**-0.5  # [G, K, B, H]
    total = _sums_on_cpu if device_of(mesh).platform == "cpu" else _sums
    scores = total([keys * one for one in q], axis=3)  # G times [S, K, B]
    shares = [jax.nn.softmax(jnp.where(seen.T[:, None], one, -1e30), axis=0) for one in scores]
    read = total([values * one[..., None] for one in shares], axis=0)  # G times [K, B, H]
    return jnp.stack(read, axis=2).astype(values.dtype).swapaxes(0, 1).reshape(batch, heads, dim)


def flash_decoding(
    q: jax.Array, keys: jax.Array, values: jax.Array, layer: jax.Array, seen: jax.Array, interpret: bool = False
) -> jax.Array:
    """Read a layer of the cache once, as Triton's kernel on a GPU; `interpret`: anywhere, slowly, for tests.

    Each program reads 256 slots of one row and key-value head, and what they found is joined afterwards (Dao et al.
    2023, Flash-Decoding). On an H200 it reads 3.2 TB/s, as fast as a copy, where XLA's sums reach .25 to .55.

    Args:
      q, seen: as `attend_cached` takes them.
      keys, values: the whole cache, ``[L, S, K, B, H]``, S at least 16 and H a power of two, 16 or more: a slice of it
        would be a copy.
      layer: int32 scalar.

    Returns:
      ``[B, N, H]``.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    _, slots, groups, batch, dim = keys.shape
    tile, most = min(64, 1 << (slots.bit_length() - 1)), 256
    heads = q.shape[1] // groups
    rows = 16 * -(-heads // 16)  # a matrix unit's products have 16 rows at least
    q = (q * dim**-0.5).astype(keys.dtype).reshape(batch, groups, heads, dim)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, rows - heads), (0, 0)))

    def kernel(layer_ref, q_ref, k_ref, v_ref, seen_ref, sum_ref, peak_ref, weight_ref):  # type: ignore[no-untyped-def]
        row, group, part = (pl.program_id(axis) for axis in range(3))
        layer, mine = layer_ref[0], q_ref[row, group]

        def body(i, carry):  # type: ignore[no-untyped-def]
            total, peak, weight = carry
            begin = part * most + i * tile
            start = jnp.minimum(begin, slots - tile)  # the last tile overlaps the one before it, and leaves that out
            k, v = (ref[layer, pl.ds(start, tile), group, row] for ref in (k_ref, v_ref))
            counts = seen_ref[row, pl.ds(start, tile)] & (start + jnp.arange(tile) >= begin)
            scores = jnp.where(counts, jnp.dot(mine, k.T, preferred_element_type=jnp.float32), -1e30)
            higher = jnp.maximum(peak, scores.max(axis=1))
            shares = jnp.where(counts, jnp.exp(scores - higher[:, None]), 0.0)
            fade = jnp.exp(peak - higher)
            read = jnp.dot(shares.astype(v.dtype), v, preferred_element_type=jnp.float32)
            return total * fade[:, None] + read, higher, weight * fade + shares.sum(axis=1)

        nothing = jnp.zeros((rows, dim), jnp.float32), jnp.full(rows, -1e30, jnp.float32), jnp.zeros(rows, jnp.float32)
        found = jax.lax.fori_loop(0, most // tile, body, nothing)
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
    total, peak, weight = run(layer[None], q, keys, values, seen)
    share = jnp.exp(peak - peak.max(axis=0))
    read = (total * share[..., None]).sum(axis=0) / (weight * share).sum(axis=0)[..., None]  # [K, B, rows, H]
    return read[:, :, :heads].transpose(1, 0, 2, 3).reshape(batch, groups * heads, dim).astype(values.dtype)


def _sums(terms: list[jax.Array], axis: int) -> list[jax.Array]:
    add = lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True))  # noqa: E731
    return jax.lax.reduce(tuple(terms), (jnp.float32(0),) * len(terms), add, (axis,))


def _sums_on_cpu(terms: list[jax.Array], axis: int) -> list[jax.Array]:
    if axis == 0:
        return [term.sum(axis) for term in terms]
    # A window as wide as the axis: XLA:CPU vectorises it, and a sum over the innermost axis it does not (0.9 ms against
    # 1.7 for all of the attention of one layer at batch 32, as above).
    window = (1,) * axis + terms[0].shape[axis:]
    return [jax.lax.reduce_window(term, 0.0, jax.lax.add, window, window, "valid")[..., 0] for term in terms]

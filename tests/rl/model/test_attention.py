"""Every kernel against the scores written out, and the choice between them."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.model import attention
from rl.model.attention import (
    attend,
    attend_cached,
    choose_kernel,
    cudnn,
    flash_decoding,
    read_rows,
    splash,
    xla,
)
from rl.model.sharding import make_mesh

ON_GPU = jax.default_backend() == "gpu"


def inputs(rows: int, time: int, dtype=jnp.float32, dim: int = 8) -> tuple[jax.Array, ...]:
    """q with four heads, k and v with two, and a direction to differentiate along."""
    shapes = [(rows, time, heads, dim) for heads in (4, 2, 2, 4)]
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes)


def by_hand(q: np.ndarray, k: np.ndarray, v: np.ndarray, looks: np.ndarray) -> np.ndarray:
    """One query ``[H]`` on keys and values ``[S, H]`` where `looks`, in float64."""
    scores = np.where(looks, k.astype(np.float64) @ q / np.sqrt(len(q)), -np.inf)
    shares = np.exp(scores - scores.max())
    return shares / shares.sum() @ v


def values_and_gradients(kernel, q, k, v, direction, valid):
    def along(q, k, v):
        y = jnp.where(valid[..., None, None], kernel(q, k, v, valid), 0)
        return (y * direction).sum(), y

    (_, y), gradients = jax.jit(jax.value_and_grad(along, (0, 1, 2), has_aux=True))(q, k, v)
    return y, *gradients


def test_attention_is_the_softmax_over_the_tokens_up_to_each():
    q, k, v, _ = inputs(2, 5)
    valid = np.array([[True] * 4 + [False], [False, False] + [True] * 3])
    y = np.asarray(jax.jit(lambda *x: attend(*x, xla, None))(q, k, v, valid))
    assert np.isfinite(y).all()
    for row, time in np.argwhere(valid):
        for head in range(4):
            looks = valid[row] & (np.arange(5) <= time)
            expected = by_hand(
                *(np.asarray(x)[row] for x in (q[:, time, head], k[:, :, head // 2], v[:, :, head // 2])), looks
            )
            np.testing.assert_allclose(y[row, time, head], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("slots", "at_once"), [(7, False), (16, True), (300, False), (300, True)])
def test_a_row_reads_its_own_tokens_in_the_cache(monkeypatch, slots, at_once):
    """One tile of all slots, whole tiles, and a last one that overlaps."""
    monkeypatch.setattr(attention, "SLOTS_AT_ONCE", 16)
    q, _, _, (keys, values), lengths = cache_inputs(slots, dim=8)
    read = jax.jit(functools.partial(read_rows, at_once=at_once))(q, keys, values, jnp.int32(1), lengths)
    np.testing.assert_allclose(read, cache_by_hand(q, keys[1], values[1], lengths), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("slots", [16, pytest.param(300, marks=pytest.mark.heavy), 2500])
def test_flash_decoding_is_the_softmax_over_a_rows_tokens(slots):
    """One part of one tile, a last tile that overlaps, and parts of more than 256 slots, of which rows need few."""
    q, _, _, (keys, values), lengths = cache_inputs(slots, dim=16)
    read = flash_decoding(q, keys, values, jnp.int32(1), lengths, interpret=not ON_GPU)
    expected = cache_by_hand(q, keys[1], values[1], lengths)
    np.testing.assert_allclose(read, expected, rtol=1e-4, atol=2e-3 if ON_GPU else 1e-5)  # a GPU multiplies in TF32


@pytest.mark.parametrize("mesh", [None, (2, 2)])
def test_a_new_token_goes_behind_its_row_and_nowhere_else(mesh):
    mesh = mesh and make_mesh(*mesh, devices=jax.devices()[:4])
    q, k, v, cache, lengths = cache_inputs(slots=12, dim=8)
    attend_to_cache = jax.jit(lambda *x: attend_cached(*x, xla, mesh))
    y, written = attend_to_cache(q, k, v, cache, 1, lengths)
    for old, new, found in zip(cache, (k, v), written, strict=True):
        expected = np.array(old)
        for row, length in enumerate(lengths):
            expected[1, row, :, max(length - 1, 0)] = new[row]
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(y, cache_by_hand(q, written[0][1], written[1][1], lengths), rtol=1e-4, atol=1e-5)


def test_slots_that_no_row_fills_are_not_read(monkeypatch):
    """What lies behind a row's last tile may be anything, even if it would spoil a product with zero."""
    monkeypatch.setattr(attention, "SLOTS_AT_ONCE", 4)
    q, _, _, (keys, values), lengths = cache_inputs(slots=12, dim=8)
    behind = np.arange(12) >= -(-np.asarray(lengths)[:, None] // 4) * 4  # [B, S]
    assert behind.any() and not behind.all()
    spoilt = [jnp.where(behind[:, None, :, None], jnp.nan, x) for x in (keys, values)]
    read = read_rows(q, *spoilt, jnp.int32(1), lengths)
    np.testing.assert_array_equal(read, read_rows(q, keys, values, jnp.int32(1), lengths))


@pytest.mark.skipif(not ON_GPU, reason="Triton's kernel runs on NVIDIA GPUs")
def test_on_a_gpu_a_cache_is_read_by_flash_decoding_on_a_mesh_and_without():
    q, k, v, cache, lengths = cache_inputs(300, 64, jnp.bfloat16)
    for mesh in None, make_mesh(1, 1):
        program = jax.jit(lambda *x, mesh=mesh: attend_cached(*x, cudnn, mesh))
        assert "flash_decoding" in program.lower(q, k, v, cache, 1, lengths).as_text()
        y, (keys, values) = program(q, k, v, cache, 1, lengths)
        expected = cache_by_hand(q, keys[1], values[1], lengths)
        np.testing.assert_allclose(np.asarray(y, np.float32), expected, rtol=5e-2, atol=2e-2)


def cache_inputs(slots: int, dim: int, dtype=jnp.float32):
    """q, k and v of four rows, two layers of a cache with two heads, and lengths: all, none, one and a part."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(4, 4, dim)), *rng.normal(size=(2, 4, 2, dim))
    cache = rng.normal(size=(2, 2, 4, 2, slots, dim))
    lengths = jnp.array([slots, 0, 1, slots // 2], jnp.int32)
    return *(jnp.asarray(x, dtype) for x in (q, k, v)), tuple(jnp.asarray(cache, dtype)), lengths


def cache_by_hand(q, keys, values, lengths) -> np.ndarray:
    """The attention of each row and head to one layer's cache; 0 where a row has no token."""
    q, keys, values = (np.asarray(x, np.float32) for x in (q, keys, values))
    read = np.zeros(q.shape)
    for row, head in np.ndindex(q.shape[:2]):
        looks = np.arange(keys.shape[2]) < lengths[row]
        if looks.any():
            read[row, head] = by_hand(q[row, head], keys[row, head // 2], values[row, head // 2], looks)
    return read


def test_splash_equals_xla_with_padding_on_either_side_and_a_length_that_is_no_multiple_of_its_blocks():
    time = 130
    q, k, v, direction = inputs(2, time)
    valid = np.stack([np.arange(time) < 117, np.arange(time) >= 20])
    ours = values_and_gradients(lambda *x: splash(*x, interpret=True), q, k, v, direction, valid)
    for found, expected in zip(ours, values_and_gradients(xla, q, k, v, direction, valid), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not ON_GPU, reason="cuDNN's kernel runs on NVIDIA GPUs")
@pytest.mark.parametrize("time", [7, 130, 512])
def test_cudnn_equals_xla_on_right_padded_rows(time):
    q, k, v, direction = inputs(3, time, jnp.bfloat16, dim=64)
    valid = np.arange(time) < np.array([time, 70, 0])[:, None]
    ours = values_and_gradients(cudnn, q, k, v, direction, valid)
    wide = values_and_gradients(xla, *(x.astype(jnp.float32) for x in (q, k, v, direction)), valid)
    for found, expected in zip(ours, wide, strict=True):
        assert np.isfinite(np.asarray(found, np.float32)).all()
        np.testing.assert_allclose(np.asarray(found, np.float32), expected, rtol=5e-2, atol=5e-2)


def test_cudnn_gets_an_even_length_with_the_padding_on_the_right(monkeypatch):
    """JAX refuses a gradient through its call of cuDNN of an odd length (0.11.2); with XLA's in the kernel's place."""

    def kernel(q, k, v, *, is_causal, query_seq_lengths, key_value_seq_lengths, implementation):
        assert q.shape[1] % 2 == 0 and is_causal and implementation == "cudnn"
        np.testing.assert_array_equal(query_seq_lengths, key_value_seq_lengths)
        return xla(q, k, v, jnp.arange(q.shape[1]) < query_seq_lengths[:, None])

    monkeypatch.setattr(attention.jax.nn, "dot_product_attention", kernel)
    for time in (6, 7):
        q, k, v, _ = inputs(3, time)
        valid = np.arange(time) < np.array([time, 3, 0])[:, None]
        y = cudnn(q, k, v, valid)
        assert y.shape == q.shape
        np.testing.assert_allclose(y, jnp.where(valid[..., None, None], xla(q, k, v, valid), 0), atol=1e-6)


@pytest.mark.parametrize(("fsdp", "tp"), [(4, 2), (2, 4)])
def test_a_kernel_gets_its_part_of_rows_and_heads_on_a_mesh(fsdp, tp):
    """With XLA's in the place of a kernel that knows nothing of the mesh; `tp` = 4 does not divide the two heads."""
    parts = []

    def kernel(q, k, v, valid):
        parts.append((q.shape, k.shape))
        return xla(q, k, v, valid)

    q, k, v, _ = inputs(8, 6)
    valid = np.arange(6) < np.arange(1, 9)[:, None]
    mesh = make_mesh(fsdp, tp)
    y = jax.jit(lambda *x: attend(*x, kernel, mesh))(q, k, v, valid)
    np.testing.assert_allclose(y, jax.jit(xla)(q, k, v, valid), rtol=1e-5, atol=1e-6)
    heads = (2, 1) if tp == 2 else (4, 2)
    assert parts == [((8 // fsdp, 6, heads[0], 8), (8 // fsdp, 6, heads[1], 8))]


@pytest.mark.parametrize(
    ("platform", "capability", "dtype", "kernel"),
    [
        ("cpu", "", jnp.bfloat16, xla),
        ("tpu", "", jnp.bfloat16, splash),
        ("gpu", "9.0", jnp.bfloat16, cudnn),
        ("gpu", "9.0", jnp.float32, xla),
        ("gpu", "7.5", jnp.bfloat16, xla),
    ],
)
def test_the_platforms_kernel_is_taken_where_it_runs(platform, capability, dtype, kernel):
    device = SimpleNamespace(platform=platform, compute_capability=capability)
    assert choose_kernel(device, dtype, 128) is kernel

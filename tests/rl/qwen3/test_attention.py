"""Every kernel against the scores written out, and the choice between them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.config import ConfigError
from rl.config.choices import AttentionKind
from rl.qwen3 import attention
from rl.qwen3.attention import attend, attend_cached, choose_kernel, cudnn, flash_decoding, splash, xla
from rl.qwen3.sharding import make_mesh

CPU = SimpleNamespace(platform="cpu", device_kind="cpu")
TPU = SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
HOPPER = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100", compute_capability="9.0")
ON_GPU = jax.default_backend() == "gpu"
TURING = SimpleNamespace(platform="gpu", device_kind="Tesla T4", compute_capability="7.5")


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
    y = np.asarray(jax.jit(lambda *x: attend(*x, AttentionKind.XLA, None))(q, k, v, valid))
    assert np.isfinite(y).all()
    for row, time in np.argwhere(valid):
        for head in range(4):
            looks = valid[row] & (np.arange(5) <= time)
            expected = by_hand(
                *(np.asarray(x)[row] for x in (q[:, time, head], k[:, :, head // 2], v[:, :, head // 2])), looks
            )
            np.testing.assert_allclose(y[row, time, head], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_attention_to_a_cache_is_the_softmax_over_the_slots_seen(platform, monkeypatch):
    """The sums of a group's heads are one operation but on the CPU; both are run here."""
    monkeypatch.setattr(attention, "device_of", lambda mesh: SimpleNamespace(platform=platform))
    q, keys, values, seen = cache_inputs(slots=7, dim=8)
    read = attend_cached(q, keys, values, 1, seen, AttentionKind.XLA, None)
    np.testing.assert_allclose(read, cache_by_hand(q, keys[1], values[1], seen), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("slots", [16, 300, 512])
def test_flash_decoding_is_the_softmax_over_the_slots_seen(slots):
    """Fewer slots than a tile, a last tile that overlaps, whole parts; of one row all but one slot is hidden."""
    q, keys, values, seen = cache_inputs(slots, dim=16)
    seen[2] = np.arange(slots) == slots - 1
    read = flash_decoding(q, keys, values, jnp.int32(1), jnp.asarray(seen), interpret=not ON_GPU)
    expected = cache_by_hand(q, keys[1], values[1], seen)
    np.testing.assert_allclose(read, expected, rtol=1e-4, atol=2e-3 if ON_GPU else 1e-5)  # a GPU multiplies in TF32


@pytest.mark.skipif(not ON_GPU, reason="Triton's kernel runs on NVIDIA GPUs")
def test_on_a_gpu_a_cache_is_read_by_flash_decoding_on_a_mesh_and_without():
    q, keys, values, seen = cache_inputs(300, 64, jnp.bfloat16)
    for mesh in None, make_mesh(1, 1):
        program = jax.jit(lambda *x, mesh=mesh: attend_cached(*x, AttentionKind.CUDNN, mesh))
        assert "flash_decoding" in program.lower(q, keys, values, 1, seen).as_text()
        read = np.asarray(program(q, keys, values, 1, seen), np.float32)
        np.testing.assert_allclose(read, cache_by_hand(q, keys[1], values[1], seen), rtol=5e-2, atol=2e-2)


def cache_inputs(slots: int, dim: int, dtype=jnp.float32):
    """q of three rows and four heads, two layers of keys and values with two heads, and what is seen."""
    rng = np.random.default_rng(0)
    q, keys, values = rng.normal(size=(3, 4, dim)), *rng.normal(size=(2, 2, slots, 2, 3, dim))
    return *(jnp.asarray(x, dtype) for x in (q, keys, values)), rng.random((3, slots)) < 0.6


def cache_by_hand(q, keys, values, seen) -> np.ndarray:
    """The attention of each row and head to one layer's cache."""
    q, keys, values = (np.asarray(x, np.float32) for x in (q, keys, values))
    read = np.zeros(q.shape)
    for row, head in np.ndindex(q.shape[:2]):
        read[row, head] = by_hand(q[row, head], keys[:, head // 2, row], values[:, head // 2, row], seen[row])
    return read


def test_splash_equals_xla_with_padding_on_either_side_and_a_length_that_is_no_multiple_of_its_blocks():
    time = 130
    q, k, v, direction = inputs(2, time)
    valid = np.stack([np.arange(time) < 117, np.arange(time) >= 20])
    ours = values_and_gradients(lambda *x: splash(*x, interpret=True), q, k, v, direction, valid)
    for found, expected in zip(ours, values_and_gradients(xla, q, k, v, direction, valid), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not ON_GPU, reason="cuDNN's kernel runs on NVIDIA GPUs")
@pytest.mark.parametrize("time", [130, 512])
def test_cudnn_equals_xla_on_right_padded_rows(time):
    q, k, v, direction = inputs(3, time, jnp.bfloat16, dim=64)
    valid = np.arange(time) < np.array([time, 70, 0])[:, None]
    ours = values_and_gradients(cudnn, q, k, v, direction, valid)
    wide = values_and_gradients(xla, *(x.astype(jnp.float32) for x in (q, k, v, direction)), valid)
    for found, expected in zip(ours, wide, strict=True):
        assert np.isfinite(np.asarray(found, np.float32)).all()
        np.testing.assert_allclose(np.asarray(found, np.float32), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(("fsdp", "tp"), [(4, 2), (2, 4)])
def test_a_kernel_gets_its_part_of_rows_and_heads_on_a_mesh(fsdp, tp, monkeypatch):
    """With XLA's in the place of a kernel that knows nothing of the mesh; `tp` = 4 does not divide the two heads."""
    parts = []

    def kernel(q, k, v, valid):
        parts.append((q.shape, k.shape))
        return xla(q, k, v, valid)

    monkeypatch.setattr(attention, "splash", kernel)
    q, k, v, _ = inputs(8, 6)
    valid = np.arange(6) < np.arange(1, 9)[:, None]
    mesh = make_mesh(fsdp, tp)
    y = jax.jit(lambda *x: attend(*x, AttentionKind.SPLASH, mesh))(q, k, v, valid)
    np.testing.assert_allclose(y, jax.jit(xla)(q, k, v, valid), rtol=1e-5, atol=1e-6)
    heads = (2, 1) if tp == 2 else (4, 2)
    assert parts == [((8 // fsdp, 6, heads[0], 8), (8 // fsdp, 6, heads[1], 8))]


@pytest.mark.parametrize(
    ("device", "dtype", "dim", "kind"),
    [
        (CPU, jnp.bfloat16, 128, AttentionKind.XLA),
        (TPU, jnp.bfloat16, 128, AttentionKind.SPLASH),
        (TPU, jnp.float32, 16, AttentionKind.SPLASH),
        (HOPPER, jnp.bfloat16, 128, AttentionKind.CUDNN),
        (HOPPER, jnp.float32, 128, AttentionKind.XLA),
        (TURING, jnp.bfloat16, 128, AttentionKind.XLA),
    ],
)
def test_auto_takes_the_platforms_kernel_where_it_runs(device, dtype, dim, kind):
    assert choose_kernel(AttentionKind.AUTO, device, dtype, dim) is kind
    assert choose_kernel(AttentionKind.XLA, device, dtype, dim) is AttentionKind.XLA  # and can be overridden


@pytest.mark.parametrize(
    ("kind", "device", "dtype", "dim", "message"),
    [
        (AttentionKind.SPLASH, CPU, jnp.float32, 128, "model.attention = splash: the device must be a TPU, not a cpu"),
        (AttentionKind.CUDNN, TPU, jnp.bfloat16, 128, "the device must be an NVIDIA GPU, not a tpu"),
        (AttentionKind.CUDNN, TURING, jnp.bfloat16, 128, "Ampere or later, not a Tesla T4"),
        (AttentionKind.CUDNN, HOPPER, jnp.float32, 128, "model.dtype must be bfloat16, not float32"),
        (AttentionKind.CUDNN, HOPPER, jnp.bfloat16, 12, "head_dim = 12 must be a multiple of 8"),
    ],
)
def test_a_kernel_that_cannot_run_there_says_why_in_one_line(kind, device, dtype, dim, message):
    with pytest.raises(ConfigError, match=message) as error:
        choose_kernel(kind, device, dtype, dim)
    assert "\n" not in str(error.value)

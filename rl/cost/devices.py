"""Rates of devices: matrix work and memory, as their makers rate them, or as measured where nobody does."""

import dataclasses
import time

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Rates:
    """Peak rates of a device.

    Attributes:
      flops: floating-point operations a second in dense bfloat16 products; float32 on a CPU.
      memory: bytes a second from and to its main memory.
    """

    name: str
    flops: float
    memory: float


RATES = {
    "NVIDIA H200": Rates("H200", 989e12, 4.8e12),
    "NVIDIA H100": Rates("H100", 989e12, 3.35e12),
    "NVIDIA A100": Rates("A100 80GB", 312e12, 2.039e12),
    "TPU v5 lite": Rates("v5e", 197e12, 0.819e12),
    "TPU v5": Rates("v5p", 459e12, 2.765e12),
    "TPU v6 lite": Rates("v6e", 918e12, 1.64e12),
}
"""By the beginning of what JAX calls a device, the first that fits. NVIDIA's data sheets of the SXM forms (H200: 989.4
TFLOP/s without sparsity, 4.8 TB/s; H100: 989.4, 3.35; A100 80GB: 312, 2.039), and Google's pages of Cloud TPU v5e (197
TFLOP/s, 819 GB/s), v5p (459, 2,765) and v6e (918, 1,640)."""

MATRIX_SHARE, MEMORY_SHARE = 0.53, 0.55
"""Shares of the rated peaks that an H200 reached (docs/policy.md, "On a GPU"). Training Qwen3-4B at 4 x 2,048 tokens:
40 % of 989 TFLOP/s without recomputation, which is 53 % with it. Decoding: 85 to 91 % of a plain copy's 3.0 TB/s, which
is 53 to 57 % of 4.8. No other device was measured."""


def rates_of(device: jax.Device) -> Rates | None:
    """Return the rates of a device; a CPU's are measured, which takes a second. None if they are not known here."""
    if device.platform == "cpu":
        return _measured()
    return next((rates for kind, rates in RATES.items() if device.device_kind.startswith(kind)), None)


def _measured() -> Rates:
    """Time a product of float32 matrices and a pass over an array of 256 MB, the best of three each."""
    x = jnp.ones((2048, 2048))
    y = jnp.ones(2**25)
    product, add = jax.jit(lambda x: x @ x), jax.jit(lambda y: y + 1)  # reads 128 MiB and writes as many
    flops = 2 * 2048**3 / _fastest(product, x)
    return Rates("this CPU, measured", flops, 2 * y.nbytes / _fastest(add, y))


def _fastest(function: jax.stages.Wrapped, x: jax.Array) -> float:
    def once() -> float:
        begun = time.perf_counter()
        function(x).block_until_ready()
        return time.perf_counter() - begun

    return min(once() for _ in range(4))  # the first compiles

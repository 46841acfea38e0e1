"""What this machine can do at best: the rates of a plain product of matrices and of a plain copy, beside which the
other benchmarks' figures mean something.
"""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Rates:
    """Bests of ten tries in XLA, as this process may use the machine.

    Attributes:
      product: FLOP a second of square products of random matrices; some chips are faster with zeros.
      copy: bytes a second, read and written, of adding one to an array.
    """

    product: float
    copy: float

    def __str__(self) -> str:
        return f"copies {self.copy / 1e9:,.3g} GB/s, multiplies {self.product / 1e12:,.3g} TFLOP/s"


def measure(dtype: jnp.dtype = jnp.float32) -> Rates:
    """Measure the first device; on a GPU with arrays of gigabytes, elsewhere of a few megabytes."""
    on_gpu = jax.devices()[0].platform == "gpu"
    side, count = (8192, 10) if on_gpu else (1024, 4)
    x = jax.random.normal(jax.random.key(0), (side, side), dtype)
    w = x / jnp.asarray(side**0.5, dtype)  # keeps the numbers from growing
    product = 2 * side**3 * count / fastest(lambda x: repeat(count, lambda y: y @ w, x), x)
    x = jnp.zeros(2**30 if on_gpu else 2**26, dtype)  # 256 MB, beyond any cache
    copy = 2 * x.nbytes * count / fastest(lambda x: repeat(count, lambda y: y + 1, x), x)
    return Rates(product, copy)


def repeat(count: int, function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Apply a function several times: one call of the host takes .2 ms, as long as a gigabyte's way through a GPU."""
    return jax.lax.fori_loop(0, count, lambda _, x: function(x), x)


def fastest(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> float:
    """Seconds of the best of ten calls; the first also compiles."""
    program = jax.jit(function)
    taken = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(program(x))
        taken.append(time.perf_counter() - start)
    return min(taken)

"""What this machine can do at best: the rates of a plain product of matrices and of a plain copy, and the time of a
model's own products, beside which the other benchmarks' figures mean something.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

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


def multiply(shapes: Sequence[tuple[int, int, int]], backward: bool = False) -> float:
    """Seconds of products of random float32 matrices and nothing else, each by a matrix of its own; best of three.

    Args:
      shapes: rows, inputs and outputs of each.
      backward: also those of the backward pass.
    """
    key = jax.random.key(0)
    pairs = [(jax.random.normal(key, (rows, i)), jax.random.normal(key, (i, o))) for rows, i, o in shapes]

    def forward(pairs: list[tuple[jax.Array, jax.Array]]) -> list[jax.Array]:
        return [x @ w for x, w in pairs]

    def both(pairs: list[tuple[jax.Array, jax.Array]]) -> Any:
        y, back = jax.vjp(forward, pairs)
        return back(y)

    return fastest(both if backward else forward, pairs, calls=4)


def fastest(function: Callable[[Any], Any], x: Any, calls: int = 10) -> float:
    """Seconds of the best call; the first also compiles."""
    program = jax.jit(function)
    taken = []
    for _ in range(calls):
        start = time.perf_counter()
        jax.block_until_ready(program(x))
        taken.append(time.perf_counter() - start)
    return min(taken)

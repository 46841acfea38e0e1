"""Per-lane access to small stacks of rows, and how to keep XLA from computing things twice. No search.

Arrays are lane-minor, ``[rows, ..., lanes]``. Selects over a few rows vectorise over the lanes, gathers do not.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.record import Array


def materialize(on: Array, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function's results, in memory before they are read.

    XLA's CPU fusion recomputes elementwise producers in every consumer, for every element it is broadcast to: 520 us
    instead of 8 for 40 operations on ``[256]`` that fill a ``[400, 256]``. It does so across optimization barriers, but
    not across the branches of a conditional; so this is one, whose condition is always true.

    Args:
      on: bool ``[]``, True, which the compiler must not be able to know.
    """
    shapes = jax.eval_shape(function, *arguments)

    def never(*_: Any) -> Any:
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    return jax.lax.cond(on, function, never, *arguments)


def pick(rows: Array, index: Array) -> jax.Array:
    """Return per lane ``rows[index[lane]]`` of few rows ``[rows, ..., lanes]``."""
    chosen = rows[0]
    for row in range(1, rows.shape[0]):
        chosen = jnp.where(index == row, rows[row], chosen)
    return chosen


def put(rows: Array, index: Array, row: Array, where: Array) -> jax.Array:
    """Return ``rows`` with ``rows[index[lane]]`` replaced per lane."""
    here = (jnp.arange(rows.shape[0], dtype=jnp.int32)[:, None] == index) & where
    return jnp.where(here.reshape(rows.shape[0], *[1] * (rows.ndim - 2), -1), row, rows)


def fold(combine: Callable[[Array, Array], jax.Array], values: Array) -> jax.Array:
    """Reduce the leading axis by halves; XLA's own reduction would not vectorise on a CPU."""
    while values.shape[0] > 1:
        half = values.shape[0] // 2
        folded = combine(values[:half], values[half : 2 * half])
        values = jnp.concatenate([folded, values[2 * half :]]) if values.shape[0] % 2 else folded
    return values[0]

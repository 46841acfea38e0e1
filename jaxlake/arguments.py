"""Arguments of public functions: a whole number in a range, a finite number, a seed's key. Knows no board."""

import math
import operator
from typing import Any

import jax
import numpy as np


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an argument as a Python int in a range; ValueError outside of it, TypeError for no whole number."""
    number = operator.index(value)
    if number < least or (most is not None and number > most):
        span = f"from {least} on" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} = {number} must be a whole number {span}")
    return number


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number of Python or NumPy, and no bool."""
    return isinstance(value, (int, float, np.integer, np.floating)) and type(value) is not bool and _is_finite(value)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # A whole number beyond the range of a float.
        return False


def seed_key(seed: Any) -> jax.Array:
    """Return the key of a seed, threefry's whatever ``jax_default_prng_impl`` says, so that a seed has one meaning.

    Under ``vmap`` the others, `rbg` and `unsafe_rbg`, draw all rows by the first row's key.
    """
    return jax.random.key(seed, impl="threefry2x32")  # noqa: TID251


def threefry_key(key: Any) -> jax.Array:
    """Return a key of threefry made of one of any kind, threefry's own as it is, for draws under ``vmap``."""
    words = jax.random.key_data(key)
    made = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
    for word in words[2:]:
        made = jax.random.fold_in(made, word)
    return made

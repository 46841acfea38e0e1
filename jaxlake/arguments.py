"""Arguments of public functions: a whole number in a range, a seed's key. Knows no board."""

import operator
from typing import Any

import jax


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an argument as a Python int in a range; ValueError outside of it, TypeError for no whole number."""
    number = operator.index(value)
    if number < least or (most is not None and number > most):
        span = f"from {least} on" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} = {number} must be a whole number {span}")
    return number


def seed_key(seed: Any) -> jax.Array:
    """Return the key of a seed, threefry's whatever ``jax_default_prng_impl`` says, so that a seed has one meaning.

    Under ``vmap`` the others, `rbg` and `unsafe_rbg`, draw all rows by the first row's key.
    """
    return jax.random.key(seed, impl="threefry2x32")  # noqa: TID251


def threefry_key(key: Any) -> jax.Array:
    """Return a key of threefry made of one of any kind, threefry's own as it is, for draws under ``vmap``."""
    made: jax.Array = jax.random.wrap_key_data(jax.random.key_data(key)[:2], impl="threefry2x32")
    return made

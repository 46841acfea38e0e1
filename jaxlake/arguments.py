"""Checks of public functions' arguments: a word out of a few, a whole number, a key. Knows nothing of boards."""

import enum
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Word(enum.Enum):
    """An enum that public functions take as a member or as its word: ``Objective("makespan")``.

    They coerce before they compare or compile, since a string is no member and would take the other branch unnoticed.
    A subclass says under which name its members are passed: ``class Objective(Word, argument="objective")``.

    Raises:
      ValueError: for anything else, naming the words.
    """

    _argument: str

    def __init_subclass__(cls, argument: str) -> None:
        cls._argument = argument

    @classmethod
    def _missing_(cls, value: object) -> "Word":
        words = ", ".join(repr(member.value) for member in cls)
        raise ValueError(f"{cls._argument} = {short_repr(value)} must be one of {words}")


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an argument, such as 100, ``np.int64(100)`` or 1e2, as a whole number in a range; else ValueError."""
    number = None
    if isinstance(value, (int, float)) or _has_real_dtype(value):
        # float() of 2 ** 60 + 1 would lose digits, operator.index() of 1e2 raises.
        try:
            number = operator.index(value)
        except TypeError:
            if np.ndim(value) == 0 and float(value).is_integer():
                number = int(value)
    if isinstance(value, bool) or number is None or number < least or (most is not None and number > most):
        span = f"from {least} on" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} = {short_repr(value)} must be a whole number {span}")
    return number


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number of Python or NumPy, and no bool."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # A whole number beyond the range of a float.
        return False


def _has_real_dtype(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and any(jnp.issubdtype(dtype, kind) for kind in (np.integer, np.floating))


def check_key(key: Any) -> None:
    """Raise ValueError for what is no key of ``jax.random``, which says so in many lines or takes it for another."""
    is_key = hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()
    if not is_key and not (hasattr(key, "dtype") and key.dtype == np.uint32 and key.ndim == 1):
        raise ValueError(f"key = {short_repr(key)} must be one key of jax.random, as jax.random.key(0) makes it")


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


def short_repr(value: Any) -> str:
    """Return a value as an error names it: on one line, and not all of an array."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."

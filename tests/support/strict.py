"""JAX's strict settings, as a user has them: for the whole process, its other threads included."""

import contextlib

import jax

SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_legacy_prng_key": "error",
    "jax_debug_key_reuse": True,
    "jax_check_tracer_leaks": True,
    "jax_check_static_indices": True,
}


@contextlib.contextmanager
def settings(**values):
    """Settings of JAX, those that the installed release knows."""
    before = {name: getattr(jax.config, name) for name in values if hasattr(jax.config, name)}
    try:
        for name in before:
            jax.config.update(name, values[name])
        yield
    finally:
        for name, former in before.items():
            jax.config.update(name, former)

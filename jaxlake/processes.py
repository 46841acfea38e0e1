"""Conditions for running our own programs: no fork of a process with JAX, and JAX's default promotion."""

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

_in_fork_of_jax = False  # There JAX would hang: its threads are not copied.
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def runs_programs(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Make a function check its process, and promote ranks and dtypes where its caller's settings refuse that."""

    @functools.wraps(function)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        check_process()
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return function(*args, **kwargs)

    return run


def check_process() -> None:
    """Raise RuntimeError in a process forked from one in which JAX had run."""
    if _in_fork_of_jax:
        raise RuntimeError(
            "this process was forked from one in which JAX had run, so JAX would hang in it: it must be spawned, as by "
            'AsyncVectorEnv(.., context="spawn"), SubprocVecEnv(.., start_method="spawn"), DataLoader(.., '
            'multiprocessing_context="spawn") or get_context("spawn").Pool(); VectorLake steps a whole batch, and '
            "path_reward judges one, without processes"
        )


def _note_fork() -> None:
    from jax._src import xla_bridge  # JAX warns before a fork, but says nothing in public that could be asked after it.

    global _in_fork_of_jax
    _in_fork_of_jax = xla_bridge.backends_are_initialized()


if hasattr(os, "register_at_fork"):  # Windows does not fork.
    os.register_at_fork(after_in_child=_note_fork)

"""Base of array records: frozen chex dataclasses of arrays, counted and indexed by their first axis."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Self, TypeVar, dataclass_transform

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import export

Array = jax.Array | np.ndarray
"""On a device or on the host: functions take either, and jitted ones return the first."""

Class = TypeVar("Class")


class Record:
    """Base of all records: in a batch ``len`` counts the boards, ``[index]`` takes some and ``for`` iterates over them.

    An index is a whole number, which takes the leading axis away, or a slice, an array or a list, which keep it; it
    goes into every array, whatever is None stays None. A record without batch axes has no length: TypeError.
    """

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changes."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __len__(self) -> int:
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(self)]
        if not all(shapes):
            raise TypeError(f"this {type(self).__name__} has no batch axes: it has no length and no index")
        length: int = shapes[0][0]
        return length

    def __getitem__(self, index: int | slice | Sequence[int] | Array) -> Self:
        length = len(self)
        if isinstance(index, jax.core.Tracer):
            traced: Self = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], self)
            return traced
        if not isinstance(index, slice):
            index = _checked(index, length, type(self).__name__)
        taken: Self = jax.tree.map(lambda leaf: leaf[index], self)
        return taken

    def __iter__(self) -> Iterator[Self]:
        return (self[index] for index in range(len(self)))

    def __bool__(self) -> bool:
        return True  # Whether there is one, ``if instances``, and not how many boards it has.

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"this {type(self).__name__} is several arrays and not one: take one of them")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[Class]) -> type[Class]:
    """Make a class of arrays a pytree: frozen, built from keyword arguments; its fields by name are its ``vars``.

    What ``jax.export`` serializes may take and return it: a file has it under the names of its module and class.
    """
    made: type[Class] = chex.dataclass(frozen=True, kw_only=True, mappable_dataclass=False)(cls)
    with contextlib.suppress(ValueError):  # A module that is loaded again: its first classes keep their names.
        export.register_pytree_node_serialization(
            made,
            serialized_name=f"{cls.__module__}.{cls.__qualname__}",
            serialize_auxdata=lambda fields: json.dumps(fields).encode(),
            deserialize_auxdata=lambda fields: tuple(json.loads(fields)),
            from_children=lambda fields, values: made(**dict(zip(fields, values, strict=True))),
        )
    return made


def vary_alike(tree: Any) -> Any:
    """Return the same arrays, all of them varying over each axis of ``jax.shard_map`` over which one of them does.

    No loop carries a constant that its body makes vary (docs/decisions.md 119). JAX 0.7 has no ``jax.lax.pcast``.
    """
    constants = [jnp.zeros_like(leaf, bool, shape=()) for leaf in jax.tree.leaves(tree)]
    never = functools.reduce(jnp.logical_or, constants)
    return jax.tree.map(lambda leaf: jnp.where(never, leaf, leaf), tree)


def _checked(index: Any, length: int, name: str) -> int | np.ndarray:
    """Return the index for numpy; IndexError for what JAX would clamp in silence."""
    wanted = np.asarray(index, int if isinstance(index, list) and not index else None)
    if wanted.dtype.kind != "b" and np.any((wanted < -length) | (wanted >= length)):
        raise IndexError(f"{name}[{index}] must be from {-length} to {length - 1}: the batch has {length}")
    return wanted if wanted.ndim else int(wanted)

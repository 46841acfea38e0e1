"""What array records are: frozen chex dataclasses with the types that chex, which has none, does not declare."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

import chex
import jax
import numpy as np

Array = jax.Array | np.ndarray
"""On a device or on the host: functions take either, and jitted ones return the first."""

Class = TypeVar("Class")

if TYPE_CHECKING:

    class Record(Mapping[str, Any]):
        """What ``chex.dataclass`` adds to a class: a mapping from names to fields, and a copy with changes."""

        def replace(self, **changes: Any) -> Self: ...
        def __getitem__(self, name: str) -> Any: ...
        def __iter__(self) -> Iterator[str]: ...
        def __len__(self) -> int: ...

else:
    Record = object


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[Class]) -> type[Class]:
    """A class of arrays as a pytree: frozen, built from keyword arguments, and a mapping of its fields."""
    return chex.dataclass(frozen=True)(cls)

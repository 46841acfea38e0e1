"""The tokens of views and moves that a player's vocabulary grows by, and what they have in common."""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from jaxlake.types import Action
from jaxlake.view import CELLS, CLOCK, FAR

MOVES = tuple(f" move: {action.name.lower()}" for action in Action)
"""The answers, by the numbers of `Action`."""
_SCALES = {"near": 0.6, "beyond": 0.3, "contested": 0.6, "far": 0.15, "clock": 0.1, "move": 0.05}
"""Sizes of properties' first vectors against those of the embedding's rows; 1 for signs and what all views share.

Small for the moves, so that the first policy is nearly uniform."""


class Properties(NamedTuple):
    """What phrases have in common.

    Attributes:
      table: float32 ``[phrases and moves, properties]``, 1 where a phrase has a property.
      scales: float32 ``[properties]``, how large the first vector of each is.
    """

    table: np.ndarray
    scales: np.ndarray


@functools.cache
def properties() -> Properties:
    """Return the properties of all phrases, part by part, and of the moves.

    Phrases of a direction share what is near, beyond and contested. Distances of one sign share the sign, those of five
    and more their length: what small boards never show is learned with the rest.
    """
    rows: list[list[tuple[str, ...]]] = []
    for axis in ("rows", "columns"):
        for distance in range(-FAR, FAR + 1):
            rows.append([(axis, "sign", str(np.sign(distance))), (axis, "far", str(min(abs(distance), 5)))])
    for name in range(Action.WAIT):
        for near, beyond, contested in itertools.product(CELLS, CELLS, "01"):
            rows.append([(str(name), "near", near), (str(name), "beyond", beyond), (str(name), "contested", contested)])
    rows += [[("", "always"), ("", "clock", str(number))] for number in range(len(CLOCK) + 1)]
    rows += [[("", "move", move)] for move in MOVES]
    names = list(dict.fromkeys(name for row in rows for name in row))
    scales = [_SCALES.get(name[1], 1.0) for name in names]
    return Properties(
        np.array([[name in row for name in names] for row in rows], np.float32), np.array(scales, np.float32)
    )

"""Evidence under the wrong names: what tells an engineer that reads it from one that does not."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from engineer.evidence import Evidence


def derangement(sizes: Sequence[int], key: jax.Array) -> dict[int, int]:
    """Map each size to another, none to itself: a random cycle through all of them.

    Raises:
      ValueError: fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"evidence of size {sizes[0]} alone cannot be shuffled: at least two sizes are needed")
    cycle = [sizes[i] for i in jax.random.permutation(key, len(sizes)).tolist()]
    return dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))


def relabelled(evidence: Evidence, labels: Mapping[int, int]) -> Evidence:
    """Return the same numbers with every row under another size; tables ascend again, totals are what they were.

    Args:
      labels: the new name of each size.
    """

    def renamed(rows: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(dataclasses.replace(row, size=labels[row.size]) for row in rows)

    def table(rows: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(sorted(renamed(rows), key=lambda row: row.size))

    training = evidence.training and dataclasses.replace(
        evidence.training,
        by_size=table(evidence.training.by_size),
        environment=table(evidence.training.environment),
    )
    return dataclasses.replace(
        evidence,
        by_size=table(evidence.by_size),
        environment=table(evidence.environment),
        training=training,
        trajectories=renamed(evidence.trajectories),
    )

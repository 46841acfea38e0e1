"""Evidence under the wrong names: what tells an engineer that reads it from one that does not."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from engineer.evidence import Evidence
from jaxlake.kinds import Kind


def derangement(kinds: Sequence[Kind], key: jax.Array) -> dict[Kind, Kind]:
    """Map each of two or more kinds to another, none to itself: a random cycle through all of them."""
    cycle = [kinds[i] for i in jax.random.permutation(key, len(kinds)).tolist()]
    return dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))


def relabelled(evidence: Evidence, labels: Mapping[Kind, Kind]) -> Evidence:
    """Return the same numbers with every row under another kind; tables ascend again, totals are what they were.

    Args:
      labels: the new kind of each.
    """

    def renamed(rows: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(dataclasses.replace(row, kind=labels[row.kind]) for row in rows)

    def table(rows: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(sorted(renamed(rows), key=lambda row: row.kind))

    training = evidence.training and dataclasses.replace(
        evidence.training,
        by_kind=table(evidence.training.by_kind),
        environment=table(evidence.training.environment),
    )
    return dataclasses.replace(
        evidence,
        by_kind=table(evidence.by_kind),
        environment=table(evidence.environment),
        training=training,
        trajectories=renamed(evidence.trajectories),
    )

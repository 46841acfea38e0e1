"""Evidence under other names: what tells an engineer that reads it from one that does not."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from engineer.context import PastRound
from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
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


def permutation(history: Sequence[PastRound], rng: np.random.Generator) -> dict[Kind, Kind]:
    """Draw another name for each kind of a history; those that are validated stay so, as do those that are not.

    Of two or more kinds none keeps its name: each group is rotated once in a random order.
    """
    validated = [row.kind for row in history[-1].evidence.by_kind]
    others = [kind for kind in history[-1].config.kinds if kind not in validated]
    labels: dict[Kind, Kind] = {}
    for group in (validated, others):
        cycle = [group[i] for i in rng.permutation(len(group))]
        labels |= dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return labels


def permuted(history: Sequence[PastRound], labels: Mapping[Kind, Kind]) -> list[PastRound]:
    """Return a history with everything of each kind under another's name: validations, training and configurations.

    Who reads nothing but the numbers designs the same with the names exchanged.
    """
    return [
        dataclasses.replace(
            past, config=renamed(past.config, labels), evidence=relabelled(past.evidence, labels), rationale=""
        )
        for past in history
    ]


def renamed(config: LakeConfig, labels: Mapping[Kind, Kind]) -> LakeConfig:
    """Return a configuration with each kind's ratios under another's name, which must be one of its kinds too."""
    rows = zip((labels[kind] for kind in config.kinds), config.data, config.hole, config.wait, strict=True)
    return LakeConfig(*zip(*sorted(rows), strict=True))

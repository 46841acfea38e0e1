"""Controls of an engineer that reads: the same engineer, which is given evidence under other names."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from engineer.context import PastRound
from engineer.engineers.base import Draw, Engineer, generator
from engineer.evidence import Evidence
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Shuffled:
    """An engineer that reads each kind's evidence under another kind's name.

    One that does as well as without the exchange does not read its evidence.
    """

    engineer: Engineer

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Design from the exchanged evidence; configurations keep their names."""
        kinds = sorted({*history[-1].config.kinds, *(row.kind for row in evidence.by_kind)})
        names = derangement(kinds, jax.random.fold_in(key, Draw.SHUFFLE))
        history = [dataclasses.replace(past, evidence=relabelled(past.evidence, names)) for past in history]
        return self.engineer.propose(relabelled(evidence, names), history, key)


@dataclasses.dataclass(frozen=True)
class Renamed:
    """An engineer for which kinds exchange their names in all that it reads and writes.

    What it reads is true then, and only a habit, such as a liking for the kind that usually comes first, leads astray.
    """

    engineer: Engineer

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Design under the other names, and return the design under the kinds' own."""
        names = permutation(history, generator(jax.random.fold_in(key, Draw.SHUFFLE)))
        history = [PastRound(p.round, renamed(p.config, names), relabelled(p.evidence, names)) for p in history]
        proposal = self.engineer.propose(history[-1].evidence, history, key)
        back = {name: kind for kind, name in names.items()}
        candidates = tuple(renamed(candidate, back) for candidate in proposal.candidates)
        return dataclasses.replace(proposal, projected=renamed(proposal.projected, back), candidates=candidates)


def derangement(kinds: Sequence[Kind], key: jax.Array) -> dict[Kind, Kind]:
    """Map each of two or more kinds to another, none to itself: a random cycle through all of them."""
    return _cycle([kinds[i] for i in jax.random.permutation(key, len(kinds)).tolist()])


def permutation(history: Sequence[PastRound], rng: np.random.Generator) -> dict[Kind, Kind]:
    """Draw another name for each kind of a history; those that are validated stay so, as do those that are not.

    Of two or more kinds none keeps its name: each group is rotated once in a random order.
    """
    validated = [row.kind for row in history[-1].evidence.by_kind]
    groups = validated, [kind for kind in history[-1].config.kinds if kind not in validated]
    first, second = (_cycle([group[i] for i in rng.permutation(len(group))]) for group in groups)
    return first | second


def _cycle(kinds: Sequence[Kind]) -> dict[Kind, Kind]:
    return dict(zip(kinds, [*kinds[1:], *kinds[:1]], strict=True))


def relabelled(evidence: Evidence, names: Mapping[Kind, Kind]) -> Evidence:
    """Return the same numbers with every row under another kind; tables ascend again, totals are what they were."""

    def rows(part: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(dataclasses.replace(row, kind=names[row.kind]) for row in part)

    def tables(part: Any) -> dict[str, Any]:
        fields = {"by_kind": part.by_kind, "environment": part.environment}
        return {name: tuple(sorted(rows(table), key=lambda row: row.kind)) for name, table in fields.items()}

    training = evidence.training and dataclasses.replace(evidence.training, **tables(evidence.training))
    return dataclasses.replace(
        evidence, **tables(evidence), training=training, trajectories=rows(evidence.trajectories)
    )


def renamed(config: LakeConfig, names: Mapping[Kind, Kind]) -> LakeConfig:
    """Return a configuration with each kind's ratios under another's name, which must be one of its kinds too."""
    rows = zip((names[kind] for kind in config.kinds), config.data, config.hole, config.wait, strict=True)
    return LakeConfig(*zip(*sorted(rows), strict=True))

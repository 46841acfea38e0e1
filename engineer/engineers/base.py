"""The protocol of engineers, and functions that engineers of all kinds share; no model and no rule."""

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import numpy as np

from engineer.context import PastRound
from engineer.evidence import Evidence
from engineer.proposal import STEP, Proposal
from jaxlake.config import MAX_HOLE, LakeConfig, counts
from jaxlake.kinds import Kind


class Engineer(Protocol):
    """Designer of the configuration of the round that follows ``history``, from the latest validation."""

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Design the next configuration and record how it came about.

        Args:
          evidence: the validation after the last round of ``history``.
          history: every finished round in ascending order, at least round 0.
          key: the random key of every draw: the same arguments give the same proposal, except from a server.
        """
        ...


Rule = Callable[[Evidence, Sequence[PastRound], jax.Array], LakeConfig]
"""``(evidence, history, key) -> configuration``: a plain function; what it remembers it reads in ``history``."""

Numbers = Sequence[float] | np.ndarray


class Draw(enum.IntEnum):
    """Numbers to fold a key with for draws of their own; far above those of attempts, which are folded in too."""

    SHUFFLE = 2**16
    BRANCH = 2**16 + 3


def generator(key: jax.Array) -> np.random.Generator:
    """Return a generator for draws on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


@dataclasses.dataclass(frozen=True)
class RuleEngineer:
    """Engineer that applies a rule, under the rule's name."""

    name: str
    rule: Rule

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Propose what the rule designs."""
        return Proposal(engineer=self.name, projected=self.rule(evidence, history, key))


def legal(kinds: tuple[Kind, ...], data: Numbers, hole: Numbers, wait: Numbers) -> LakeConfig:
    """Return the nearest legal configuration.

    Ratios that were realised are not rounded: 2 holes on 12 free cells, rounded to 0.165, would be 1 hole again.

    Args:
      data: weights, of which at least one is positive; negative ones count as 0.
      hole, wait: any finite numbers; they are clipped.
    """
    shares = np.maximum(data, 0.0)
    columns = shares / shares.sum(), np.clip(hole, 0, MAX_HOLE), np.clip(wait, 0, 1)
    return LakeConfig(kinds, *(tuple(column.tolist()) for column in columns))


def in_steps(kinds: tuple[Kind, ...], data: Numbers, hole: Numbers, wait: Numbers) -> LakeConfig:
    """Return the nearest legal configuration whose ratios are multiples of 0.005; arguments as of `legal`."""
    exact, steps = legal(kinds, data, hole, wait), round(1 / STEP)
    hole, wait = (tuple(round(x * steps) / steps for x in column) for column in (exact.hole, exact.wait))
    return LakeConfig(kinds, tuple(count / steps for count in counts(exact, steps)), hole, wait)


def with_data(history: Sequence[PastRound], weights: Sequence[float]) -> LakeConfig:
    """Return the previous configuration with other data ratios: multiples of 0.005 in proportion to the weights.

    Hole and wait stay exactly as they were when a kind last had data: without boards its realised wait ratio is 0,
    which no engineer requested.
    """
    config = history[-1].config
    places, rounds = range(len(config.kinds)), [past.config for past in reversed(history)]
    latest = [next((past for past in rounds if past.data[i]), config) for i in places]
    hole, wait = tuple(latest[i].hole[i] for i in places), tuple(latest[i].wait[i] for i in places)
    return LakeConfig(config.kinds, in_steps(config.kinds, weights, hole, wait).data, hole, wait)

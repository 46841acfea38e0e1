"""A judge of every proposal before it is trained on, by a pilot; ours, the paper has none."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from engineer.context import PastRound
from engineer.engineers.base import Draw, Engineer, Pilot, mean_by_data
from engineer.evidence import Evidence
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

BOUND = 0.9
"""Largest share of boards without signal in a run."""


@dataclasses.dataclass(frozen=True)
class Gated:
    """An engineer whose proposals must leave something to learn.

    A board whose sampled answers are all valid or all invalid gives the policy no signal about validity. Where the
    current policy gets too many of them the proposal is refused.

    Attributes:
      pilot: a few boards of each kind with data, answered by the current policy.
      mix: a refused proposal is mixed half and half with the previous configuration; if not, it is replaced by it.
      bound: largest share of a pilot's boards without signal, kinds weighted by their data ratios.
    """

    engineer: Engineer
    pilot: Pilot
    mix: bool
    bound: float = BOUND

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        """Return the engineer's proposal, made with the same key, with the verdict in ``gate``.

        The previous configuration is not judged, as there is nothing to put in its place; nor is a mixture, half of
        which the last round has just been trained on.
        """
        proposal = self.engineer.propose(evidence, history, key)
        proposed, previous = proposal.projected, history[-1].config
        if proposed == previous:
            return dataclasses.replace(proposal, gate={"verdict": "not piloted", "action": "kept"})
        refused, findings = self._without_signal(proposed, self.pilot(proposed, jax.random.fold_in(key, Draw.GATE)))
        action = "kept" if not refused else "mixed" if self.mix else "replaced"
        gate = {"verdict": "refused" if refused else "accepted", "action": action, **findings}
        config = {"kept": proposed, "mixed": mixture(proposed, previous), "replaced": previous}[action]
        return dataclasses.replace(proposal, projected=config, gate=gate)

    def _without_signal(self, proposed: LakeConfig, shares: Mapping[Kind, np.ndarray]) -> tuple[bool, dict[str, Any]]:
        """Return whether a pilot refuses, and what it found."""
        without = without_signal(proposed, shares)
        by_kind = {
            str(kind): {
                "boards": len(p),
                "valid": float(p.mean()),
                "all_valid": float((p == 1).mean()),
                "all_invalid": float((p == 0).mean()),
            }
            for kind, p in sorted(shares.items())
        }
        return without > self.bound, {"without_signal": without, "bound": self.bound, "by_kind": by_kind}


def without_signal(config: LakeConfig, shares: Mapping[Kind, np.ndarray]) -> float:
    """Return the share of piloted boards answered all validly or all invalidly, kinds weighted by their data ratios.

    Args:
      shares: float ``[boards]`` for each kind, share of a board's answers that are valid.
    """
    return mean_by_data(config, {kind: float(((p == 0) | (p == 1)).mean()) for kind, p in shares.items()})


def mixture(a: LakeConfig, b: LakeConfig) -> LakeConfig:
    """Mix two configurations of the same kinds: half of the boards as the one has them, half as the other.

    A kind's hole and wait ratios are the means over its boards, hence weighted by the data ratios of both.
    """
    data = np.array([a.data, b.data])
    total = data.sum(axis=0)
    share = np.divide(data[1], total, out=np.full(len(a.kinds), 0.5), where=total > 0)

    def mean(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
        between = np.add(one, share * np.subtract(other, one))
        return tuple(np.clip(between, np.minimum(one, other), np.maximum(one, other)).tolist())  # not an ulp beyond

    return LakeConfig(a.kinds, tuple(data.mean(axis=0).tolist()), mean(a.hole, b.hole), mean(a.wait, b.wait))

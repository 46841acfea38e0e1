"""The designs that branches are trained on: random ones, and one for each kind with all data on it."""

from collections.abc import Sequence
from typing import NamedTuple

from engineer.engineers.hindsight import random_designs
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.report.branch.gains import OF_KIND, RANDOM
from rl.run.keys import Purpose, make_key

HOLE, WAIT = 0.2, 0.25
"""Ratios of designs of one kind."""


class Design(NamedTuple):
    """A configuration to be tried, and who proposed it: ``random``, or ``kind:`` and a label for one kind alone."""

    origin: str
    config: LakeConfig


def draw_designs(kinds: Sequence[Kind], random: int, each_kind: bool, seed: int) -> list[Design]:
    """Return random designs and, if asked for, one for each kind; always the same for a seed.

    Args:
      kinds: that a configuration has rows for, ascending.
      random: number of random designs.
      each_kind: with a design for each kind, too.
      seed: of the run.
    """
    designs = [Design(RANDOM, config) for config in random_designs(kinds, make_key(seed, Purpose.BRANCH), random)]
    for kind in kinds if each_kind else ():
        even = LakeConfig.uniform(kinds, HOLE, WAIT)
        data = tuple(float(other == kind) for other in kinds)
        designs.append(Design(f"{OF_KIND}{kind}", LakeConfig(even.kinds, data, even.hole, even.wait)))
    return designs

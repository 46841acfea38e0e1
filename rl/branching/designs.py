"""The designs that branches are trained on: random ones, one for each kind with all data on it, and those of rules."""

from collections.abc import Sequence
from typing import NamedTuple

from engineer import RULES, PastRound
from engineer.engineers.hindsight import random_designs
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.report.branch.gains import OF_KIND, RANDOM
from rl.run.keys import Purpose, make_key

HOLE, WAIT = 0.2, 0.25
"""Ratios of designs of one kind."""


class Design(NamedTuple):
    """A configuration to be tried, and its origin: ``random``, ``kind:`` and a label for one kind alone, a rule."""

    origin: str
    config: LakeConfig


def rule_designs(history: Sequence[PastRound], seed: int) -> list[Design]:
    """Return what the rules design after these rounds, each design once, under the name of the first rule that does."""
    designs: list[Design] = []
    for name, rule in RULES.items():
        config = rule(history[-1].evidence, history, make_key(seed, Purpose.BRANCH, len(history)))
        if config not in [design.config for design in designs]:
            designs.append(Design(name, config))
    return designs


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

"""The designs that branches are trained on: random ones, one for each kind with all data on it, and engineers'."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engineer import RULES, PastRound
from engineer.engineers.hindsight import random_designs
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.config.choices import MODELS
from rl.loop.engineer_factory import bookkeeping, load_model, text_engineer
from rl.loop.rounds import past_rounds
from rl.model.context import read_context
from rl.run.keys import Purpose, make_key
from rl.students import Student

HOLE, WAIT = 0.2, 0.25
"""Ratios of designs of one kind."""


RANDOM = "random"
"""Origin of a design that was drawn at random."""
OF_KIND = "kind:"
"""Beginning of the origin of a design that has all data on one kind; the kind's label follows."""
SEVERAL = ", "
"""Separator of the names of engineers that propose the same design."""


class Design(NamedTuple):
    """A configuration to be tried, and its origin: ``random``, ``kind:`` and a label for one kind alone, engineers."""

    origin: str
    config: LakeConfig

    @property
    def kind(self) -> Kind | None:
        """The kind that has all data, of a design that was made so; else None."""
        return Kind.of(self.origin.removeprefix(OF_KIND)) if self.origin.startswith(OF_KIND) else None

    @property
    def engineers(self) -> tuple[str, ...]:
        """The names of the engineers that propose it; none for a design that was drawn or made of one kind."""
        drawn = self.origin == RANDOM or self.origin.startswith(OF_KIND)
        return () if drawn else tuple(self.origin.split(SEVERAL))


@dataclasses.dataclass(frozen=True)
class BranchPlan:
    """The branches to be trained from one state for a round; repeats have keys and boards of their own."""

    state: str
    round: int
    designs: tuple[Design, ...]
    repeats: int
    updates: int


def rule_designs(history: Sequence[PastRound], seed: int) -> list[Design]:
    """Return the designs of all rules after these rounds."""
    key = make_key(seed, Purpose.BRANCH, len(history))
    return [Design(name, rule(history[-1].evidence, history, key)) for name, rule in RULES.items()]


def model_designs(folder: Path, student: Student) -> list[Design]:
    """Return a language model's design in a student's state, and its design from shuffled evidence.

    It reads and writes as the run's settings say.

    Raises:
      ConfigError: if the folder holds no model.
    """
    config, history = student.config, past_rounds(student.state.progress)
    key = make_key(config.seed, Purpose.DESIGN, len(history))
    policy, parameters = load_model(str(folder), config.mesh, config.text.early_stop)
    generate = policy.generation(config.engineer, lambda: parameters, lambda done: None)
    context, training = read_context(config.engineer), bookkeeping(config.rounds, student.training_summary)
    designs = []
    for kind, name in zip(MODELS, (f"{folder}", f"{folder} shuffled"), strict=True):
        of_kind = config.engineer.model_copy(update={"kind": kind})
        engineer = text_engineer(of_kind, context, training, generate, policy.tokenizer)
        designs.append(Design(name, engineer.propose(history[-1].evidence, history, key).projected))
    return designs


def deduplicate(designs: Sequence[Design]) -> list[Design]:
    """Return each configuration once, under the names of all who propose it."""
    origins: dict[LakeConfig, list[str]] = {}
    for design in designs:
        origins.setdefault(design.config, []).append(design.origin)
    return [Design(SEVERAL.join(names), config) for config, names in origins.items()]


def draw_designs(kinds: Sequence[Kind], random: int, each_kind: bool, seed: int) -> list[Design]:
    """Return random designs and, if asked for, one for each kind; always the same for a seed."""
    designs = [Design(RANDOM, config) for config in random_designs(kinds, make_key(seed, Purpose.BRANCH), random)]
    for kind in kinds if each_kind else ():
        shared = LakeConfig.uniform(kinds, HOLE, WAIT)
        data = tuple(float(other == kind) for other in kinds)
        designs.append(Design(f"{OF_KIND}{kind}", LakeConfig(shared.kinds, data, shared.hole, shared.wait)))
    return designs

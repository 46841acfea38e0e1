"""What a comparison consists of: runs that begin where others end, each with a folder and configuration of its own."""

import dataclasses
from pathlib import Path
from typing import Literal

from rl.comparison.config import Resolved
from rl.config import Config
from rl.config.choices import LanguageKind
from rl.run.state import needs_reference

EVALUATION = "evaluation.json"
"""What a leg ends with; where it is, the leg is done."""


@dataclasses.dataclass(frozen=True)
class Leg:
    """A run directory of the comparison.

    Attributes:
      path: the folder.
      config: of the run.
      origin: the leg whose end this one goes on from; None for the first.
      until: where it ends, see `rl.train.execute`.
    """

    path: Path
    config: Config
    origin: "Leg | None"
    until: Literal["rounds", "finished"] | int

    @property
    def is_done(self) -> bool:
        """Whether it is finished and evaluated."""
        return (self.path / EVALUATION).exists()

    @property
    def can_begin(self) -> bool:
        """Whether what it goes on from is there."""
        return self.origin is None or self.origin.is_done


def plan(comparison: Resolved, out: Path) -> list[Leg]:
    """All legs, in an order in which they can be done: seed after seed, so that early ones can be compared early.

    One warm start; from it round 0 with each seed, the same boards and answers for all engineers; from there each
    engineer designs the rounds that are left. All keys come from the seed, so that whatever two engineers ask for
    alike, they get alike.
    """
    arms = [comparison.arm(engineer, comparison.seeds[0]) for engineer in comparison.engineers]
    kind = LanguageKind.BASE if any(map(needs_reference, arms)) else comparison.run.engineer.kind
    start = Leg(out / "start", comparison.prefix(comparison.run.seed, kind), None, "rounds")
    legs = [start]
    for seed in comparison.seeds:
        prefix = Leg(start.path / f"seed{seed}", comparison.prefix(seed, kind), start, 1)
        legs.append(prefix)
        for engineer in comparison.engineers:
            path = out / "arms" / engineer / f"seed{seed}"
            legs.append(Leg(path, comparison.arm(engineer, seed), prefix, "finished"))
    return legs

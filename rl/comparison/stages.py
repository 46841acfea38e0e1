"""The stages of a comparison: runs that begin where others end, each with a folder and a configuration of its own."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rl.comparison.config import Resolved
from rl.config import Config
from rl.config.choices import LanguageKind
from rl.engineer_factory import API_LOG, COST, describe_cost
from rl.run.state import needs_reference

EVALUATION = "evaluation.json"
"""The last file of a stage; where it is, the stage is done."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A run directory of the comparison.

    Attributes:
      path: the folder.
      config: the run's configuration.
      origin: the stage whose end this one goes on from; None for one that begins.
      stop_after: where it ends, see `rl.rounds.execute`.
    """

    path: Path
    config: Config
    origin: "Stage | None"
    stop_after: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is finished and evaluated."""
        return (self.path / EVALUATION).exists()

    @property
    def can_begin(self) -> bool:
        """Whether the stage that it goes on from is done."""
        return self.origin is None or self.origin.is_done


def plan(comparison: Resolved, out: Path) -> list[Stage]:
    """List all stages in an order in which they can be done: seed after seed, so that early ones compare early.

    One warm start; from it round 0 with each seed, the same boards and answers for all engineers; from there each
    engineer designs the rounds that are left. A network has no warm start: each seed begins with one of its own. All
    keys come from the seed, so that whatever two engineers ask for alike, they get alike.
    """
    arms = [comparison.arm(engineer, comparison.seeds[0]) for engineer in comparison.engineers]
    kind = LanguageKind.BASE if any(map(needs_reference, arms)) else comparison.run.engineer.kind
    folder, start = out / "start", None
    if not comparison.run.plays:
        start = Stage(folder, comparison.prefix(comparison.run.seed, kind), None, stop_after=0)
    stages = [] if start is None else [start]
    for seed in comparison.seeds:
        prefix = Stage(folder / f"seed{seed}", comparison.prefix(seed, kind), start, stop_after=1)
        stages.append(prefix)
        for engineer in comparison.engineers:
            path = out / "arms" / engineer / f"seed{seed}"
            stages.append(Stage(path, comparison.arm(engineer, seed), prefix))
    return stages


def describe_costs(stages: Sequence[Stage]) -> Iterator[str]:
    """Say for each engineer that asked a server how often it did in all of its stages, and what the server counted."""
    costs: dict[str, Counter[str]] = {}
    for stage in stages:
        log = stage.path / API_LOG
        if log.exists():
            engineer = costs.setdefault(stage.path.parent.name, Counter())
            for line in log.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                engineer.update({name: row[name] for name in COST})
    for engineer, cost in costs.items():
        yield f"{engineer}: {describe_cost(cost)}"

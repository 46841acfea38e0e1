"""The runs of a comparison: each begins where another ends, with a folder and a configuration of its own."""

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path

from rl.config import Config
from rl.lab.comparison import Resolved
from rl.run.directory import ORIGIN, RunDirectory

EVALUATION = "evaluation.json"
"""The last file of a run of a comparison; where it is, the run is done."""
FOLDERS = ("before", "warm_start", "rounds")
"""Folders of earlier validations and rounds, which a report reads."""


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """A run to make.

    Attributes:
      origin: the run that this one continues from its end; None for one that begins.
      stop_after: the number of rounds after which it ends, see `rl.loop.rounds.execute`.
    """

    path: Path
    config: Config
    origin: "RunPlan | None"
    stop_after: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is finished and evaluated."""
        return (self.path / EVALUATION).exists()


def plan_runs(comparison: Resolved, out: Path) -> list[RunPlan]:
    """List all runs of a comparison in an order in which they can be done: seed after seed, so that early ones compare.

    One warm start; from it the shared rounds with each seed, the same boards and answers for all engineers; from there
    each engineer designs the rounds that are left. Without a warm start each seed begins with parameters of its own.
    All keys come from the seed, so that whatever two engineers ask for alike, they get alike.
    """
    folder, start = out / "start", None
    if comparison.run.student.warm_start.steps:
        start = RunPlan(folder, comparison.configure_shared(comparison.run.seed), None, stop_after=0)
    plans = [] if start is None else [start]
    for seed in comparison.seeds:
        config = comparison.configure_shared(seed)
        shared = RunPlan(folder / f"seed{seed}", config, start, stop_after=comparison.shared_rounds)
        plans.append(shared)
        for engineer in comparison.engineers:
            path = out / "arms" / engineer / f"seed{seed}"
            plans.append(RunPlan(path, comparison.configure(engineer, seed), shared))
    return plans


def fork(plan: RunPlan) -> None:
    """Make the folder of a run from its origin's: whole, or not at all. One that is there stays as it is.

    The end of the origin becomes its first checkpoint, beside the records of all rounds before. It gets a `best/` with
    the first round that is better than the origin's. While this lasts it has the origin's lock, so that no other
    process makes the same folder.
    """
    assert plan.origin is not None
    with contextlib.closing(RunDirectory(plan.origin.path, plan.origin.config)) as source:
        if plan.path.exists():
            return
        fresh = plan.path.with_name(f"{plan.path.name}.partial")
        shutil.rmtree(fresh, ignore_errors=True)
        with contextlib.closing(RunDirectory(fresh, plan.config)) as target:
            target.create()
            for name in FOLDERS:
                if (source.path / name).exists():
                    shutil.copytree(source.path / name, fresh / name)
            progress = target.checkpoints.copy_latest(source.checkpoints)
            for name, length in progress.log_bytes.items():
                if length:
                    (fresh / name).write_bytes((source.path / name).read_bytes()[:length])
            run = os.path.relpath(source.path, plan.path)
            target.write(ORIGIN, {"run": run, "validation_seed": source.validation_seed})
        fresh.rename(plan.path)

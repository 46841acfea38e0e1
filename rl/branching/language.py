"""Branches of a language policy: each is a run that goes on from the state's for one short round, in its own folder."""

import contextlib
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from engineer.evidence import Evidence, KindEvidence
from jaxlake.kinds import Kind
from rl import config as config_
from rl.branching.designs import Design
from rl.branching.gains import Change, Gain, Train
from rl.comparison.fork import fork
from rl.comparison.stages import Stage
from rl.config import Config
from rl.rounds import execute, past_rounds
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import Student


def trainer(
    student: Student, source: Path, repeats: int, updates: int, out: Path, display: Display, stop: Stop
) -> Train:
    """Return what trains and measures branches of the policy from the end of its run, as legs in ``out/branches``.

    Args:
      source: folder of the run.
      repeats: of each design, with seeds of their own.
      updates: GRPO steps of a branch.
    """
    config, progress = student.config, student.state.progress
    history = past_rounds(progress)
    before = history[-1].evidence
    origin = Stage(source, config, None)

    def leg(number: int, design: Design, repeat: int) -> Gain:
        changes = {
            "seed": config.seed + 1 + repeat,
            "rounds": {"count": progress.round + 1, "instances": updates * config.grpo.prompts, "epochs": 1},
            # A history one round longer needs more room, and nobody reads or is taught one in a leg.
            "engineer": {"kind": "previous"},
            "warm_start": {"steps": 0},
            "grpo": {"engineer_every": 0, "schedule": "constant"},  # a leg's updates are few, and all at one rate
        }
        values = config_.merge(config.model_dump(mode="json"), changes, "a branch")
        stage = Stage(out / "branches" / f"{number}-{repeat}", config_.validate(Config, values, "a branch"), origin)
        fork(stage, origin, {"stage": "rounds", "lake": design.config.to_dict(), "rationale": ""})
        with contextlib.closing(RunDirectory(stage.path, stage.config)) as directory:
            directory.write(f"rounds/{progress.round}/proposal.json", {"projected": design.config.to_dict()})
            execute(stage.config, directory, display, stop)
            file = directory.path / f"rounds/{progress.round}/evidence.json"
        after = Evidence.from_json(config_.read(file))
        shutil.rmtree(stage.path)  # what is kept of it are its numbers: hundreds of them would fill a disk
        return _gain(before, after)

    def train(designs: Sequence[tuple[int, Design]]) -> list[list[Gain]]:
        return [[leg(number, design, repeat) for repeat in range(repeats)] for number, design in designs]

    return train


def _gain(before: Evidence, after: Evidence) -> Gain:
    """Return what a leg gained; errors as if the answers before and after were independent, which is cautious."""

    def share(first: Evidence | KindEvidence, last: Evidence | KindEvidence) -> Change:
        assert first.sampled_valid is not None and last.sampled_valid is not None  # `validation.samples` is at least 1
        return Change(
            first.sampled_valid, last.sampled_valid, math.hypot(first.sampled_se or 0.0, last.sampled_se or 0.0)
        )

    rows = {row.kind: row for row in before.by_kind}
    by_kind: dict[Kind, Change] = {row.kind: share(rows[row.kind], row) for row in after.by_kind}
    return Gain(share(before, after), by_kind)

"""A fork: a run that goes on from the end of another, in a folder and under a configuration of its own."""

import contextlib
import os
import shutil
from collections.abc import Mapping
from typing import Any

from rl.comparison.stages import Stage
from rl.run.directory import ORIGIN, RunDirectory
from rl.run.state import needs_reference

FOLDERS = ("before", "warm_start", "rounds")
"""Folders of earlier validations and rounds, which a report reads."""


def fork(stage: Stage, origin: Stage, changes: Mapping[str, Any] | None = None) -> None:
    """Make the folder of a stage from its origin's: whole, or not at all. One that is there stays as it is.

    The end of the origin becomes its first checkpoint, beside the records of all rounds before. Its `best/` will be of
    its own rounds. While this lasts it has the origin's lock, so that nobody else makes the same folder.

    Args:
      changes: of where the run stands (`Progress`), such as the configuration that its next round is to have.

    Raises:
      InUse: if another process makes one of the same origin's.
      RunError: if the origin's last checkpoint is damaged.
    """
    with contextlib.closing(RunDirectory(origin.path, origin.config)) as source:
        if stage.path.exists():
            return
        fresh = stage.path.with_name(f"{stage.path.name}.partial")
        shutil.rmtree(fresh, ignore_errors=True)
        with contextlib.closing(RunDirectory(fresh, stage.config)) as target:
            target.create()
            for name in FOLDERS:
                if (source.path / name).exists():
                    shutil.copytree(source.path / name, fresh / name)
            unused = () if needs_reference(stage.config) else ("reference",)
            progress = target.checkpoints.copy_latest(source.checkpoints, unused, changes or {})
            for name, length in progress.log_bytes.items():
                if length:
                    (fresh / name).write_bytes((source.path / name).read_bytes()[:length])
            run = os.path.relpath(origin.path, stage.path)
            target.write(ORIGIN, {"run": run, "validation_seed": source.validation_seed})
        fresh.rename(stage.path)

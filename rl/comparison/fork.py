"""A fork: a run that goes on from the end of another, in a folder and under a configuration of its own."""

import contextlib
import json
import os
import shutil

from rl.comparison.stages import Stage
from rl.config import RunError
from rl.run.checkpoint import Checkpoints, Progress, _digest
from rl.run.directory import ORIGIN, RunDirectory
from rl.run.state import needs_reference

FOLDERS = ("before", "warm_start", "rounds")
"""Folders of earlier validations and rounds, which a report reads."""


def fork(stage: Stage, origin: Stage) -> None:
    """Make the folder of a stage from its origin's: whole, or not at all. One that is there stays as it is.

    The end of the origin becomes its first checkpoint, beside the records of all rounds before. Its `best/` will be of
    its own rounds. While this lasts it has the origin's lock, so that nobody else makes the same folder.

    Raises:
      InUse: if another process makes one of the same origin's.
      RunError: if the origin's last checkpoint is damaged.
    """
    with contextlib.closing(RunDirectory(origin.path, origin.config)) as source:
        if stage.path.exists():
            return
        fresh = stage.path.with_name(f"{stage.path.name}.partial")
        shutil.rmtree(fresh, ignore_errors=True)
        with contextlib.closing(RunDirectory(fresh, stage.config, stage.origins)) as target:
            target.create()
            for name in FOLDERS:
                if (source.path / name).exists():
                    shutil.copytree(source.path / name, fresh / name)
            unused = () if needs_reference(stage.config) else ("reference",)
            progress = copy_checkpoint(source.checkpoints, target.checkpoints, unused)
            for name, length in progress.log_bytes.items():
                if length:
                    (fresh / name).write_bytes((source.path / name).read_bytes()[:length])
            run = os.path.relpath(origin.path, stage.path)
            target.write(ORIGIN, {"run": run, "validation_seed": source.validation_seed})
        fresh.rename(stage.path)


def copy_checkpoint(source: Checkpoints, target: Checkpoints, unused: tuple[str, ...]) -> Progress:
    """Copy the latest checkpoint to be the first of another run, which has had no best validation yet.

    Args:
      unused: names of arrays, such as "reference", that the other run does not read; they stay on disk until this
        checkpoint goes.

    Returns:
      Where the run stands, as the copy says.

    Raises:
      RunError: if the checkpoint is damaged.
    """
    step = source.steps[-1]
    try:
        _, record = source._read(step)
    except ValueError as error:
        run = source.folder.parent
        raise RunError(f"{source.folder}/{step}: damaged ({error}); delete {run} to make it anew") from None
    copy = target.folder / "1"
    shutil.copytree(source.folder / str(step), copy)
    record["progress"] |= {"best": None, "config_hash": target._config_hash}
    record["arrays"] = {name: x for name, x in record["arrays"].items() if name.split(".")[0] not in unused}
    (copy / "progress" / "metadata").write_text(json.dumps({"record": record, "digest": _digest(record)}))
    return Progress(**record["progress"])

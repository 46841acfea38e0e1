"""A run that goes on from where another stands, in a folder and under a configuration of its own."""

import contextlib
import dataclasses
import os
import shutil

from rl.collect import rounds_optimizer
from rl.comparison.legs import Leg
from rl.policy import Policy
from rl.run.directory import ORIGIN, RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.saving import pack, restore
from rl.run.state import needs_reference
from rl.run.tracking import Display

FOLDERS = ("before", "warm_start", "rounds")
"""What a report reads of the stages that lie behind."""


def fork(leg: Leg, display: Display) -> None:
    """Makes the folder of a leg from its origin's: whole, or not at all. One that is there stays as it is.

    It holds where the origin stands as its first checkpoint, and the records of what lies behind. Its `best/` will be
    of its own rounds. While this lasts it has the origin's lock, so that nobody else makes the same folder.

    Raises:
      InUse: if another process makes one of the same origin's.
    """
    origin, config = leg.origin, leg.config
    with contextlib.closing(RunDirectory(origin.path, origin.config)) as source:
        if leg.path.exists():
            return
        policy, parameters = Policy.create(origin.config, make_key(origin.config.seed, Purpose.PARAMETERS))
        optimizers = dict.fromkeys(("warm_start", "rounds"), rounds_optimizer(config))
        state = restore(policy, parameters, optimizers, source.checkpoints, display)
        fresh = leg.path.with_name(f"{leg.path.name}.partial")
        shutil.rmtree(fresh, ignore_errors=True)
        with contextlib.closing(RunDirectory(fresh, config)) as target:
            target.create()
            for name in FOLDERS:
                if (source.path / name).exists():
                    shutil.copytree(source.path / name, fresh / name)
            for name, length in state.progress.log_bytes.items():
                if length:
                    (fresh / name).write_bytes((source.path / name).read_bytes()[:length])
            where = os.path.relpath(origin.path, leg.path)
            target.write(ORIGIN, {"run": where, "validation_seed": source.validation_seed})
            kept = state.reference if needs_reference(config) else None
            progress = dataclasses.replace(state.progress, best=None)
            target.save(pack(dataclasses.replace(state, reference=kept, progress=progress)))
        fresh.rename(leg.path)

"""The checkpoints of a run: all that it needs to resume, in one atomic Orbax step."""

import contextlib
import dataclasses
import functools
import gc
import io
import json
import logging
import math
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp

from rl import distributed
from rl.config import ConfigError, RunError
from rl.run.progress import Progress

for _name in ("absl", "asyncio"):  # Orbax logs its internals on every save, and both log errors that we report
    logging.getLogger(_name).setLevel(logging.CRITICAL)

T = TypeVar("T")


class Unreadable(RunError):
    """A checkpoint cannot be read."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Content of one checkpoint.

    Attributes:
      progress: the run's position.
      arrays: pytrees of JAX arrays by name, such as "parameters".
      source: what the run reads and no checkpoint holds, by name: see `rl.model.policy.Policy.source` and
        `rl.loop.engineer_factory.check`.
    """

    progress: Progress
    arrays: dict[str, Any]
    source: dict[str, str] = dataclasses.field(default_factory=dict)


class Checkpoints:
    """The numbered checkpoints in a folder, of which the latest `keep` stay.

    Orbax writes each beside the others and gives it its name when all is on the disk, so a kill leaves none in part.
    All processes of a job call the same methods; the folder lies on a disk that they share. Nothing is written before
    the first `save`.
    """

    def __init__(self, folder: Path, keep: int):
        self.folder, self._keep = folder.absolute(), keep

    @property
    def steps(self) -> list[int]:
        """The numbers of all checkpoints, ascending."""
        return sorted(int(path.name) for path in self.folder.glob("*") if path.name.isdigit())

    @functools.cached_property
    def _manager(self) -> ocp.CheckpointManager:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=self._keep,
            cleanup_tmp_directories=True,
            # A write beside updates on a CPU takes memory alone: SmolLM2, 4.0 GB, came to 8.5 and comes to 6.7.
            enable_async_checkpointing=jax.default_backend() != "cpu",
        )
        # Named here, as a manager that has saved nothing yet cannot tell what kind of items it finds.
        handlers = {"arrays": ocp.StandardCheckpointHandler(), "progress": ocp.JsonCheckpointHandler()}
        return ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    def save(self, snapshot: Snapshot) -> None:
        """Save all of it as one atomic step.

        Returns when the arrays are copied, and the writing continues; on a CPU, when all is written.

        Raises:
          RunError: if this one or the one before it cannot be written; those before are untouched.
        """
        record = finite({"progress": dataclasses.asdict(snapshot.progress), "source": snapshot.source})
        items = ocp.args.Composite(
            arrays=ocp.args.StandardSave(snapshot.arrays), progress=ocp.args.JsonSave({"record": record})
        )
        with self._writing():
            self._manager.save((self._manager.latest_step() or 0) + 1, args=items)

    def close(self) -> None:
        """Wait until everything is written; RunError as `save`."""
        if "_manager" in vars(self):
            manager = vars(self).pop("_manager")
            with contextlib.closing(manager), self._writing():
                manager.wait_until_finished()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Orbax and tensorstore raise whatever they like where a disk is full
            last = f"the last good one is {self.steps[-1]}" if self.steps else "there is none yet"
            raise RunError(f"{self.folder}: cannot write a checkpoint ({_reason(error)}); {last}") from error

    def copy_latest(self, source: "Checkpoints") -> Progress:
        """Copy another run's latest checkpoint to be the first one of this run, and return its progress."""
        step = source.steps[-1]
        progress = source._read(step).progress
        shutil.copytree(source.folder / str(step), self.folder / "1")
        return progress

    def latest(self) -> Snapshot | None:
        """Return the latest checkpoint that can be read, without its arrays; None without any checkpoint.

        Raises:
          ConfigError: if the processes of this job see different ones.
          RunError: if none can be read.
        """
        if not distributed.is_same(str(self.steps)):
            raise ConfigError(
                f"{self.folder.parent}: not all processes see the same run there; they need a disk that all share"
            )
        return self._latest(self._read)

    def restore(self, like: Callable[[Snapshot], dict[str, Any]], say: Callable[[str], None]) -> Snapshot | None:
        """Return the latest checkpoint that can be read, None without any; move those after it out of the folder.

        The logs are cut back to it, so a later one must not be found again, such as when a disk was away for a while.

        Args:
          like: function from the checkpoint without its arrays to these as ShapeDtypeStructs with shardings.
          say: function that shows a line for each that cannot be read.

        Raises:
          RunError: if none can be read, or none matches `like`.
        """

        def load(step: int) -> tuple[int, Snapshot]:
            saved = self._read(step)
            return step, dataclasses.replace(saved, arrays=self._load(step, like(saved)))

        loaded = self._latest(load, say)
        if loaded is None:
            return None
        for later in [step for step in self.steps if step > loaded[0]] if distributed.is_main() else ():
            target = self.folder.parent / f"unreadable-{later}"
            shutil.rmtree(target, ignore_errors=True)
            (self.folder / str(later)).rename(target)
        distributed.agree(False)  # no process continues before they are moved
        return loaded[1]

    def _latest(self, read: Callable[[int], T], say: Callable[[str], None] = lambda line: None) -> T | None:
        """Return `read` of the latest checkpoint for which no process raises Unreadable; None without any."""
        problem = None
        for step in reversed(self.steps):
            elsewhere = f"{self.folder}/{step}: cannot be read (by another process)"
            try:
                return distributed.together(functools.partial(read, step), Unreadable, elsewhere)
            except Unreadable as error:
                say(f"{error}; the run resumes from the checkpoint before it")
                problem = problem or error
        if problem:
            raise RunError(f"{problem}, nor can one before it; choose another directory with --run")
        return None

    def _read(self, step: int) -> Snapshot:
        """Return all that is no array."""
        folder = self.folder / str(step)
        record = _attempt(folder, lambda: json.loads((folder / "progress" / "metadata").read_bytes())["record"])
        return Snapshot(Progress(**record["progress"]), {}, record["source"])

    def _load(self, step: int, wanted: dict[str, Any]) -> dict[str, Any]:
        """Load the arrays as `wanted`; Orbax notices what is missing, cut off or of another shape."""
        # The handler and no checkpointer: that has barriers, and where one process fails another would wait in them.
        handler, folder = ocp.PyTreeCheckpointHandler(), self.folder / str(step)
        # Partial, as a fork's first checkpoint may hold a reference that the fork has no use for.
        args = ocp.args.PyTreeRestore(
            wanted, restore_args=ocp.checkpoint_utils.construct_restore_args(wanted), partial_restore=True
        )
        loaded = _attempt(folder, lambda: handler.restore(folder / "arrays", args=args))
        if any(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(loaded)):
            raise Unreadable(f"{folder}: an array is missing")  # which a partial restore leaves as it was asked for
        return loaded


def _attempt(folder: Path, read: Callable[[], T]) -> T:
    """Return the result of `read`; Unreadable where it fails, without the hundred lines that Orbax prints then."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read()
        except (MemoryError, jax.errors.JaxRuntimeError):
            raise
        except Exception as error:  # the readers of half a dozen formats
            reason = _reason(error)
        gc.collect()  # or the coroutines that failed tell of it later
    raise Unreadable(f"{folder}: cannot be read ({reason})")


def _reason(error: Exception) -> str:
    """Return the operating system's words for what went wrong if there are any, else the error's, in one line."""
    code = re.search(r"os_error_code='(\d+)'", str(error))  # in the text of tensorstore's ValueErrors
    return os.strerror(int(code[1])) if code else " ".join(str(error).split()).partition(". ")[0][:200]


def finite(value: Any) -> Any:
    """Plain JSON values with null for each number that is not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

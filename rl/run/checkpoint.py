"""The checkpoints of a run: all that it needs to resume, in one atomic Orbax step that is checked when it is read."""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import logging
import math
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from rl import distributed
from rl.config import ConfigError, RunError
from rl.model import lora, sharding
from rl.run.progress import Progress

for _name in ("absl", "asyncio"):  # Orbax logs its internals on every save, and both log errors that we report
    logging.getLogger(_name).setLevel(logging.CRITICAL)

T = TypeVar("T")


class _Damaged(Exception):
    """A checkpoint is not what was saved, or cannot be read; says in what."""


_together = functools.partial(distributed.together, kind=_Damaged, elsewhere="another process cannot read it")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Content of one checkpoint.

    Attributes:
      progress: the run's position.
      arrays: pytrees of JAX arrays by name, such as "parameters".
      source: what the run reads and no checkpoint holds, by name: see `rl.model.policy.Policy.source`.
    """

    progress: Progress
    arrays: dict[str, Any]
    source: dict[str, str] = dataclasses.field(default_factory=dict)


class Checkpoints:
    """The numbered checkpoints in a folder, of which the latest `keep` stay.

    All processes of a job call the same methods; the folder lies on a disk that they share. Nothing is written before
    the first `save`.
    """

    def __init__(self, folder: Path, keep: int):
        self.folder, self._keep = folder.absolute(), keep

    @property
    def steps(self) -> list[int]:
        """The numbers of all checkpoints, ascending."""
        return sorted(int(path.name) for path in self.folder.glob("*") if path.name.isdigit())

    @property
    def next_step(self) -> int:
        """The number that the next `save` gives."""
        return ((self._manager.latest_step() if self.folder.exists() else None) or 0) + 1

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
        """Save all of it as one atomic step, with a digest of every array and of everything else.

        Returns when the arrays are copied, and the writing continues; on a CPU, when all is written.

        Raises:
          RunError: if this one or the one before it cannot be written; those before are untouched.
        """
        record = finite({"progress": dataclasses.asdict(snapshot.progress), "arrays": _describe(snapshot.arrays)})
        record["source"] = snapshot.source
        self._written(
            lambda: self._manager.save(
                self.next_step,
                args=ocp.args.Composite(
                    arrays=ocp.args.StandardSave(snapshot.arrays),
                    progress=ocp.args.JsonSave({"record": record, "digest": _digest(record)}),
                ),
            )
        )

    def copy_latest(self, source: "Checkpoints") -> Progress:
        """Copy another run's latest checkpoint to be the first here, return its progress; RunError if it is damaged."""
        step = source.steps[-1]
        try:
            progress, _ = source._read(step)
        except _Damaged as error:
            run = source.folder.parent
            raise RunError(f"{source.folder}/{step}: damaged ({error}); delete {run} to make it anew") from None
        shutil.copytree(source.folder / str(step), self.folder / "1")
        return progress

    def check(self) -> None:
        """Raise what went wrong in the background, if anything has: RunError as `save`."""
        if "_manager" in vars(self):
            self._written(self._manager.check_for_errors)

    def close(self) -> None:
        """Wait until everything is written; RunError as `save`."""
        if "_manager" in vars(self):
            manager = vars(self).pop("_manager")
            try:
                self._written(manager.wait_until_finished)
            finally:
                manager.close()

    def _written(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # Orbax and tensorstore raise whatever they like where a disk is full
            if (reason := disk_problem(error)) is None:
                raise
            left = f"the last good one is {self.steps[-1]}" if self.steps else "there is none yet"
            raise RunError(f"{self.folder}: cannot write a checkpoint ({reason}); {left}") from None

    def progress(self) -> Progress | None:
        """Return that of the latest checkpoint whose record can be read; None without any checkpoint.

        Raises:
          ConfigError: if the processes of this job see different ones.
          RunError: if no record can be read.
        """
        if not distributed.is_same(str(self.steps)):
            raise ConfigError(
                f"{self.folder.parent}: not all processes see the same run there; they need a disk that all share"
            )
        return self._latest(lambda step: _together(lambda: self._read(step))[0])[0]

    def source(self) -> dict[str, str]:
        """Return `Snapshot.source` of the latest checkpoint whose record can be read; raises as `progress`."""
        return self._latest(lambda step: _together(lambda: self._read(step))[1].get("source", {}))[0] or {}

    def restore(
        self,
        like: Callable[[Progress], dict[str, Any]],
        say: Callable[[str], None],
        source: Mapping[str, str] = MappingProxyType({}),
    ) -> Snapshot | None:
        """Return the latest checkpoint that is whole, None without any; set damaged ones after it aside.

        Damage is whatever makes a file unreadable or an array, or anything else, differ from its digest.

        Args:
          like: function from the progress to `Snapshot.arrays` as ShapeDtypeStructs with shardings.
          say: function that shows a line for each that is damaged.
          source: `Snapshot.source` as it is now.

        Raises:
          ConfigError: if one does not match `like`, or is of another source.
          RunError: if all are damaged; they stay where they are.
        """

        def whole(step: int) -> Snapshot:
            progress, record = _together(lambda: self._read(step))
            lora.refuse_other_source(self.folder / str(step), record.get("source", {}), source)
            self._refuse_other_model(step, record, wanted := like(progress))
            arrays = _together(lambda: self._load(step, wanted))
            for name, now in _describe(arrays).items():  # only now, as all processes compute the sums together
                if now["sums"] != record["arrays"][name]["sums"]:
                    raise _Damaged(f"{name} is not what was saved")
            return Snapshot(progress, arrays, dict(source))

        snapshot, problems = self._latest(whole)
        if snapshot is not None:
            self._set_aside(problems, say)
        return snapshot

    def _latest(self, read: Callable[[int], T]) -> tuple[T | None, dict[int, str]]:
        """Return `read` of the latest whole checkpoint, and the problems of those after; RunError if none is whole."""
        problems: dict[int, str] = {}
        for step in reversed(self.steps):
            try:
                return read(step), problems
            except _Damaged as damage:
                problems[step] = str(damage)
        if problems:
            step, problem = next(iter(problems.items()))
            raise RunError(
                f"{self.folder}: all checkpoints are damaged ({step}: {problem}); choose another directory with --run"
            )
        return None, problems

    def _read(self, step: int) -> tuple[Progress, dict[str, Any]]:
        """Return the progress, and all that is no array, checked."""
        try:
            saved = json.loads((self.folder / str(step) / "progress" / "metadata").read_text(encoding="utf-8"))
            record = saved["record"]
            if _digest(record) != saved["digest"]:
                raise ValueError
            return Progress(**record["progress"]), record
        except OSError as error:
            raise _Damaged(f"progress: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _Damaged("progress is not what was saved") from None

    def _load(self, step: int, wanted: dict[str, Any]) -> dict[str, Any]:
        """Load the arrays as `wanted`, their sums not yet checked."""
        # The handler and no checkpointer: that has barriers, and where one process fails another would wait in them.
        handler, folder = ocp.PyTreeCheckpointHandler(), self.folder / str(step) / "arrays"
        # Partial, as a fork's first checkpoint may hold a reference that the fork has no use for.
        args = ocp.args.PyTreeRestore(
            wanted, restore_args=ocp.checkpoint_utils.construct_restore_args(wanted), partial_restore=True
        )
        loaded = _quietly(lambda: handler.restore(folder, args=args))
        if any(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(loaded)):
            raise _Damaged("an array is missing")  # which a partial restore leaves as it was asked for
        return loaded

    def _refuse_other_model(self, step: int, record: dict[str, Any], like: dict[str, Any]) -> None:
        ours = {name: (list(x.shape), x.dtype.name) for name, x in _leaves(like)}
        theirs = {name: (x["shape"], x["dtype"]) for name, x in record["arrays"].items()}
        for name, own in ours.items():  # what is there besides, such as the reference of another engineer, is not read
            if own != theirs.get(name):
                was, is_now = (" ".join(map(str, x)) for x in (theirs.get(name, ("absent",)), own))
                raise ConfigError(
                    f"{self.folder / str(step)}: does not match the model: {name} was {was}, is now {is_now}"
                )

    def _set_aside(self, problems: dict[int, str], say: Callable[[str], None]) -> None:
        """Move damaged checkpoints out of the way, and say so of each."""
        aside, used = self.folder.parent / "damaged", next(x for x in reversed(self.steps) if x not in problems)
        for step, problem in problems.items():
            if distributed.is_main():
                shutil.rmtree(aside / str(step), ignore_errors=True)
                aside.mkdir(exist_ok=True)
                (self.folder / str(step)).rename(aside / str(step))
            say(f"{self.folder}/{step}: damaged ({problem}); now in {aside}, and checkpoint {used} is used")
        distributed.agree(False)  # no process continues before they are moved


def disk_problem(error: BaseException) -> str | None:
    """Name the refusal of a disk, as "No space left on device", where `error` came of that; None of anything else."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror:
            return at.strerror
        for words in ("No space left on device", "File too large", "Disk quota exceeded", "Permission denied"):
            if words in str(at):  # tensorstore's errors are ValueErrors
                return words
        at = at.__cause__ or at.__context__
    return None


def _quietly(read: Callable[[], T]) -> T:
    """Return the result of `read`; where it fails, raise `_Damaged`.

    Keeps off the terminal what tensorstore prints on its own where reading fails, a hundred lines a file.
    """
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read()
        except (MemoryError, jax.errors.JaxRuntimeError):
            raise
        except Exception as error:  # the readers of half a dozen formats
            raise _Damaged(disk_problem(error) or "its arrays cannot be read") from None


def finite(value: Any) -> Any:
    """Plain JSON values with null for each number that is not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _describe(arrays: Any) -> dict[str, dict[str, Any]]:
    """Shape, dtype and sums of each array, by its dotted name."""
    return {
        name: {"shape": list(x.shape), "dtype": x.dtype.name, "sums": np.asarray(total).tolist()}
        for (name, x), total in zip(_leaves(arrays), sharding.sums(arrays), strict=True)
    }


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    return [
        (".".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

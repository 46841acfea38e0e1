"""A run on disk: its directory, atomic files, metrics, and Orbax checkpoints from which an unbroken run continues."""

import dataclasses
import functools
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from rl import distributed
from rl.config import Config, ConfigError, read

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax tells its internals on every save


LOGS = ("metrics.jsonl", "timings.jsonl")
"""Files that grow by a row a step: what was computed, and how long it took."""


@dataclasses.dataclass
class Progress:
    """Where a run stands; plain JSON values, saved in the same atomic step as the arrays.

    Attributes:
      stage: "warm_start", "rounds" or "finished".
      round, step: next ones to do; `step` counts within the stage or round.
      short_share: moving share of short answers, which sets the weights of the reward; None before the first.
      lake: configuration of the round under way, None if it is still to be designed.
      history: finished rounds: {"round", "config" (as realised), "evidence"}.
      log_bytes: length of each of the `LOGS` at this point; what came later is cut off on resuming.
    """

    stage: str = "warm_start"
    round: int = 0
    step: int = 0
    short_share: float | None = None
    lake: dict[str, Any] | None = None
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    log_bytes: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(LOGS, 0))


class RunDirectory:
    """The folder of one run; nothing is written before `create`.

    In a job of several processes all call the same methods. Process 0 writes text, and only it may read what it has
    just written; all save and restore arrays, so the folder lies on a disk that all of them share.

    Args:
      path: of the folder, which need not be there.
      config: of the run. A folder that holds another configuration is refused.

    Raises:
      ConfigError: if the folder was made by another configuration, is no run, or cannot be made below a file.
    """

    def __init__(self, path: Path, config: Config):
        self.path, self._config = path, config
        saved = path / "config.yaml"
        nearest = next(place for place in (path, *path.parents) if place.exists())
        if not nearest.is_dir():
            raise ConfigError(f"{path}: {nearest} is a file; choose another with --run")
        if saved.exists():
            self._refuse_other(saved, config)
        elif path.exists() and any(path.iterdir()):
            raise ConfigError(f"{path}: not empty and no run (it has no config.yaml); choose another with --run")

    def create(self) -> None:
        """Makes the folder, with the configuration in it; a run that is there stays as it is."""
        if not (self.path / "config.yaml").exists():
            self.write("config.yaml", self._config.to_yaml())

    def close(self) -> None:
        """Waits until everything is written."""
        if "_manager" in vars(self):
            self._manager.wait_until_finished()
            self._manager.close()

    @functools.cached_property
    def _manager(self) -> ocp.CheckpointManager:
        options = ocp.CheckpointManagerOptions(max_to_keep=self._config.checkpoint.keep, cleanup_tmp_directories=True)
        # Named here, as a manager that has saved nothing yet cannot tell what kind of items it finds.
        handlers = {"arrays": ocp.StandardCheckpointHandler(), "progress": ocp.JsonCheckpointHandler()}
        return ocp.CheckpointManager((self.path / "checkpoints").absolute(), options=options, item_handlers=handlers)

    @staticmethod
    def _refuse_other(saved: Path, config: Config) -> None:
        ours, theirs = _flat(config.model_dump(mode="json")), _flat(read(saved))
        for key in [*ours, *(theirs.keys() - ours.keys())]:
            if ours.get(key) != theirs.get(key):
                raise ConfigError(
                    f"{saved.parent}: made by another configuration ({key} = {theirs.get(key)} there, {ours.get(key)} "
                    "here); choose another directory with --run, or delete this one"
                )

    def write(self, name: str, content: str | dict | list) -> None:
        """Writes a file of the run whole or not at all; what is no string becomes JSON."""
        if not distributed.is_main():
            return
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str):
            content = json.dumps(content, indent=1) + "\n"
        partial = target.with_name(target.name + ".partial")
        partial.write_text(content)
        os.replace(partial, target)

    def amend(self, name: str, values: dict[str, Any]) -> None:
        """Adds keys to a JSON file of the run."""
        if distributed.is_main():
            self.write(name, json.loads((self.path / name).read_text()) | values)

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Adds a row to a JSON-lines file."""
        if not distributed.is_main():
            return
        with (self.path / name).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def save(self, arrays: Any, progress: Progress) -> None:
        """Saves arrays and progress as one atomic step; returns when the arrays are copied, the writing goes on."""
        for name in LOGS:
            log = self.path / name
            progress.log_bytes[name] = log.stat().st_size if log.exists() else 0
        step = (self._manager.latest_step() or 0) + 1
        self._manager.save(
            step,
            args=ocp.args.Composite(
                arrays=ocp.args.StandardSave(arrays), progress=ocp.args.JsonSave(dataclasses.asdict(progress))
            ),
        )

    def has_checkpoint(self) -> bool:
        """Whether there is anything to go on from."""
        return (self.path / "checkpoints").exists() and self._manager.latest_step() is not None

    def progress(self) -> Progress:
        """Of the last checkpoint; a beginner's if there is none.

        Raises:
          ConfigError: if the processes of this job see different ones.
        """
        if not distributed.is_same(str(sorted(path.name for path in (self.path / "checkpoints").glob("[0-9]*")))):
            raise ConfigError(f"{self.path}: not all processes see the same run there; they need a disk that all share")
        if not self.has_checkpoint():
            return Progress()
        saved = self._manager.restore(
            self._manager.latest_step(), args=ocp.args.Composite(progress=ocp.args.JsonRestore())
        )
        return Progress(**saved["progress"])

    def restore(self, like: Any) -> Any:
        """The arrays of the last checkpoint, sharded as `like`.

        Raises:
          ConfigError: if their shapes are not those of `like`.
        """
        step = self._manager.latest_step()
        saved = self._manager.item_metadata(step)["arrays"]
        ours, theirs = _shapes(like), _shapes(saved)
        if ours != theirs:
            name = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))[0]
            raise ConfigError(
                f"{self.path}/checkpoints/{step}: does not match the model: {name} is {theirs.get(name, 'absent')} "
                f"there, {ours.get(name, 'absent')} in this configuration"
            )
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        arrays = self._manager.restore(step, args=ocp.args.Composite(arrays=ocp.args.StandardRestore(abstract)))
        return arrays["arrays"]

    def cut_logs(self, progress: Progress) -> None:
        """Drops what was logged after the last checkpoint; those steps are done again."""
        for name, length in progress.log_bytes.items():
            if distributed.is_main() and (self.path / name).exists():
                os.truncate(self.path / name, length)


def fingerprint(parameters: Any) -> str:
    """A digest of all parameters, so that a proposal tells which ones wrote it; the same on every mesh.

    Each array is summed up where it lies, in integers that wrap around, every number weighted by its place; what is
    hashed is these sums. (To hash all bytes of Qwen3-4B they would have to come to the host, 16 GB.)
    """
    digest = hashlib.sha256()
    for (path, _), total in zip(jax.tree.leaves_with_path(parameters), _sums(parameters), strict=True):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.asarray(total).tobytes())
    return digest.hexdigest()


@jax.jit
def _sums(tree: Any) -> list[jax.Array]:
    """Two weighted sums of the bits of each array, uint32 ``[2]``."""
    found = []
    for x in jax.tree.leaves(tree):
        bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}")).astype(jnp.uint32)
        place = jnp.uint32(0)
        for axis, size in enumerate(x.shape):
            place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
        weights = ((place * jnp.uint32(odd) + jnp.uint32(odd >> 7)) | 1 for odd in (2654435761, 2246822519))
        found.append(jnp.stack([(bits * weight).sum(dtype=jnp.uint32) for weight in weights]))
    return found


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {
        ".".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path): tuple(leaf.shape)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }

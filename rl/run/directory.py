"""The folder of a run: whose it is, whole files, logs that are cut back on resuming, and the checkpoints in it."""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from engineer import evidence
from jaxlake import __version__, rules
from jaxlake.files import write_whole
from jaxlake.generate import VERSION as GENERATOR
from rl import distributed
from rl.config import Config, ConfigError, decisive, read, refuse_difference
from rl.run.checkpoint import Checkpoints, Snapshot, finite
from rl.run.progress import LOGS, Progress

ORIGIN = "origin.json"
"""Origin of a run that another one began: {"run": that one's folder from here, "validation_seed"}."""
FORMAT = 3
"""Number of the form of a run's files, which a change raises that runs of before do not survive."""
BEHAVIOUR = {"rules": rules.VERSION, "generator": GENERATOR, "evidence": evidence.VERSION}
"""Numbers of what a run's results depend on; results of different numbers are not comparable."""


def refuse_other_version(folder: Path, versions: Mapping[str, int]) -> None:
    """Raise ConfigError if a run's files have another form than `FORMAT`, or one of `versions` was another."""
    file = folder / "version.json"
    made = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"jaxlake": "0.1.0", "format": 1}
    now = {"format": FORMAT, **versions}
    remedy = f"finish the run with jaxlake {made['jaxlake']}, which began it, or begin another"
    refuse_difference(folder, {name: made.get(name) for name in now}, now, remedy)


class InUse(ConfigError):
    """Another process works in the folder."""


class RunDirectory:
    """The folder of one run; nothing is written before `create`.

    In a job of several processes all call the same methods. Process 0 writes text; all save and restore arrays, so the
    folder lies on a disk that all of them share.

    Args:
      config: the run's configuration. A folder of another configuration is refused, unless only settings that are
        `rl.config.fields.FREE` or `rl.config.ROUNDING` differ.

    Raises:
      ConfigError: if the folder was made by another configuration, or is no run.
      InUse: if another process has it.
    """

    def __init__(self, path: Path, config: Config):
        self.path, self.config = path, config
        self._lock: int | None = None
        self._is_taken = False
        self._is_run = (path / "config.yaml").exists()
        if self._is_run:
            refuse_other_version(path, BEHAVIOUR)
            was, now = decisive(read(path / "config.yaml")), decisive(config.model_dump(mode="json"))
            refuse_difference(path, was, now, "choose another directory with --run, or delete this one")
            self._take()
        elif path.exists() and any(child.name != "lock" for child in path.iterdir()):
            raise ConfigError(f"{path}: not empty and no run (it has no config.yaml); choose another with --run")

    def create(self) -> None:
        """Make the folder with the configuration, which may change in part; InUse if another process was faster."""
        if not self._is_run:
            self.claim()
            if distributed.agree((self.path / "config.yaml").exists()):
                raise InUse(f"{self.path}: was begun by another process just now; give the command again")
            self._is_run = True
        self.write("version.json", {"jaxlake": __version__, "format": FORMAT, **BEHAVIOUR})
        self.write("config.yaml", self.config.to_yaml())

    def claim(self) -> None:
        """Keep other jobs away, also where there is no run yet: a mistake may still be found. InUse if one is here."""
        if distributed.is_main():
            self.path.mkdir(parents=True, exist_ok=True)
        self._take()

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints", self.config.checkpoint.keep)

    @property
    def validation_seed(self) -> int:
        """Seed that the validation set is drawn by: the run's, or that of its origin, whose boards it keeps."""
        origin = self.path / ORIGIN
        if not origin.exists():
            return self.config.seed
        return json.loads(origin.read_text(encoding="utf-8"))["validation_seed"]

    def close(self) -> None:
        """Wait until everything is written, and let go of the folder."""
        try:
            self.checkpoints.close()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _take(self) -> None:
        if self._is_taken:
            return
        holder = ""
        if distributed.is_main():
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
            if take_lock(lock, self.path):
                os.ftruncate(lock, 0)
                os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())
                self._lock = lock
            else:
                holder = os.read(lock, 200).decode() or "another process"
                os.close(lock)
        if distributed.agree(bool(holder)):
            raise InUse(f"{self.path}: in use by {holder or 'another job'}; wait for it or choose another --run")
        self._is_taken = True

    def write(self, name: str, content: str | dict | list) -> None:
        """Write a file of the run whole or not at all; what is no string becomes JSON."""
        if not distributed.is_main():
            return
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str):
            content = json.dumps(finite(content), indent=1, allow_nan=False) + "\n"
        write_whole(target, content.encode())

    def amend(self, name: str, values: dict[str, Any]) -> None:
        """Add keys to a JSON file of the run."""
        if distributed.is_main():
            self.write(name, json.loads((self.path / name).read_text(encoding="utf-8")) | values)

    def append(self, name: str, row: dict[str, Any]) -> None:
        if not distributed.is_main():
            return
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(row), allow_nan=False) + "\n")

    @contextlib.contextmanager
    def replaced(self, name: str) -> Iterator[Path]:
        """Give a fresh folder to write into, which takes the place of `name` once it is whole."""
        target, fresh, old = (self.path / f"{name}{ending}" for ending in ("", ".partial", ".old"))
        if distributed.is_main():
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
        yield fresh
        if distributed.is_main():
            if target.exists():
                target.rename(old)
            fresh.rename(target)
            shutil.rmtree(old, ignore_errors=True)

    def save(self, snapshot: Snapshot) -> None:
        """Save a checkpoint that knows how long the logs are; see `Checkpoints.save`."""
        for name in LOGS:
            log = self.path / name
            if distributed.is_main() and log.exists():
                with log.open("rb") as file:
                    os.fsync(file.fileno())  # or a power cut could leave a log shorter than its checkpoint says
            snapshot.progress.log_bytes[name] = log.stat().st_size if log.exists() else 0
        self.checkpoints.save(snapshot)

    def cut_logs(self, progress: Progress) -> None:
        """Drop what was logged after a checkpoint; those steps are done again."""
        for name, length in progress.log_bytes.items():
            if distributed.is_main() and (self.path / name).exists():
                os.truncate(self.path / name, length)


def take_lock(file: int | IO[bytes], folder: Path) -> bool:
    """Lock an open file of a folder; False if another process has it.

    The lock is the kernel's: it ends with its process, for any reason. If the file system has no locks, a line says so,
    and no process is refused.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        print(f"{folder}: no lock ({error.strerror}); let no second process write there", file=sys.stderr)
    return True

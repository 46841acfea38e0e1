"""The folder of an evaluation: what it is of, and its answers as they come, so that it can be broken off anywhere."""

import dataclasses
import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlake.files import write_whole
from rl.config import ConfigError

IDENTITY, ANSWERS = "evaluation.json", "answers.jsonl"


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer to a board; a line of the file.

    Attributes:
      id: of the board.
      sample: number of the answer among those to it, from 0.
      answer: the text.
      tokens: its length; None where a server does not say.
      truncated: whether the limit on tokens ended it.
    """

    id: str
    sample: int
    answer: str
    tokens: int | None
    truncated: bool


class Record:
    """The folder of an evaluation; a context manager, which one process at a time may hold.

    Args:
      folder: made if it is not there.
      identity: plain JSON values that say whose answers these are and to what; a folder with others is refused.

    Attributes:
      answers: all that it holds, by id and sample.

    Raises:
      ConfigError: if the folder is in use, holds something else or cannot be one.
      OSError: if the disk does not take it.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]):
        self.folder = folder
        self.answers: dict[tuple[str, int], Answer] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / IDENTITY).exists():
                if any(folder.iterdir()):
                    raise ConfigError(f"{folder}: not empty and no evaluation; choose another with --out")
                write_whole(folder / IDENTITY, (json.dumps(identity, indent=1) + "\n").encode())
            self._refuse_other(identity)
            self._file = (folder / ANSWERS).open("a+b")
        except (FileExistsError, NotADirectoryError, FileNotFoundError) as error:
            raise ConfigError(f"{folder}: no folder can be made there ({error.strerror})") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError:
            self._file.close()
            raise ConfigError(f"{folder}: another process is writing there") from None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, answers: Sequence[Answer]) -> None:
        """Append answers.

        Raises:
          OSError: if the disk does not take them; a part of a line is dropped when the folder is opened again.
        """
        lines = "".join(json.dumps(dataclasses.asdict(answer)) + "\n" for answer in answers)
        self._file.write(lines.encode())
        self._file.flush()
        self.answers |= {(answer.id, answer.sample): answer for answer in answers}

    def _refuse_other(self, identity: dict[str, Any]) -> None:
        path = self.folder / IDENTITY
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            held = None
        if not isinstance(held, dict):
            raise ConfigError(f"{path}: not readable; delete the folder, or choose another with --out")
        for name in [*identity, *(held.keys() - identity.keys())]:
            if identity.get(name) != held.get(name):
                raise ConfigError(
                    f"{self.folder}: holds another evaluation ({name} = {json.dumps(held.get(name))} there, "
                    f"{json.dumps(identity.get(name))} here); choose another folder with --out"
                )

    def _read(self) -> None:
        """Read the answers and drop a last line without its end, which a process wrote when it was killed."""
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
        for number, line in enumerate(content[:whole].split(b"\n")[:-1], 1):
            try:
                entry = Answer(**json.loads(line))
                assert isinstance(entry.id, str) and isinstance(entry.answer, str) and type(entry.sample) is int
            except (ValueError, TypeError, AssertionError):
                raise ConfigError(
                    f"{self.folder / ANSWERS}, line {number}: no answer; delete the line, and it is asked for again"
                ) from None
            self.answers[entry.id, entry.sample] = entry

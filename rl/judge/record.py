"""The folder of an evaluation: whose answers it holds, and the answers as they come, so that it can stop anywhere."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pydantic

from jaxlake.files import whole_lines, write_whole
from rl.config import ConfigError
from rl.run.directory import take_lock

IDENTITY, ANSWERS = "evaluation.json", "answers.jsonl"


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(strict=True, extra="forbid"))
class Answer:
    """An answer to a question; a line of the file.

    Attributes:
      id: the question's, such as a board's.
      sample: number of the answer among those to its question, from 0.
      tokens: length of the answer; None where a server does not count.
      truncated: whether the limit on tokens ended it.
    """

    id: str
    sample: int
    answer: str
    tokens: int | None
    truncated: bool


_LINE = pydantic.TypeAdapter(Answer)


class Record:
    """The folder of an evaluation; a context manager, which one process at a time may hold.

    Args:
      identity: plain JSON values that say whose answers these are and to what; a folder with others is refused.

    Attributes:
      answers: all that it holds, by id and sample.
      about: content of ``evaluation.json``, the identity.

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
            self.about = self._read_about(identity)
            self._file = (folder / ANSWERS).open("a+b")
        except (FileExistsError, NotADirectoryError, FileNotFoundError) as error:
            raise ConfigError(f"{folder}: no folder can be made there ({error.strerror})") from None
        try:
            if not take_lock(self._file, folder):
                raise ConfigError(f"{folder}: another process is writing there")
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, answers: Sequence[Answer]) -> None:
        """Append answers; what a full disk takes of a line is dropped when the folder is opened again."""
        self._file.write("".join(json.dumps(dataclasses.asdict(answer)) + "\n" for answer in answers).encode())
        self._file.flush()
        self.answers |= {(answer.id, answer.sample): answer for answer in answers}

    def _read_about(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the file's content; ConfigError if that is another evaluation."""
        path = self.folder / IDENTITY
        try:
            held = pydantic.TypeAdapter(dict[str, Any]).validate_json(path.read_bytes())
        except pydantic.ValidationError:
            raise ConfigError(f"{path}: not readable; delete the folder, or choose another with --out") from None
        for name in [*identity, *(held.keys() - identity.keys())]:
            if identity.get(name) != held.get(name):
                raise ConfigError(
                    f"{self.folder}: holds another evaluation ({name} was {json.dumps(held.get(name))}, is now "
                    f"{json.dumps(identity.get(name))}); choose another folder with --out"
                )
        return held

    def _read(self) -> None:
        """Read the answers and drop a last line without its end, which a process wrote when it was killed."""
        for number, line in enumerate(whole_lines(self.folder / ANSWERS, cut=True), 1):
            try:
                answer = _LINE.validate_json(line)
            except pydantic.ValidationError:
                raise ConfigError(
                    f"{self.folder / ANSWERS}, line {number}: no answer; delete the line, and it is asked for again"
                ) from None
            self.answers[answer.id, answer.sample] = answer

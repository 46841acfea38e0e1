"""The folder of an evaluation: whose answers it holds, and the answers as they come, so that it can stop anywhere."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pydantic

from jaxlake.files import whole_lines, write_whole
from rl.config import ConfigError, refuse_difference
from rl.run.directory import take_lock

IDENTITY, ANSWERS = "evaluation.json", "answers.jsonl"


@pydantic.dataclasses.dataclass(frozen=True)
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


class Record:
    """The folder of an evaluation; a context manager, which one process at a time may hold; else ConfigError.

    Args:
      identity: plain JSON values that say whose answers these are and to what; a folder with others is refused.

    Attributes:
      folder: the folder.
      answers: all that it holds, by id and sample.
      about: content of ``evaluation.json``, the identity.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]):
        self.folder = folder
        about, path = folder / IDENTITY, folder / ANSWERS
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigError(f"{folder}: no folder can be made there ({error.strerror})") from None
        if not about.exists():
            if any(folder.iterdir()):
                raise ConfigError(f"{folder}: not empty and no evaluation; choose another with --out")
            write_whole(about, (json.dumps(identity, indent=1) + "\n").encode())
        self.about: dict[str, Any] = json.loads(about.read_bytes())
        remedy = "the folder holds another evaluation; choose another with --out"
        refuse_difference(folder, self.about, json.loads(json.dumps(identity)), remedy)
        self._file = path.open("a+b")
        if not take_lock(self._file, folder):
            self._file.close()
            raise ConfigError(f"{folder}: another process is writing there")
        # A last line without its end was being written when its process was killed.
        lines = map(pydantic.TypeAdapter(Answer).validate_json, whole_lines(path, cut=True))
        self.answers = {(answer.id, answer.sample): answer for answer in lines}

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, answer: Answer) -> None:
        """Append an answer."""
        self._file.write((json.dumps(dataclasses.asdict(answer)) + "\n").encode())
        self._file.flush()
        self.answers[answer.id, answer.sample] = answer

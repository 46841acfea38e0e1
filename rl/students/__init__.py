"""The students of the rounds: the language policy that writes plans, and players that move turn by turn."""

from collections.abc import Callable
from pathlib import Path

from jax.sharding import Mesh

from jaxlake.types import Instance
from rl.config import Config, NetworkSection, PlayerSection, extensions
from rl.judge.answers import Answerer
from rl.students.base import Program, Student
from rl.students.turns import language, network
from rl.students.turns.language import LanguagePlayer
from rl.students.turns.network import NetworkPlayer
from rl.students.turns.student import PlayerStudent
from rl.students.writer.student import Writer, WriterStudent, load_writer

__all__ = [
    "LanguagePlayer",
    "NetworkPlayer",
    "PlayerStudent",
    "Program",
    "Student",
    "Writer",
    "WriterStudent",
    "create",
    "load",
    "programs",
]


def create(config: Config) -> Student:
    """Make the student that the configuration names; ConfigError where a function of the user's own is not there."""
    extensions.check_extensions(config)
    if isinstance(config.student, NetworkSection):
        return NetworkPlayer(config)
    return LanguagePlayer(config) if isinstance(config.student, PlayerSection) else WriterStudent(config)


def programs(config: Config, mesh: Mesh) -> list[Program]:
    """List the programs that take the most memory of a run of a language model; nothing is traced yet."""
    return (LanguagePlayer if isinstance(config.student, PlayerSection) else WriterStudent).programs(config, mesh)


def load(config: Config, folder: Path | str, boards: Instance, say: Callable[[str], None]) -> Answerer:
    """Read what such a student saved, or a checkpoint of its kind, to answer boards.

    Args:
      folder: a run's ``final`` or ``best``; or any checkpoint, an id of the Hugging Face hub too.
      boards: all that it will be asked about: prompts get the room that the longest one needs.
      say: tells the user what was read.
    """
    if isinstance(config.student, NetworkSection):
        return network.load_player(config, Path(folder))
    if isinstance(config.student, PlayerSection):
        return language.load_player(config, Path(folder))
    return load_writer(config, folder, boards, say)

"""The students of the rounds: the language policy that writes plans, and players that move turn by turn."""

from rl.config import Config
from rl.students.base import BranchingStudent, Student, WritingStudent
from rl.students.language import LanguageStudent
from rl.students.player import LanguagePlayer, NetworkPlayer, PlayerStudent

__all__ = [
    "BranchingStudent",
    "LanguagePlayer",
    "LanguageStudent",
    "NetworkPlayer",
    "PlayerStudent",
    "Student",
    "WritingStudent",
    "create",
]


def create(config: Config) -> Student:
    """Make the student that `student.kind` and `student.actor` name.

    Raises:
      ConfigError: if it cannot be made as the settings say.
    """
    if not config.plays:
        return LanguageStudent(config)
    return NetworkPlayer(config) if config.is_network else LanguagePlayer(config)

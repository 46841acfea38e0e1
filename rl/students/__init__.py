"""The students of the rounds: the language policy, and a small network that plays the boards itself."""

from rl.config import Config
from rl.students.base import BranchingStudent, Student, WritingStudent
from rl.students.language import LanguageStudent
from rl.students.network import NetworkStudent

__all__ = ["BranchingStudent", "LanguageStudent", "NetworkStudent", "Student", "WritingStudent", "create"]


def create(config: Config) -> Student:
    """Make the student that `student.kind` names.

    Raises:
      ConfigError: if it cannot be made as the settings say.
    """
    return NetworkStudent(config) if config.is_network else LanguageStudent(config)

"""The environment engineer for other trainers: rounds of tasks, each designed from the rewards of the last one's."""

from jaxlake_trainers.boards import Board, Boards, curriculum_from_file
from jaxlake_trainers.curriculum import Drawn, EngineerCurriculum, Source, Task
from jaxlake_trainers.tasks import TASK_TEMPLATE, TaskSamplers

__all__ = [
    "TASK_TEMPLATE",
    "Board",
    "Boards",
    "Drawn",
    "EngineerCurriculum",
    "Source",
    "Task",
    "TaskSamplers",
    "curriculum_from_file",
]

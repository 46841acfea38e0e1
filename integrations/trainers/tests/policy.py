"""A policy that solves each kind of boards at a rate of its own, by copying the solver's plan or writing none."""

from collections.abc import Mapping

from jaxlake_trainers import Board, EngineerCurriculum, Task

NO_PLAN = "I am afraid I see no way around the holes."


def group(board: Board, rate: float, samples: int = 4) -> list[str]:
    """Return answers to a board of which the first are right, as many as the rate says, rounded."""
    right = round(rate * samples)
    return [board.answer] * right + [NO_PLAN] * (samples - right)


def report(curriculum: EngineerCurriculum, task: Task, answers: list[str]) -> None:
    """Report a group with the rewards of right and wrong answers."""
    rewards = [float(text == task.content.answer) for text in answers]
    curriculum.observe([task], [rewards], answers=[answers], tokens=[[len(text) for text in answers]])


def play(curriculum: EngineerCurriculum, rates: Mapping[str, float], count: int) -> list[Task]:
    """Take so many tasks and report each at once; return them."""
    taken = []
    for _ in range(count):
        (task,) = curriculum.sample(1)
        taken.append(task)
        report(curriculum, task, group(task.content, rates[task.kind]))
    return taken

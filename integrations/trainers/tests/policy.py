"""A policy that solves each kind of boards at a rate of its own, by copying the solver's plan or writing none."""

from jaxlake_trainers import EngineerCurriculum, LakeTask

NO_PLAN = "I am afraid I see no way around the holes."


def group(task: LakeTask, rate: float, samples: int = 4) -> list[str]:
    """Return answers to a task of which the first are right, as many as the rate says, rounded."""
    right = round(rate * samples)
    return [task.answer] * right + [NO_PLAN] * (samples - right)


def report(curriculum: EngineerCurriculum, task: LakeTask, answers: list[str]) -> None:
    """Report a group with the rewards of right and wrong answers."""
    rewards = [float(text == task.answer) for text in answers]
    curriculum.observe(task.kind, task.level, answers, rewards, [len(text) for text in answers], [False] * len(answers))


def play(curriculum: EngineerCurriculum, rates: dict[str, float], count: int) -> list[LakeTask]:
    """Take so many tasks and report each at once; return them."""
    taken = []
    for _ in range(count):
        taken.append(next(curriculum))
        report(curriculum, taken[-1], group(taken[-1], rates[taken[-1].kind]))
    return taken

"""The face that prime-rl's orchestrator sees: a task sampler. Imports prime-rl only where it is installed into it."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from jaxlake_trainers.boards import Board, Boards
from jaxlake_trainers.curriculum import EngineerCurriculum, Task
from jaxlake_trainers.tasks import Sampler


class EngineerSampler(Iterator[Any]):
    """A prime-rl ``TaskSampler`` whose tasks an engineer designs.

    It is one by its methods (read at prime-rl 0.8.0), so that neither prime-rl nor verifiers is needed to import it.

    Args:
      curriculum: of ``Boards``, or of ``TaskSamplers`` that draw verifiers' tasks, such as those of ``by_kind``.
      tasks: the environment's own. Boards need the fields ``prompt``, ``level`` and ``answer`` as the tasks of
        ``jaxlake-mapf`` have; the first one is the pattern of all, with its class, configuration and system prompt.
      kind: from a task's data to the name of its kind; of boards it is ``name``.
    """

    def __init__(
        self, curriculum: EngineerCurriculum, tasks: Iterable[Any], kind: Callable[[Any], str] = attrgetter("name")
    ) -> None:
        self.curriculum, self._kind = curriculum, kind
        self._pattern = next(iter(tasks)) if isinstance(curriculum.source, Boards) else None

    def __next__(self) -> Any:
        """Return the next ``verifiers.v1.Task``; of a board, ``name`` of its data is the kind."""
        (task,) = self.curriculum.sample(1)
        if self._pattern is None:
            return task.content
        fields = dataclasses.asdict(task.content)
        return self._pattern.with_data(idx=task.index, id=None, name=task.kind, **fields)

    def observe(self, group: Sequence[Any]) -> None:
        """Count the answers of a finalized group of ``verifiers.v1.Episode``, but for those that an error ended."""
        traces = [
            trace for episode in group for trace in episode.traces if not trace.has_error and trace.agent.trainable
        ]
        if traces:
            data = group[0].task.data
            content = None if self._pattern is None else Board(data.prompt, data.level, data.answer)
            self.curriculum.observe(
                [Task(data.idx, self._kind(data), content)],
                [[trace.reward for trace in traces]],
                answers=[[trace.last_reply for trace in traces]],
                tokens=[[trace.num_output_tokens for trace in traces]],
                truncated=[[trace.is_truncated for trace in traces]],
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the curriculum's state, plain JSON values."""
        return self.curriculum.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state of ``state_dict``; ValueError for one that is damaged or of another sampler."""
        self.curriculum.load_state_dict(state_dict)

    def metrics(self) -> dict[str, float]:
        """Return the curriculum's metrics."""
        return self.curriculum.metrics()


def by_kind(tasks: Sequence[Any], kind: Callable[[Any], str] = attrgetter("name")) -> dict[str, Sampler]:
    """Return samplers for ``TaskSamplers`` from an environment's own tasks, as many as there are.

    A kind's tasks are drawn in random order, and again from the first on where more are wanted.

    Args:
      tasks: finite, the kinds in order of their first tasks, the easiest first.
      kind: from a task's data to the name of its kind.

    Raises:
      ValueError: for tasks without end.
    """
    if not isinstance(tasks, Sequence):
        raise ValueError(f"tasks = {type(tasks).__name__} must be a finite sequence: give each kind a sampler of yours")
    groups: dict[str, list[Any]] = {}
    for task in tasks:
        groups.setdefault(kind(task.data), []).append(task)

    def sampler(group: list[Any]) -> Sampler:
        def draw(count: int, seed: int) -> list[Any]:
            order = random.Random(seed).sample(group, len(group))
            return [order[i % len(order)] for i in range(count)]

        return draw

    return {name: sampler(group) for name, group in groups.items()}


def install(make_sampler: Callable[[Iterable[Any]], EngineerSampler]) -> None:
    """Have the orchestrator of this process sample its training tasks by an engineer.

    prime-rl's configuration knows its own samplers alone, so the class that reads it is replaced by one that takes the
    sampler from here; admission gates stay as configured.

    Args:
      make_sampler: from an environment's tasks, endless or a sequence, to its sampler.
    """
    from prime_rl.orchestrator import train_source
    from prime_rl.orchestrator.curriculum import Curriculum

    class EngineeredCurriculum(Curriculum):
        def __init__(self, config: Any, tasks: Any) -> None:
            super().__init__(config, tasks)
            self.sampler = make_sampler(tasks)

    train_source.Curriculum = EngineeredCurriculum

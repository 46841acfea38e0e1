"""The face that prime-rl's orchestrator sees: a task sampler. Imports prime-rl only where it is installed into it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxlake_trainers.curriculum import EngineerCurriculum


class EngineerSampler(Iterator[Any]):
    """A prime-rl ``TaskSampler`` whose tasks an engineer designs.

    It is one by its methods (read at prime-rl 0.8.1), so that neither prime-rl nor verifiers is needed to import it.

    Args:
      curriculum: of the boards.
      tasks: the environment's own, verifiers' tasks with the fields ``prompt``, ``level`` and ``answer`` as those of
        ``jaxlake-mapf`` have; the first one is the pattern of all, with its class, configuration and system prompt.
    """

    def __init__(self, curriculum: EngineerCurriculum, tasks: Iterable[Any]) -> None:
        self.curriculum = curriculum
        self._pattern = next(iter(tasks))

    def __next__(self) -> Any:
        """Return the next ``verifiers.v1.Task``; ``name`` of its data is the kind."""
        task = next(self.curriculum)
        return self._pattern.with_data(
            idx=task.index, id=None, name=task.kind, prompt=task.prompt, level=task.level, answer=task.answer
        )

    def observe(self, group: Sequence[Any]) -> None:
        """Count the answers of a finalized group of ``verifiers.v1.Episode``, but for those that an error ended."""
        traces = [
            trace for episode in group for trace in episode.traces if not trace.has_error and trace.agent.trainable
        ]
        if traces:
            task = group[0].task.data
            self.curriculum.observe(
                task.name,
                task.level,
                [trace.last_reply for trace in traces],
                [trace.reward for trace in traces],
                [trace.num_output_tokens for trace in traces],
                [trace.is_truncated for trace in traces],
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the curriculum's state, plain JSON values."""
        return self.curriculum.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state of ``state_dict``."""
        self.curriculum.load_state_dict(state_dict)

    def metrics(self) -> dict[str, float]:
        """Return the curriculum's metrics."""
        return self.curriculum.metrics()


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

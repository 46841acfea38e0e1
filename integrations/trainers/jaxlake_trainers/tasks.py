"""Tasks of any kind for a curriculum: a function for each named kind draws them, and a reward says what is solved."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, ClassVar

import jax
import numpy as np

from engineer import Template
from engineer.engineers.base import generator
from jaxlake import Kind, LakeConfig
from jaxlake.config import counts
from jaxlake.kinds import Family
from jaxlake.types import Check
from jaxlake_trainers.curriculum import Drawn

Sampler = Callable[[int, int], Sequence[Any]]
"""``(count, seed) -> [count] tasks``; the same arguments must give the same tasks, from which a saved state resumes."""
TASK_TEMPLATE = Template.parse(resources.files(__package__).joinpath("tasks.md").read_text(encoding="utf-8"))
"""Words for a language model that designs shares of tasks; the package ``engineer`` has those for boards."""


@dataclasses.dataclass(frozen=True)
class TaskKind(Kind):
    """A named kind of tasks in the place of a kind of boards, so that every engineer can read and design it.

    Engineers need a name, an order and a difficulty of a kind. ``size`` is the place in the order; no board has it.
    """

    name: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and re.fullmatch(r"[\w.:+/-]+", self.name)):
            raise ValueError(f"kind = {self.name!r} must be one word of letters, digits and . : + / - _")

    @property
    def label(self) -> str:
        """The name."""
        return self.name


class TaskSamplers:
    """Named kinds of tasks with a sampler each; an engineer designs the kinds' shares of a round."""

    ratios: ClassVar[tuple[str, ...]] = ("data",)

    def __init__(self, samplers: Mapping[str, Sampler], *, solved: float = 1.0) -> None:
        """Check the kinds.

        Args:
          samplers: by the kinds' names, the easiest first: ``adarft`` and other rules climb in this order.
          solved: an answer counts as valid from this reward on.

        Raises:
          ValueError: naming the kind or the argument, and what it must be.
        """
        if not (isinstance(samplers, Mapping) and samplers and all(map(callable, samplers.values()))):
            raise ValueError(f"samplers = {samplers!r} must map names of kinds to functions (count, seed) -> tasks")
        if not np.isfinite(solved):
            raise ValueError(f"solved = {solved} must be a finite number")
        self._samplers, self._solved = dict(samplers), float(solved)
        kinds = [TaskKind(Family.RANDOM, place, name=name) for place, name in enumerate(samplers)]
        self.start = LakeConfig.uniform(kinds, hole=0.0, wait=0.0)

    @property
    def settings(self) -> dict[str, Any]:
        """The reward from which an answer counts as valid."""
        return {"solved": self._solved}

    def draw(self, config: LakeConfig, key: jax.Array, count: int) -> Drawn:
        """Draw each kind's share, in random order."""
        rng, numbers = generator(key), counts(config, count)
        kinds: list[str] = []
        contents: list[Any] = []
        for (name, sampler), number in zip(self._samplers.items(), numbers, strict=True):
            seed = int(rng.integers(2**31))
            drawn = list(sampler(number, seed)) if number else []
            if len(drawn) != number:
                raise ValueError(f"the sampler of {name} returned {len(drawn)} tasks: it must return {number}")
            kinds += [name] * number
            contents += drawn
        order = rng.permutation(count)
        realised = dataclasses.replace(self.start, data=tuple(number / count for number in numbers))
        return Drawn([kinds[i] for i in order], [contents[i] for i in order], realised)

    def judge(self, content: Any, rewards: np.ndarray, answers: Sequence[str] | None) -> tuple[Any, Any]:
        """Judge by the rewards: an answer that is not solved misses its goal, whatever else may be wrong."""
        checks, is_solved = np.ones((len(rewards), len(Check)), bool), rewards >= self._solved
        checks[:, Check.GOAL_REACHED] = is_solved
        return checks, is_solved

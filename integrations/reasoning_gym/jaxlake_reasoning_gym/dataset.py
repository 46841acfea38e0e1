"""Boards to plan on as a procedural dataset of reasoning-gym, with its curriculum. Runs no model."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
from reasoning_gym.coaching import BaseCurriculum, RangeAttributeDefinition, ScalarAttributeDefinition
from reasoning_gym.dataset import ProceduralDataset

from jaxlake import AnswerFormat, Kind, LakeConfig, PromptStyle, answer, generate
from jaxlake.adapters.text import judge, tasks
from jaxlake.arguments import seed_key

DATASET_NAME = "multi_agent_path_finding"

_BLOCK = 64
"""Boards that are drawn at once: one alone takes half as long as all of them."""
_BLOCKS = 64
"""Blocks that a process keeps for all its datasets, half a MB each."""


@dataclass
class MultiAgentPathFindingConfig:
    """Which boards, and how they are put into words.

    Attributes:
      min_grid_size, max_grid_size: side of the board, 3 to 10; of other families than ``random`` from 5 on.
      min_agents, max_agents: 1 to 5; every number occurs as often with every side.
      family: how the holes are laid out, a word of ``jaxlake.Family``.
      hole: density of the holes, 0 to .5.
      wait: share of the boards on which every optimal plan waits, 0 to 1; less where there are not as many.
      style: of the questions, a word of ``jaxlake.PromptStyle``.
      answer_format: what the questions ask for, a word of ``jaxlake.AnswerFormat``; answers in either are read.
      seed: of the boards.
      size: number of questions.
    """

    min_grid_size: int = 3
    max_grid_size: int = 6
    min_agents: int = 2
    max_agents: int = 2
    family: str = "random"
    hole: float = 0.2
    wait: float = 0.5
    style: str = "verbose"
    answer_format: str = "coordinates"
    seed: int | None = None
    size: int = 500

    def validate(self) -> None:
        """Raise ValueError for a value that cannot be, naming it and what it must be."""
        for what in ("grid_size", "agents"):
            least, most = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            if least > most:
                raise ValueError(f"min_{what} = {least} must be at most max_{what} = {most}")
        if self.size < 1:
            raise ValueError(f"size = {self.size} must be at least 1")
        _ = self.lake, PromptStyle(self.style), AnswerFormat(self.answer_format)

    @property
    def lake(self) -> LakeConfig:
        """Return the configuration of the boards: every side with every number of agents."""
        sides = range(self.min_grid_size, self.max_grid_size + 1)
        agents = range(self.min_agents, self.max_agents + 1)
        kinds = [Kind(self.family, side, number) for side in sides for number in agents]
        return LakeConfig.uniform(kinds, self.hole, self.wait)


class MultiAgentPathFindingDataset(ProceduralDataset):
    """Boards to plan on; a question is the same for the same configuration, seed and index, whatever the size."""

    def __init__(self, config: MultiAgentPathFindingConfig) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Return the question, an optimal plan as the answer, and in the metadata what scoring needs."""
        config = self.config
        block = _block(config.lake, config.style, config.answer_format, self.seed, idx // _BLOCK)
        question, best, level, kind, waits = block[idx % _BLOCK]
        return {
            "question": question,
            "answer": best,
            "metadata": {
                "source_dataset": DATASET_NAME,
                "source_index": idx,
                "level": level,
                "kind": str(kind),
                "needs_wait": waits,
                "difficulty": {
                    "grid_size": (config.min_grid_size, config.max_grid_size),
                    "agents": (config.min_agents, config.max_agents),
                    "hole": config.hole,
                    "wait": config.wait,
                },
            },
        }

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        """Return the paper's accuracy, from 0 to 1: 0 for a plan that is not valid, 1 for an optimal one.

        Args:
          answer: in any form that ``jaxlake`` reads; None is worth 0.
          entry: as the dataset makes it.
        """
        return float(judge([answer or ""], [entry["metadata"]["level"]])[1][0])


@functools.lru_cache(_BLOCKS)
def _block(
    lake: LakeConfig, style: str, answer_format: str, seed: int, number: int
) -> list[tuple[str, str, str, Kind, bool]]:
    """Return the questions of a block, with answer, level, kind and whether every optimal plan waits."""
    found = generate(lake, jax.random.fold_in(seed_key(seed), number), _BLOCK)
    side = found.instances.max_size
    pairs = tasks(found.instances, found.solutions.cost, style, answer_format)
    best = (answer(plan, side, answer_format) for plan in found.solutions.plan)
    return [
        (question, plan, level, kind, bool(waits))
        for (question, level), plan, kind, waits in zip(pairs, best, found.kinds, found.needs_wait, strict=True)
    ]


class MultiAgentPathFindingCurriculum(BaseCurriculum):
    """From small boards with two agents to large ones with five, more holes and more waits."""

    def __init__(self) -> None:
        super().__init__(MultiAgentPathFindingCurriculum.__name__, MultiAgentPathFindingConfig)
        self._define_attributes(
            RangeAttributeDefinition(
                name="grid_size",
                levels=[4, 5, 6, 7, 8, 9, 10],  # 3 x 3 has no room for five agents
                description="Side of the board",
                lower_field_name="min_grid_size",
                upper_field_name="max_grid_size",
            ),
            RangeAttributeDefinition(
                name="agents",
                levels=[2, 3, 4, 5],
                description="Number of agents",
                lower_field_name="min_agents",
                upper_field_name="max_agents",
            ),
            ScalarAttributeDefinition(
                name="hole", levels=[0.0, 0.1, 0.2, 0.3], description="Density of the holes", field_name="hole"
            ),
            ScalarAttributeDefinition(
                name="wait",
                levels=[0.0, 0.25, 0.5],
                description="Share of the boards on which every optimal plan waits",
                field_name="wait",
            ),
        )

"""Boards of a run: a generator call with the run's shapes of arrays, and mixtures of hole ratios."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, generate
from jaxlake.kinds import Kind
from jaxlake.types import Instance
from rl.config import ConfigError
from rl.model.policy import Policy, Prompts

VALIDATION_WAIT = 0.25
"""Share of the boards of a validation that need a wait."""


@dataclasses.dataclass(frozen=True)
class BoardSet:
    """Boards ``[n]`` that a policy is trained on, with their least costs and kinds; the same on all processes."""

    prompts: Prompts
    optima: np.ndarray
    kinds: np.ndarray

    @classmethod
    def of(cls, policy: Policy, boards: Dataset) -> "BoardSet":
        """Write the prompts of boards; see `Policy.prompts` for what it raises."""
        return cls(policy.prompts(boards.instances), np.asarray(boards.solutions.cost), boards.kinds)


Draw = Callable[[LakeConfig, jax.Array, int, Instance | None], Dataset]
"""``(configuration, key, count, exclude) -> boards``: makes or takes so many boards, none in `exclude`."""


def mixed_boards(
    draw: Draw,
    kinds: Sequence[Kind],
    holes: Sequence[float],
    wait: float,
    key: jax.Array,
    count: int,
    exclude: Instance | None = None,
) -> Dataset:
    """Draw boards of all kinds alike, an equal share of each hole ratio, one after the other; none twice.

    On small boards two ratios can mean the same number of holes, so each part leaves out what the ones before hold.
    """
    parts: list[Dataset] = []
    for i, hole in enumerate(holes):
        share = count * (i + 1) // len(holes) - count * i // len(holes)
        if share:
            parts.append(draw(LakeConfig.uniform(kinds, hole, wait), jax.random.fold_in(key, i), share, exclude))
            drawn = parts[-1].instances
            exclude = drawn if exclude is None else jax.tree.map(lambda *x: np.concatenate(x), exclude, drawn)
    columns = ((part.instances, part.solutions, part.needs_wait, part.kinds) for part in parts)
    instances, solutions, needs_wait, kind = jax.tree.map(lambda *x: np.concatenate(list(map(np.asarray, x))), *columns)
    return Dataset(instances, solutions, needs_wait, kind, tuple(report for part in parts for report in part.report))


def build_boards(
    kinds: Sequence[Kind], lake: LakeConfig, key: jax.Array, count: int, exclude: Instance | None
) -> Dataset:
    """Generate boards with the padding that a run's boards share; ConfigError if none is solvable.

    Args:
      kinds: every kind that the run meets.
    """
    size, agents = max(kind.size for kind in kinds), max(kind.num_agents for kind in kinds)
    try:
        return generate(lake, key, count, max_size=size, max_agents=agents, exclude=exclude)
    except ValueError as error:
        raise ConfigError(str(error)) from None

"""Boards of a run: a generator call with the run's objective and number of agents, and mixtures of hole ratios."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from engineer.evidence import SizeEnvironment
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, generate
from jaxlake.levels import pad
from jaxlake.types import Instance
from rl.config import Config, ConfigError
from rl.policy import Policy, Prompts


@dataclasses.dataclass(frozen=True)
class BoardSet:
    """Boards that a policy answers, to be trained or validated on; the same on all processes.

    Attributes:
      prompts, optima: ``[n]`` instances and their least costs.
      environment: of boards to be validated on, for the evidence.
    """

    prompts: Prompts
    optima: np.ndarray
    environment: tuple[SizeEnvironment, ...] = ()

    @classmethod
    def of(cls, policy: Policy, boards: Dataset) -> "BoardSet":
        """Writes the prompts of boards; see `Policy.prompts` for what it raises."""
        return cls(policy.prompts(boards.instances), np.asarray(boards.solutions.cost))


def mixed_boards(
    config: Config,
    holes: Sequence[float],
    wait: float,
    key: jax.Array,
    count: int,
    exclude: Instance | None = None,
    num_agents: Sequence[int] | None = None,
) -> Dataset:
    """Boards of all the run's sizes alike, an equal share of each hole ratio, one after the other; none twice.

    On small boards two ratios can mean the same number of holes, so each part leaves out what the ones before hold.

    Args:
      num_agents: an equal share of each, the run's own if None. Boards are at least as large as they have agents, as
        in the paper's benchmark.
    """
    num_agents = num_agents or (config.lake.num_agents,)
    if exclude is not None:
        exclude = pad(exclude, config.lake.sizes[-1], max(num_agents))
    parts, kinds = [], [(agents, hole) for agents in num_agents for hole in holes]
    for i, (agents, hole) in enumerate(kinds):
        lake = LakeConfig.uniform(tuple(size for size in config.lake.sizes if size >= agents), hole, wait)
        share = count * (i + 1) // len(kinds) - count * i // len(kinds)
        if share:
            parts.append(
                build_boards(config, lake, jax.random.fold_in(key, i), share, exclude, agents, max(num_agents))
            )
            drawn = parts[-1].instances
            exclude = drawn if exclude is None else jax.tree.map(lambda *x: np.concatenate(x), exclude, drawn)
    instances, solutions, needs_wait = jax.tree.map(
        lambda *x: np.concatenate([np.asarray(y) for y in x]),
        *((part.instances, part.solutions, part.needs_wait) for part in parts),
    )
    return Dataset(
        instances=instances,
        solutions=solutions,
        needs_wait=needs_wait,
        report=tuple(report for part in parts for report in part.report),
    )


def build_boards(
    config: Config,
    lake: LakeConfig,
    key: jax.Array,
    count: int,
    exclude: Instance | None,
    num_agents: int | None = None,
    max_agents: int | None = None,
) -> Dataset:
    """The generator with the run's objective and, unless another is given, its number of agents, and so many slots.

    Raises:
      ConfigError: if it finds no solvable board.
    """
    try:
        return generate(
            lake,
            key,
            count,
            num_agents=num_agents or config.lake.num_agents,
            max_agents=max_agents,
            objective=config.lake.objective,
            exclude=exclude,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None

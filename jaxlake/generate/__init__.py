"""Solved instances to a config's quotas: ``generate``; a quota that cannot be met is lowered and reported."""

import jax
import numpy as np

from jaxlake.arguments import whole_number
from jaxlake.config import LakeConfig, counts
from jaxlake.generate.candidates import Shape, fingerprints, fixed_fingerprints
from jaxlake.generate.dataset import Dataset, KindReport, assemble, report_kind
from jaxlake.generate.search import Found, Quotas, first_boards, rounded
from jaxlake.kinds import LARGEST_SIZE, MOST_AGENTS, Family, Kind
from jaxlake.levels import stack, validate
from jaxlake.record import Array
from jaxlake.solve.tree import MAX_HORIZON
from jaxlake.types import MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Objective

__all__ = ["Dataset", "KindReport", "generate"]

VERSION = 1
"""Number of the generator, which a change raises after which a key draws other boards."""
_CANDIDATES = (4096, 200)  # At least, and per instance wanted: 0.8 % of open 10x10 boards need a wait.


def generate(
    config: LakeConfig,
    key: Array,
    count: int,
    *,
    max_size: int | None = None,
    max_agents: int | None = None,
    max_steps: int = MAX_STEPS,
    objective: Objective | str = Objective.SUM_OF_COSTS,
    interacting: float | None = None,
    exclude: Instance | None = None,
    exact: bool = True,
) -> Dataset:
    """Draws boards until every kind has its instances, of which its share needs a wait.

    A random board of side N with n agents has ``floor(hole * (N**2 - 2 * n))`` holes; starts and goals are on different
    cells, all 2 n of them. What ``hole`` means for other families says ``Family``. Boards whose agents cannot all
    arrive, that occurred before, that are in ``exclude`` or in one of the package's fixed sets (``jaxlake.benchmark``)
    are dropped. If a kind's candidate budget ends before a quota is reached, instances that need no wait take the
    missing places; if it does not have enough different instances at all, those found are repeated.

    Args:
      key: the result depends on config, key, count and the numbers below alone.
      max_size: side of the padded board, the largest of the config's kinds by default.
      max_agents: agent slots, the most of the config's kinds by default.
      max_steps: horizon of the solver and length of the plans less one.
      objective: the cost that the plans minimise, and with respect to which an instance needs a wait.
      interacting: share of every kind's instances in which the agents are in each other's way: one needs a wait,
        or the optimum exceeds the agents' independent shortest paths. A higher wait ratio is kept. None leaves it as it
        comes, which for two agents on open 10x10 boards is 1 % of those that need no wait.
      exclude: ``[n]`` instances of any padding that must not occur, such as a validation set of one's own.
      exact: whether boards are solved; sides reach to 10 then and agents to 5. Without it they reach to 64 and 128. On
        every board each goal can be reached, the agents' shortest paths are the `lower_bound`, statuses are
        ``OUT_OF_BUDGET``, plans are empty, and there are no quotas of waits: `wait` must be 0, `interacting` None.

    Raises:
      ValueError: also for a kind that cannot be solved, or one for which no solvable board is found.
    """
    objective, count = Objective(objective), whole_number("count", count, 1)
    max_steps = whole_number("max_steps", max_steps, 1, MAX_HORIZON)
    side, agents = (max(getattr(kind, field) for kind in config.kinds) for field in ("size", "num_agents"))
    _check_kinds(config, exact, interacting)
    most = (MAX_SIZE, MAX_AGENTS) if exact else (LARGEST_SIZE, MOST_AGENTS)
    max_size = side if max_size is None else whole_number("max_size", max_size, side, most[0])
    max_agents = agents if max_agents is None else whole_number("max_agents", max_agents, agents, most[1])
    if interacting is not None and not 0 <= interacting <= 1:
        raise ValueError(f"interacting = {interacting} must be a share from 0 to 1")
    if exclude is not None:
        validate(exclude)
        exclude = exclude if np.ndim(exclude.size) else stack([exclude])
    excluded = fixed_fingerprints() if exclude is None else fixed_fingerprints().union(fingerprints(exclude))
    parts: list[Found] = []
    report: list[KindReport] = []
    for index, (kind, requested) in enumerate(zip(config.kinds, counts(config, count), strict=True)):
        waits = rounded(config.wait[index] * requested)
        least = None if interacting is None else max(waits, rounded(interacting * requested))
        shape = Shape(kind, config.hole[index], max_size, max_agents, max_steps, objective)
        quotas = Quotas(requested, waits, least)
        budget = _CANDIDATES[0] + _CANDIDATES[1] * requested
        found, account = first_boards(shape, _key_of(kind, key), quotas, excluded, budget, exact=exact)
        if requested and found is None:
            raise ValueError(
                f"{kind.words} at hole ratio {config.hole[index]:g} has no solvable board with {kind.num_agents} "
                f"agents among {account.candidates} candidates"
            )
        repeated = 0 if found is None else requested - len(found)
        if found is not None:
            found = _filled_up(found, requested)
            parts.append(found)
        report.append(report_kind(shape, quotas, found, repeated, account))
    return assemble(parts, report, jax.random.fold_in(key, 0))


def _check_kinds(config: LakeConfig, exact: bool, interacting: float | None) -> None:
    """Raise ValueError for kinds that are too large to be solved, and for quotas that need optima without them."""
    for kind, wait in zip(config.kinds, config.wait, strict=True):
        if exact and not kind.is_exact:
            raise ValueError(
                f"{kind.words} is too large to be solved: optima reach sides of {MAX_SIZE} with {MAX_AGENTS} agents; "
                "generate(..., exact=False) draws boards with lower bounds instead"
            )
        if not exact and (wait or interacting is not None):
            quota = f"wait of {kind.words} = {wait:g} must be 0" if wait else "interacting must be None"
            raise ValueError(f"{quota} with exact=False: only optima tell whether agents must wait or interact")


def _key_of(kind: Kind, key: Array) -> jax.Array:
    """Return the key of a kind; for the paper's kinds it depends on their size alone."""
    key = jax.random.fold_in(key, kind.size)
    number = list(Family).index(kind.family) * 8 + kind.num_agents
    if kind.num_agents >= 8:
        number += 1024 + 248 * list(Family).index(kind.family)  # 256 numbers for each family
    return key if number == 2 else jax.random.fold_in(key, number)


def _filled_up(found: Found, requested: int) -> Found:
    """Repeats those that need no wait, or all if every one does, until there are as many as requested."""
    movers = np.flatnonzero(~found.needs_wait)
    pool = movers if len(movers) else np.arange(len(found))
    indices = np.concatenate([np.arange(len(found)), np.resize(pool, requested - len(found))])
    return found[indices]

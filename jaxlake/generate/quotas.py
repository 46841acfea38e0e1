"""Instances to a config's quotas, each with its optimal plan; a quota that cannot be met is lowered and reported."""

import functools
import math

import jax
import numpy as np

from jaxlake.arguments import check_key, is_number, short_repr, whole_number
from jaxlake.config import LakeConfig, counts
from jaxlake.fixed_sets import SETS, load
from jaxlake.generate.candidates import Shape, fingerprints
from jaxlake.generate.dataset import GAPS, Dataset, SizeReport
from jaxlake.generate.search import Account, Found, Quotas, first_boards
from jaxlake.levels import stack, validate
from jaxlake.record import Array
from jaxlake.solve.tree import MAX_HORIZON
from jaxlake.types import MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Objective

_CANDIDATES = (4096, 200)  # At least, and per instance wanted: 0.8 % of open 10x10 boards make somebody wait.


def generate(
    config: LakeConfig,
    key: Array,
    count: int,
    *,
    num_agents: int = 2,
    max_size: int | None = None,
    max_agents: int | None = None,
    max_steps: int = MAX_STEPS,
    objective: Objective | str = Objective.SUM_OF_COSTS,
    interacting: float | None = None,
    exclude: Instance | None = None,
) -> Dataset:
    """Draws random boards until every size has its instances, of which its share needs a wait.

    A board of side N has ``floor(hole * (N**2 - 2 * num_agents))`` holes; starts and goals are on different cells, all
    ``2 * num_agents`` of them. Boards whose agents cannot all arrive, that occurred before, that are in ``exclude`` or
    in one of the package's fixed sets (``jaxlake.benchmark``) are dropped. If a size's candidate budget ends before a
    quota is reached, instances that need no wait take the missing places; if it does not have enough different
    instances at all, those found are repeated.

    Args:
      config: the ratios.
      key: the result depends on config, key, count and the numbers below alone.
      count: instances in all.
      num_agents: agents on every board.
      max_size: side of the padded board, the largest of the config's sizes by default.
      max_agents: agent slots, ``num_agents`` by default.
      max_steps: horizon of the solver and length of the plans less one.
      objective: what the plans minimise, and with respect to which an instance needs a wait.
      interacting: share of every size's instances in which the agents are in each other's way: somebody needs a wait,
        or the optimum exceeds the agents' independent shortest paths. A higher wait ratio is kept. None leaves it as it
        comes, which for two agents on open 10x10 boards is 1 % of those that need no wait.
      exclude: ``[n]`` instances of any padding that must not occur, such as a validation set of one's own.

    Raises:
      ValueError: naming the argument that is out of its range, or a size for which no solvable board is found.
    """
    if not isinstance(config, LakeConfig):
        raise ValueError(f"config = {short_repr(config)} must be a LakeConfig")
    check_key(key)
    objective, count = Objective(objective), whole_number("count", count, 1)
    num_agents, max_steps = (
        whole_number("num_agents", num_agents, 1),
        whole_number("max_steps", max_steps, 1, MAX_HORIZON),
    )
    max_size = config.sizes[-1] if max_size is None else whole_number("max_size", max_size, 1)
    max_agents = num_agents if max_agents is None else whole_number("max_agents", max_agents, 1)
    if not 1 <= num_agents <= config.sizes[0] ** 2 // 2:
        raise ValueError(f"{num_agents} agents do not fit a board of size {config.sizes[0]}")
    if max_size < config.sizes[-1] or max_agents < num_agents:
        raise ValueError(
            f"size {config.sizes[-1]} with {num_agents} agents exceeds max_size {max_size}, max_agents {max_agents}"
        )
    if max_size > MAX_SIZE or max_agents > MAX_AGENTS:
        raise ValueError(f"max_size {max_size} and max_agents {max_agents} must be at most {MAX_SIZE} and {MAX_AGENTS}")
    if interacting is not None and not (is_number(interacting) and 0 <= interacting <= 1):
        raise ValueError(f"interacting = {short_repr(interacting)} must be a share from 0 to 1")
    if exclude is not None:
        validate(exclude)
        exclude = exclude if np.ndim(exclude.size) else stack([exclude])
    excluded = _fixed() if exclude is None else _fixed().union(fingerprints(exclude))
    parts: list[Found] = []
    report: list[SizeReport] = []
    for index, (size, requested) in enumerate(zip(config.sizes, counts(config, count), strict=True)):
        waits = _rounded(config.wait[index] * requested)
        least = None if interacting is None else max(waits, _rounded(interacting * requested))
        holes = holes_on(size, num_agents, config.hole[index])
        shape = Shape(size, num_agents, holes, max_size, max_agents, max_steps, objective)
        quotas = Quotas(requested, waits, least)
        budget = _CANDIDATES[0] + _CANDIDATES[1] * requested
        found, account = first_boards(shape, jax.random.fold_in(key, size), quotas, excluded, budget)
        if requested and found is None:
            raise ValueError(
                f"size {size} at hole ratio {config.hole[index]:g} has no solvable board with {num_agents} agents "
                f"among {account.candidates} candidates"
            )
        repeated = 0 if found is None else requested - len(found.numbers)
        if found is not None:
            found = _filled_up(found, requested)
            parts.append(found)
        report.append(_reported(shape, quotas, found, repeated, account))
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), count))
    shuffled = together[order]
    return Dataset(shuffled.instances, shuffled.solutions, shuffled.needs_wait, tuple(report))


def holes_on(size: int, num_agents: int, ratio: float) -> int:
    """The number of holes on a board of that side; the ratio is of the cells that are neither start nor goal."""
    return math.floor(ratio * (size**2 - 2 * num_agents) + 1e-6)


@functools.cache
def _fixed() -> frozenset[bytes]:
    """The fingerprints of everything that training must not see."""
    return frozenset(fingerprint for name in SETS for fingerprint in fingerprints(load(name).instances))


def _filled_up(found: Found, requested: int) -> Found:
    """Repeats those that need no wait, or all if every one does, until there are as many as requested."""
    movers = np.flatnonzero(~found.needs_wait)
    pool = movers if len(movers) else np.arange(len(found.numbers))
    indices = np.concatenate([np.arange(len(found.numbers)), np.resize(pool, requested - len(found.numbers))])
    return found[indices]


def _reported(shape: Shape, quotas: Quotas, found: Found | None, repeated: int, account: Account) -> SizeReport:
    free = shape.size**2 - 2 * shape.num_agents
    searched = account.candidates - account.known
    gaps = np.zeros(0, int) if found is None else np.minimum(found.gaps, len(GAPS) - 1)
    return SizeReport(
        size=shape.size,
        requested=quotas.total,
        realised=len(gaps),
        requested_waits=quotas.waits,
        realised_waits=0 if found is None else int(np.sum(found.needs_wait)),
        requested_interacting=quotas.interacting,
        realised_interacting=0 if found is None else int(np.sum(found.interacts)),
        repeated=repeated,
        gaps=tuple(np.bincount(gaps, minlength=len(GAPS)).tolist()),
        holes=shape.holes,
        hole_ratio=shape.holes / free if free else 0.0,
        candidates=account.candidates,
        known=account.known,
        solvable=account.solved / searched if searched else 0.0,
        undecided=len(account.undecided),
    )


def _rounded(value: float) -> int:
    """Halves upwards; ``round`` takes them to the even number."""
    return math.floor(value + 0.5)

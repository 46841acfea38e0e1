"""Scenarios of other projects as a set to score: read, and solved, or bounded where a board is beyond the solver."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxlake import league, movingai, pogema
from jaxlake.fixed_sets import Benchmark, content_hash
from jaxlake.flood import LARGEST_SIDE, shortest_paths
from jaxlake.generate.search import solved
from jaxlake.levels import stack
from jaxlake.record import Array
from jaxlake.solve import solve
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, Instance, Objective, Status

MAPS_HELP = "or scenarios of other projects: POGEMA's .yaml, or MovingAI's .scen with its map beside it"
"""Help of ``--maps``."""
AGENTS_HELP = "with --maps: the first N agents of each scenario (default: all; of a .scen 2 to 5, on large maps to 128)"
"""Help of ``--agents``."""

_READERS: dict[str, Callable[..., dict[str, Instance]]] = {
    ".yaml": pogema.read_scenarios,
    ".yml": pogema.read_scenarios,
    ".scen": movingai.read_scenarios,
    ".json": league.read_scenarios,
}


def load_maps(path: str | Path, agents: Sequence[int] | None = None) -> Benchmark:
    """Read and solve the scenarios of a file of POGEMA's (``.yaml``) or of MovingAI's (``.scen``).

    The set has the file's name, the ids are the names that the readers give, and ``family`` is ``other``. Boards beyond
    ``MAX_SIZE`` or ``MAX_AGENTS`` are not solved: optimum and makespan are ``ABSENT``, and the lower bound is the sum
    of the agents' shortest paths. Scenarios without a plan, and those that the solver cannot decide, are left out:
    ``account["left_out"]`` has their names, under ``unsolvable`` and ``out_of_budget``.

    Args:
      agents: how many agents, the first of a scenario, each instance has, as the readers take it; by default all of
        POGEMA's and 2 to 5, on maps beyond 10 x 10 2, 4, 8, ... and 128 of MovingAI's.
    """
    path, scenarios = Path(path), read_maps(path, agents)
    names, instances = np.array(list(scenarios)), stack(list(scenarios.values()))
    exact = (instances.size <= MAX_SIZE) & (instances.num_agents <= MAX_AGENTS)
    columns = np.zeros((5, len(names)), np.int32)
    for part, judge in ((exact, _solved), (~exact, _bounded)):
        if part.any():
            columns[:, part] = judge(stack([scenarios[name] for name in names[part]]))
    statuses = columns[0]
    left_out = {
        status.name.lower(): names[statuses == status].tolist() for status in (Status.UNSOLVABLE, Status.OUT_OF_BUDGET)
    }
    decided = np.flatnonzero(statuses == Status.SOLVED)
    if not len(decided):
        raise ValueError(f"{path}: no scenario has a plan that the solver finds")
    instances, (_, optimum, lower_bound, makespan, needs_wait) = instances[decided], columns[:, decided]
    count, waits = len(decided), needs_wait[exact[decided]]
    return Benchmark(
        name=path.stem,
        ids=tuple(names[decided].tolist()),
        instances=instances,
        optimum=optimum,
        lower_bound=lower_bound,
        makespan=makespan,
        needs_wait=needs_wait.astype(bool),
        family=np.full(count, "other"),
        hole_ratio=np.asarray(instances.holes.sum(axis=1) / instances.size**2),
        wait_subset=np.full(count, waits.mean() if len(waits) else 0.0),
        account={"sha256": content_hash(vars(instances)), "instances": count, "left_out": left_out},
    )


def read_maps(path: str | Path, agents: Sequence[int] | None = None, lifelong: bool = False) -> dict[str, Instance]:
    """Return the instances of a file by name, unsolved; arguments and errors as of ``load_maps``.

    ``lifelong`` ones are played by POGEMA's ``on_target: restart``: a UserWarning says where a file has another rule.
    They may also be a problem of the League of Robot Runners (``.json``), whose boards have lists of goals.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None or (reader is league.read_scenarios and not lifelong):
        raise ValueError(f"{path} must end in {', '.join(_READERS)}, the last for lifelong play alone")
    rule = ["restart"] if lifelong and reader is pogema.read_scenarios else []
    scenarios = reader(path, agents, *rule)
    for name, instance in scenarios.items():
        if (side := int(instance.size)) > LARGEST_SIDE:
            raise ValueError(f"{path}, {name}: the board is {side}x{side}: it must be at most {LARGEST_SIDE} a side")
    return scenarios


def _solved(instances: Instance) -> tuple[Array, ...]:
    """Return status, optimum, lower bound, makespan and need of a wait, ``[n]``, of boards that the solver takes."""
    boards, status = solved(instances)
    makespan = np.full(len(status), ABSENT)
    if (decided := status == Status.SOLVED).any():
        makespan[decided] = solve(instances[decided], Objective.MAKESPAN).cost
    return status, boards.solutions.cost, boards.solutions.lower_bound, makespan, boards.needs_wait


def _bounded(instances: Instance) -> tuple[Array, ...]:
    """Return the same of larger boards, whose optima are unknown."""
    lengths = np.asarray(shortest_paths(instances))
    cut_off = np.any((lengths == ABSENT) & (instances.goals != ABSENT), axis=1)
    status = np.where(cut_off, Status.UNSOLVABLE, Status.SOLVED)
    unknown = np.full(len(status), ABSENT)
    return status, unknown, np.maximum(lengths, 0).sum(axis=1), unknown, np.zeros(len(status))


def warn_skipped(name: str, left_out: Mapping[str, Sequence[str]]) -> None:
    """Print to stderr which scenarios of a set are left out, by the reason; nothing where there are none."""
    for reason, names in left_out.items():
        if names:
            print(f"{name}: {len(names)} left out as {reason}: {', '.join(names)}", file=sys.stderr)

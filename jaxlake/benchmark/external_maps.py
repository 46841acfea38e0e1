"""Scenarios of other projects as a set to score: read, solved, and refused where a board is beyond the solver."""

import sys
from pathlib import Path

import numpy as np

from jaxlake import movingai, pogema
from jaxlake.fixed_sets import Benchmark, content_hash
from jaxlake.levels import stack
from jaxlake.solve import solve, without_waiting
from jaxlake.types import MAX_AGENTS, MAX_SIZE, Objective, Status

MAPS_HELP = "or scenarios of other projects: POGEMA's .yaml, or MovingAI's .scen with its map beside it"
"""Help of ``--maps``."""

_READERS = {".yaml": pogema.read_scenarios, ".yml": pogema.read_scenarios, ".scen": movingai.read_scenarios}


def load_maps(path: str | Path) -> Benchmark:
    """Read and solve the scenarios of a file of POGEMA's (``.yaml``) or of MovingAI's (``.scen``).

    The set has the file's name, the ids are the names of its scenarios, ``family`` is ``other``, and ``hole_ratio`` the
    share of a board's cells that are holes. Scenarios without a plan, and those that the solver cannot decide, are left
    out: ``account["left_out"]`` has their names, under ``unsolvable`` and ``out_of_budget``.

    Raises:
      OSError: if the file, or a map that it names, cannot be read.
      ModuleNotFoundError: for YAML, if PyYAML is not installed.
      ValueError: naming the file, the scenario and the fault: what cannot be read, and a board larger than ``MAX_SIZE``
        or with more agents than ``MAX_AGENTS``; or that all scenarios are left out.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise ValueError(f"{path} must end in {', '.join(_READERS)}")
    scenarios = _READERS[suffix](path)
    for name, instance in scenarios.items():
        size, agents = int(instance.size), int(instance.num_agents)
        if size > MAX_SIZE or agents > MAX_AGENTS:
            board = f"the board is {size}x{size} with {agents} agents"
            raise ValueError(f"{path}, {name}: {board}: it must be at most {MAX_SIZE}x{MAX_SIZE} with {MAX_AGENTS}")
    names, instances = np.array(list(scenarios)), stack(list(scenarios.values()))
    solutions = solve(instances)
    without = without_waiting(instances, solutions)
    statuses = np.where(without == Status.OUT_OF_BUDGET, without, solutions.status)
    left_out = {
        status.name.lower(): names[statuses == status].tolist() for status in (Status.UNSOLVABLE, Status.OUT_OF_BUDGET)
    }
    decided = np.flatnonzero(statuses == Status.SOLVED)
    if not len(decided):
        raise ValueError(f"{path}: no scenario has a plan that the solver finds")
    instances, solutions, needs_wait = instances[decided], solutions[decided], (without == Status.UNSOLVABLE)[decided]
    count = len(decided)
    return Benchmark(
        name=path.stem,
        ids=tuple(names[decided].tolist()),
        instances=instances,
        optimum=np.asarray(solutions.cost),
        lower_bound=np.asarray(solutions.lower_bound),
        makespan=np.asarray(solve(instances, Objective.MAKESPAN).cost),
        needs_wait=needs_wait,
        family=np.full(count, "other"),
        hole_ratio=np.asarray(instances.holes.sum(axis=1) / instances.size**2),
        wait_subset=np.full(count, needs_wait.mean()),
        account={"sha256": content_hash(vars(instances)), "instances": count, "left_out": left_out},
    )


def warn_skipped(benchmark: Benchmark) -> None:
    """Print to stderr which scenarios ``load_maps`` left out, and why; nothing where there are none."""
    for reason, names in benchmark.account.get("left_out", {}).items():
        if names:
            print(f"{benchmark.name}: {len(names)} left out as {reason}: {', '.join(names)}", file=sys.stderr)

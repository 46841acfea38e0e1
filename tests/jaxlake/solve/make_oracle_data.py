"""Makes the stored instances whose optimal sum of costs, or want of a plan, w9-pathfinding has decided.

    pip install w9-pathfinding
    python tests/jaxlake/solve/make_oracle_data.py

The candidates depend on the seed alone. Which of them are decided in time depends on the machine: those that are not
are left out, and counted. Nothing of the solver under test takes part.
"""

import argparse
import itertools
import multiprocessing
import time
from pathlib import Path

import numpy as np
from oracles import Undecided, distances, ends, moves, random_instance, w9_sum_of_costs

from jaxlake.types import ABSENT, Instance

FILE = Path(__file__).parents[1] / "data" / "optima.npz"
SEED = 20
SIZES, AGENTS, HOLE_RATIOS = tuple(range(3, 11)), (2, 3, 4, 5), (0.1, 0.2, 0.3, 0.4, 0.5)
CELLS = [cell for cell in itertools.product(SIZES, AGENTS, HOLE_RATIOS) if 2 * cell[1] <= cell[0] ** 2]
FIRST = (("CBS", 3.0), ("MultiAgentAStar", 2.0), ("ICTS", 1.0))
"""Solvers and their seconds in the order in which they are asked, until one of them decides."""
SECOND_SECONDS = 0.3
PAIR_SECONDS = 0.1


def candidates(size: int, num_agents: int, hole_ratio: float, count: int) -> list[Instance]:
    """Random boards; a quarter may start agents on goals, and an eighth may separate an agent from its goal."""
    rng = np.random.default_rng([SEED, size, num_agents, round(100 * hole_ratio)])
    found: list[Instance] = []
    while len(found) < count:
        instance = random_instance(rng, size, num_agents, hole_ratio, overlapping=len(found) % 4 == 3)
        if len(found) % 8 == 0 or connected(instance):
            found.append(instance)
    return found


def connected(instance: Instance) -> bool:
    """Each agent alone on the board has a way to its goal."""
    near = moves(instance)
    return all(start in distances(near, goal) for start, goal in zip(*ends(instance), strict=True))


def decide(instance: Instance) -> tuple[int, int] | None:
    """The optimum, ``ABSENT`` for no plan, and how many solvers say so; None if none does in time.

    Two agents that cannot pass each other settle the whole instance, and that is asked first, because otherwise the
    absence of a plan is the longest search of all.
    """
    pairs = itertools.combinations(range(int(instance.num_agents)), 2)
    answers = []
    if any(within(instance, "MultiAgentAStar", PAIR_SECONDS, pair) == [ABSENT] for pair in pairs):
        answers.append(ABSENT)
    for solver, seconds in FIRST:
        if len(answers) < 2:
            answers += within(instance, solver, SECOND_SECONDS if answers else seconds)
    if len(set(answers)) > 1:
        raise AssertionError(f"w9's solvers find {answers} for {instance}")
    return (answers[0], len(answers)) if answers else None


def within(instance: Instance, solver: str, seconds: float, agents: tuple[int, ...] | None = None) -> list[int]:
    """The solver's answer, or none."""
    try:
        answer = w9_sum_of_costs(instance, solver, seconds, agents)
    except Undecided:
        return []
    return [ABSENT if answer is None else answer]


def fill(task: tuple[tuple[int, int, float], int]) -> tuple[list[tuple[Instance, tuple[int, int]]], float]:
    """The decided ones of a cell's candidates, and the seconds that took."""
    (size, num_agents, hole_ratio), count = task
    began = time.monotonic()
    answers = [(instance, decide(instance)) for instance in candidates(size, num_agents, hole_ratio, count)]
    return [entry for entry in answers if entry[1] is not None], time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=96, help="candidates per size, number of agents and hole ratio")
    parser.add_argument("--out", type=Path, default=FILE, metavar="FILE")
    options = parser.parse_args()

    decided, dropped = [], []
    with multiprocessing.get_context("spawn").Pool(multiprocessing.cpu_count()) as pool:
        for cell, (found, seconds) in zip(
            CELLS, pool.imap(fill, [(cell, options.count) for cell in CELLS]), strict=True
        ):
            decided += [(cell[2], *entry) for entry in found]
            dropped.append(options.count - len(found))
            unsolvable = sum(answer[0] == ABSENT for _, answer in found)
            print(*cell, f"unsolvable {unsolvable} dropped {dropped[-1]} {seconds:.1f} s", sep="\t", flush=True)

    hole_ratios, instances, answers = zip(*decided, strict=True)
    optima, solvers = np.array(answers).T
    options.out.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        options.out,
        size=np.array([instance.size for instance in instances], np.int8),
        num_agents=np.array([instance.num_agents for instance in instances], np.int8),
        hole_percent=np.array([round(100 * ratio) for ratio in hole_ratios], np.int8),
        holes=np.packbits([instance.holes for instance in instances], axis=-1),
        starts=np.array([instance.starts for instance in instances], np.int8),
        goals=np.array([instance.goals for instance in instances], np.int8),
        optimum=optima.astype(np.int16),
        solvers=solvers.astype(np.int8),
        cells=np.array([(size, agents, round(100 * ratio)) for size, agents, ratio in CELLS], np.int8),
        dropped=np.array(dropped, np.int16),
    )
    print(f"{len(optima)} decided, {sum(dropped)} dropped, {options.out.stat().st_size} bytes in {options.out}")


if __name__ == "__main__":
    main()

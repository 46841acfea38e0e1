"""What does a family's density do to its boards, and how often do they make
somebody wait? Families side by side with random boards.

Boards are drawn as the generator draws them, without quotas; the figures are
of those that have a plan, with 95 % intervals:

  gap         the optimum less the agents' shortest paths
  waits       share on which every optimal plan waits
  expansions  of the solver: time steps searched over all joint positions with
              two agents, nodes of the constraint tree with more
  collide     share on which the agents' shortest paths, one of each found
              without a look at the others, collide

The peer of a family is `random` at the same density; the ratio is that of the
shares that wait. Its target is for two agents on bays and corridors, where
they have to pass each other.

examples:
  python benchmarks/families.py
      8x8 with 2 agents, and 6x6 with 3; six densities; some ten minutes
  python benchmarks/families.py --quick
      8x8 with 2 agents, three densities, fewer boards
"""

import math
import statistics
from typing import NamedTuple

import jax
import numpy as np
from side_by_side import read_options, write_rows

from jaxlake import Family, Instance, Kind, Plan, Status, solve, verify, without_waiting
from jaxlake.generate.candidates import Shape, draw

TARGET = 5.0
PASSING = (Family.BAYS, Family.CORRIDOR)


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


class Measured(NamedTuple):
    """The figures of a kind at a density."""

    solvable: float
    gap: Interval
    waits: Interval
    expansions: Interval
    collide: Interval


def main() -> None:
    options = read_options(__doc__, quick="8x8 with 2 agents, three densities, fewer boards")
    shapes = [(8, 2, 1024)] if options.quick else [(8, 2, 8192), (6, 3, 1024)]
    densities = (0.0, 0.25, 0.5) if options.quick else (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    rows = []
    for size, num_agents, count in shapes:
        print(f"{size}x{size} with {num_agents} agents, {count:,} boards drawn; mean and 95 % interval")
        print(f"{'':<10}density solvable{'gap':>23}{'waits %':>20}{'expansions':>29}{'collide %':>23}")
        for family in Family:
            kind = Kind(family, size, num_agents)
            measured = [measure(kind, density, count) for density in densities]
            waits = [figures.waits.mean for figures in measured]
            if family is Family.RANDOM:
                peer = waits
            target = TARGET if family in PASSING and num_agents == 2 else None
            for density, figures, ours, theirs in zip(densities, measured, waits, peer, strict=True):
                print(line(kind, density, figures), flush=True)
                name = f"strict waits, {kind} at density {density:g}"
                rows.append(row(name, ours, theirs, target) | figures._asdict())
            rows.append(row(f"strict waits, {kind}, mean", statistics.mean(waits), statistics.mean(peer), target))
    for entry in rows:
        if entry["met"] is not None:
            met = "met" if entry["met"] else "not met"
            print(f"{entry['name']:<40}{entry['ratio']:>6.1f} times random, target {entry['target']:g} {met}")
    write_rows(rows, options.json)


def measure(kind: Kind, density: float, count: int) -> Measured:
    """Draw, solve and summarise boards of a kind."""
    instances = draw(jax.random.key(0), 0, count, Shape(kind, density, kind.size, kind.num_agents))
    solutions = solve(instances)
    solved = np.flatnonzero(solutions.status == Status.SOLVED)
    instances, solutions = instances[solved], solutions[solved]
    return Measured(
        solvable=len(solved) / count,
        gap=mean(solutions.cost - solutions.lower_bound),
        waits=share(without_waiting(instances, solutions) == Status.UNSOLVABLE),
        expansions=mean(solutions.expansions),
        collide=share(~np.asarray(verify(instances, plain_paths(instances), 0).valid)),
    )


def plain_paths(instances: Instance) -> Plan:
    """Return plans of shortest paths, each agent's found as if it were alone."""
    alone = [
        solve(
            instances.replace(
                num_agents=np.ones_like(instances.num_agents),
                starts=instances.starts[:, [agent]],
                goals=instances.goals[:, [agent]],
            )
        ).plan
        for agent in range(instances.max_agents)
    ]
    paths, lengths = (np.concatenate([getattr(plan, part) for plan in alone], 1) for part in ("paths", "lengths"))
    return alone[0].replace(num_named=instances.num_agents, paths=paths, lengths=lengths)


def mean(values: np.ndarray) -> Interval:
    half = 1.96 * float(np.std(values)) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return Interval(middle, middle - half, middle + half)


def share(flags: np.ndarray) -> Interval:
    """Wilson's interval, which has a width at 0 and 1, too."""
    count, middle = len(flags), float(np.mean(flags))
    scale = 1 + 1.96**2 / count
    centre = (middle + 1.96**2 / (2 * count)) / scale
    half = 1.96 * math.sqrt(middle * (1 - middle) / count + (1.96 / (2 * count)) ** 2) / scale
    return Interval(middle, centre - half, centre + half)


def line(kind: Kind, density: float, figures: Measured) -> str:
    def shown(value: Interval, scale: float, digits: int) -> str:
        low, high = (f"{scale * end:.{digits}f}" for end in (value.low, value.high))
        return f"{scale * value.mean:.{digits}f} ({low} to {high})"

    return (
        f"{kind!s:<13}{density:>4g}{figures.solvable:>9.1%}{shown(figures.gap, 1, 2):>23}"
        f"{shown(figures.waits, 100, 1):>20}{shown(figures.expansions, 1, 2):>29}{shown(figures.collide, 100, 1):>23}"
    )


def row(name: str, ours: float, peer: float, target: float | None) -> dict:
    ratio = ours / peer
    met = None if target is None else ratio >= target
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "target": target, "met": met}


if __name__ == "__main__":
    main()

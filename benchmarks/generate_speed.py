"""How long do 4,000 solved instances take? The generator against a plain loop
around a C++ solver; and how many boards of each family come in a second.

The peer draws boards one by one, drops those whose agents are cut off, and has
w9-pathfinding's CBS find the optimum, one process on each core. It cannot tell
strict waits, so it takes every instance whose optimum exceeds the shortest
paths for one, of which there are more. Seconds; the target is of the first
call, which compiles.

Families have no peer: boards of side 8 with two agents at a density of .3 that
are kept in a second, compiled before, none or a tenth of them with waits.

examples:
  pip install w9-pathfinding
  python benchmarks/generate_speed.py
      4,000 instances of two agents, sides 3 to 10, half of them with waits
  python benchmarks/generate_speed.py --quick
      800 instances, one round
"""

import contextlib
import itertools
import multiprocessing
import os
import statistics
import time
from multiprocessing.pool import Pool

import jax
import numpy as np
from side_by_side import installed, read_options, write_rows

from jaxlake import Family, Kind, LakeConfig, generate
from jaxlake.config import counts

SIZES = tuple(range(3, 11))
WAIT = 0.5
TARGET = 20.0
FAMILY_WAITS = (0.0, 0.1)
FAMILY_TARGET = 1000.0  # Boards a second on two cores.
PEER_SECONDS = 0.05  # For one board; pairs that cannot pass each other would keep the peer busy for ever.
PEER_CANDIDATES = 200  # For each instance wanted, as the generator has it.


def main() -> None:
    options = read_options(__doc__, quick="800 instances, one round")
    count, rounds = (800, 2) if options.quick else (4000, 4)

    ours, peers = [], []
    with start_peer() if installed("w9_pathfinding", "w9-pathfinding") else contextlib.nullcontext() as peer:
        for seed in range(rounds):
            # The same number of holes is drawn for both; a round is a call with boards from .1 to .5.
            holes = np.random.default_rng(seed).uniform(0.1, 0.5, len(SIZES)).round(2).tolist()
            config = LakeConfig(SIZES, (1 / len(SIZES),) * len(SIZES), tuple(holes), (WAIT,) * len(SIZES))
            began = time.perf_counter()
            data = generate(config, jax.random.key(seed), count)
            ours.append(time.perf_counter() - began)
            tried = sum(entry.candidates for entry in data.report)
            undecided = sum(entry.undecided for entry in data.report)
            print(f"round {seed}: {tried:,} boards tried, {undecided} undecided", end="")
            if peer:
                began = time.perf_counter()
                jobs = zip(SIZES, holes, counts(config, count), strict=True)
                found = sum(peer.map(plain_loop, [(*job, int(WAIT * job[2] + 0.5), seed) for job in jobs], chunksize=1))
                peers.append(time.perf_counter() - began)
                print(f"; the peer found {found:,} instances", end="")
            print("".join(f"\n         {line}" for line in data.shortfalls()))

    rows = [
        row("first call, compilation included", ours[:1], peers[:1], TARGET),
        row("later calls, median", ours[1:], peers[1:]),
    ]
    print(f"\nseconds for {count:,} instances of two agents, sides 3 to 10, holes .1 to .5, waits {WAIT}")
    print(f"{'':<34}{'ours':>8}{'peer':>8}{'ratio':>8}{'target':>8}  met")
    for entry in rows:
        target = "" if entry["target"] is None else f"{entry['target']:.0f}"
        met = {True: "yes", False: "no", None: ""}[entry["met"]]
        theirs, ratio = ("-" if entry[key] is None else f"{entry[key]:.2f}" for key in ("peer", "ratio"))
        print(f"{entry['name']:<34}{entry['ours']:>8.2f}{theirs:>8}{ratio:>8}{target:>8}  {met}")
    print("\nboards a second of side 8 with two agents, density .3")
    print(f"{'':<34}{'ours':>8}{'target':>24}  met")
    for family, waits in itertools.product(Family, FAMILY_WAITS):
        rate = boards_per_second(Kind(family, 8), waits, count, rounds)
        met = rate >= FAMILY_TARGET
        name = f"{family.value}, waits {waits:g}"
        rows.append({"name": name, "ours": rate, "peer": None, "ratio": None, "target": FAMILY_TARGET, "met": met})
        print(f"{name:<34}{rate:>8,.0f}{FAMILY_TARGET:>24,.0f}  {'yes' if met else 'no'}", flush=True)
    write_rows(rows, options.json)


def boards_per_second(kind: Kind, waits: float, count: int, rounds: int) -> float:
    """Return the median rate at which boards are kept; the first call compiles and is not counted."""
    config = LakeConfig.uniform((kind,), hole=0.3, wait=waits)
    seconds = []
    for seed in range(rounds):
        began = time.perf_counter()
        data = generate(config, jax.random.key(seed), count)
        seconds.append(time.perf_counter() - began)
        for line in data.shortfalls():
            print(line)
    return count / statistics.median(seconds[1:])


def row(name: str, ours: list[float], peers: list[float], target: float | None = None) -> dict:
    """Compare seconds, where there are a peer's; the ratio is the median of the rounds' ratios."""
    taken = statistics.median(ours)
    return {
        "name": name,
        "ours": taken,
        "peer": statistics.median(peers) if peers else None,
        "ratio": statistics.median(peer / our for our, peer in zip(ours, peers, strict=True)) if peers else None,
        "target": target,
        "met": None if target is None else taken <= target,
    }


def start_peer() -> Pool:
    """Return a process for each core, in which the peer is imported already."""
    cores = os.cpu_count() or 1
    pool = multiprocessing.get_context("spawn").Pool(cores)
    pool.map(plain_loop, [(3, 0.2, 1, 0, 0)] * cores)
    return pool


def plain_loop(job: tuple[int, float, int, int, int]) -> int:
    """Solves boards of (size, hole ratio, count, of them interacting, seed) one by one; how many it found."""
    from w9_pathfinding import mapf
    from w9_pathfinding.envs import Grid

    size, hole, requested, interacting, seed = job
    rng = np.random.default_rng([seed, size])
    holes = int(hole * (size**2 - 4) + 1e-6)
    lacking = [requested - interacting, interacting]
    for _ in range(PEER_CANDIDATES * requested):
        if not any(lacking):
            break
        order = [divmod(cell, size) for cell in rng.permutation(size * size).tolist()]
        starts, goals, blocked = order[:2], order[2:4], set(order[4 : 4 + holes])
        lengths = [steps(start, goal, blocked, size) for start, goal in zip(starts, goals, strict=True)]
        if None in lengths:
            continue
        weights = [[-1.0 if (r, c) in blocked else 1.0 for c in range(size)] for r in range(size)]
        search = mapf.CBS(Grid(weights=weights, edge_collision=True), seed=0)
        try:
            paths = search.mapf(
                [cell[::-1] for cell in starts], [cell[::-1] for cell in goals], max_length=64, max_time=PEER_SECONDS
            )
        except RuntimeError:  # Out of time.
            continue
        if paths:
            kind = int(sum(map(arrival, paths)) > sum(lengths))
            lacking[kind] -= lacking[kind] > 0
    return requested - sum(lacking)


def steps(start: tuple[int, int], goal: tuple[int, int], blocked: set, size: int) -> int | None:
    """Length of a shortest path, None for no path."""
    distance, frontier = {start: 0}, [start]
    for here in frontier:
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            cell = here[0] + down, here[1] + right
            if cell not in distance and cell not in blocked and min(cell) >= 0 and max(cell) < size:
                distance[cell] = distance[here] + 1
                frontier.append(cell)
    return distance.get(goal)


def arrival(path: list) -> int:
    last = len(path) - 1
    while last and path[last - 1] == path[-1]:
        last -= 1
    return last


if __name__ == "__main__":
    main()

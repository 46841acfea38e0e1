"""How many instances are solved optimally per second? ``jaxlake.solve``
against CBS in C++ (w9-pathfinding).

Both minimise the sum of costs on the same random boards, on which each agent
alone can reach its goal. Ours is timed from numpy arrays to numpy arrays,
compiled before. The peer runs one process a core; its grids are built outside
its timing, it has a second per instance, and it is plain or disjoint CBS,
whichever is faster on a few boards of the kind; where it is slow it gets the
first boards only. They take turns: rates are medians of the rounds, and the
ratio is that of their ratios. Unsolved are those out of budget or time; costs
found by both are compared, and must be equal.

examples:
  pip install w9-pathfinding
  python benchmarks/solver_speed.py
      sizes 3 to 10, 2 to 5 agents, hole ratios .1 to .3; some 15 minutes
  python benchmarks/solver_speed.py --quick
      a few of them: under a minute
"""

import itertools
import multiprocessing
import os
import time
from multiprocessing.connection import Connection

import numpy as np
from side_by_side import Row, installed, read_options, report, row

from jaxlake import Instance, Status, solve

SIZES, AGENTS, HOLE_RATIOS = range(3, 11), range(2, 6), (0.1, 0.2, 0.3)
CELLS = [cell for cell in itertools.product(AGENTS, SIZES, HOLE_RATIOS) if 2 * cell[0] <= cell[1] ** 2]
QUICK = [(2, 4, 0.1), (2, 10, 0.1), (2, 10, 0.3)]
BATCH = 4096
PROBE = 32  # Boards on which the peer's two variants are compared.
LIMIT = 1.0  # Seconds per instance for the peer.
ROUND = 1.5  # Seconds a round of the peer may take, roughly.
Paths = tuple[list[list[float]], list[tuple[int, int]], list[tuple[int, int]]]


def main() -> None:
    options = read_options(__doc__, quick="two agents, three kinds of boards, two rounds")
    cells, rounds = (QUICK, 2) if options.quick else (CELLS, 3)

    cores = len(os.sched_getaffinity(0))
    peer = Peer(cores) if installed("w9_pathfinding", "w9-pathfinding") else None
    print(f"instances per second, sum of costs, {cores} cores, {BATCH} boards a kind, median of {rounds}")
    print(f"{'':>18}{'':>11}{'w9':>10} {'':>9}{'':>8}  {'unsolved %':^15}")
    print(
        f"{'size agents holes':>18}{'jaxlake':>11}{'CBS':>10} {'variant':>9}{'ratio':>8}"
        f"  {'jaxlake':>8}{'w9':>7}  target  met"
    )
    rows = []
    compiled_for = None
    for cell in cells:
        instances = boards(np.random.default_rng([1, cell[0], cell[1], round(100 * cell[2])]), *cell, BATCH)
        if cell[:2] != compiled_for:
            solve(instances)
            compiled_for = cell[:2]
        rows.append(compare(cell, instances, peer, rounds))
        print(line(cell, rows[-1]), flush=True)
    if peer:
        peer.close()
    report(rows, options.json)


def compare(cell: tuple[int, int, float], instances: Instance, peer: "Peer | None", rounds: int) -> Row:
    """One row; targets: at least the peer's rate for two agents, and for five on 10x10 with few holes."""
    num_agents, size, hole_ratio = cell
    variant, count = peer.prepare(instances) if peer else ("-", 0)
    ours, theirs, costs = [], [], []
    for _ in range(rounds):
        began = time.perf_counter()
        solutions = solve(instances)
        ours.append(BATCH / (time.perf_counter() - began))
        if peer:
            seconds, costs = peer.run(variant)
            theirs.append(count / seconds)
    both = [(a, b) for a, b in zip(solutions.cost[:count].tolist(), costs, strict=True) if a >= 0 and b is not None]
    wrong = sum(a != b for a, b in both)
    if wrong:
        raise AssertionError(f"{wrong} of {len(both)} costs differ for {cell}")
    aimed = num_agents == 2 or (num_agents == 5 and size == 10 and hole_ratio <= 0.2)
    return row(
        f"{size}x{size}, {num_agents} agents, holes {hole_ratio}",
        ours,
        theirs or None,
        1.0 if aimed else None,
        variant=variant,
        peer_instances=count,
        unsolved=float(np.mean(solutions.status == Status.OUT_OF_BUDGET)),
        peer_unsolved=costs.count(None) / count if peer else None,
    )


def line(cell: tuple[int, int, float], row: Row) -> str:
    num_agents, size, hole_ratio = cell
    target = "-" if row.target is None else f"{row.target:.0f}"
    met = {None: "-", True: "yes", False: "no"}[row.met]
    theirs, ratio, unsolved = "-", "-", "-"
    if row.peer is not None:
        theirs, ratio, unsolved = f"{row.peer:,.0f}", f"{row.ratio:.2f}", f"{100 * row.facts['peer_unsolved']:.1f}"
    return (
        f"{size:4}{num_agents:7}{hole_ratio:7}{row.ours:11,.0f}{theirs:>10} {row.facts['variant']:>9}"
        f"{ratio:>8}  {100 * row.facts['unsolved']:8.1f}{unsolved:>7}{target:>8}{met:>5}"
    )


def boards(rng: np.random.Generator, num_agents: int, size: int, hole_ratio: float, count: int) -> Instance:
    """``[count]`` boards in arrays of their own size; starts and goals differ, each goal in reach of its start."""
    num_holes = int(hole_ratio * (size**2 - 2 * num_agents) + 1e-9)
    holes, ends = np.zeros((count, size**2), bool), np.zeros((count, 2, num_agents), np.int32)
    found = 0
    while found < count:
        order = rng.permutation(size**2)
        candidate = order[num_holes : num_holes + 2 * num_agents].reshape(2, num_agents)
        free = sum(1 << (cell + cell // size) for cell in order[num_holes:].tolist())
        if all(connected(free, size, start, goal) for start, goal in candidate.T.tolist()):
            holes[found, order[:num_holes]] = True
            ends[found] = candidate
            found += 1
    return Instance(
        size=np.full(count, size, np.int32),
        num_agents=np.full(count, num_agents, np.int32),
        holes=holes,
        starts=ends[:, 0],
        goals=ends[:, 1],
    )


def connected(free: int, size: int, start: int, goal: int) -> bool:
    """Flood fill over a set of cells in bits; rows have a column more, so that none runs into the next."""
    start, goal = (1 << (cell + cell // size) for cell in (start, goal))
    reached, before = start, 0
    while reached != before and not reached & goal:
        before, width = reached, size + 1
        reached |= (reached << 1 | reached >> 1 | reached << width | reached >> width) & free
    return bool(reached & goal)


class Peer:
    """w9-pathfinding in one process a core, each with every so manieth of the boards."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            context.Process(target=serve, args=(theirs,), daemon=True).start()
            self.pipes.append(ours)

    def prepare(self, instances: Instance) -> tuple[str, int]:
        """Build the grids, and return the faster variant and how many boards fit into a round with it."""
        cases = as_lists(instances)
        self.load(cases[:PROBE])
        taken = {variant: self.run(variant)[0] for variant in ("disjoint", "plain")}
        variant = min(taken, key=taken.get)
        count = min(len(cases), max(PROBE, round(PROBE * ROUND / taken[variant])))
        self.load(cases[:count])
        self.run(variant)
        return variant, count

    def load(self, cases: list[Paths]) -> None:
        for index, pipe in enumerate(self.pipes):
            pipe.send(cases[index :: len(self.pipes)])
        for pipe in self.pipes:
            pipe.recv()

    def run(self, variant: str) -> tuple[float, list[int | None]]:
        """Seconds until the last process has finished, and the costs in the order of the boards, None if unsolved."""
        began = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(variant)
        shares = [pipe.recv() for pipe in self.pipes]
        seconds = time.perf_counter() - began
        return seconds, [
            cost for turn in itertools.zip_longest(*shares, fillvalue="end") for cost in turn if cost != "end"
        ]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def as_lists(instances: Instance) -> list[Paths]:
    """Per board: weights by row, starts and goals as (column, row)."""
    size = int(instances.size[0])
    weights = np.where(instances.holes.reshape(-1, size, size), -1.0, 1.0).tolist()
    ends = (
        [[divmod(cell, size)[::-1] for cell in row] for row in cells.tolist()]
        for cells in (instances.starts, instances.goals)
    )
    return list(zip(weights, *ends, strict=True))


def serve(pipe: Connection) -> None:
    """Serve as a process of the peer: boards come as a list, a variant asks for their costs, None ends it."""
    from w9_pathfinding.envs import Grid
    from w9_pathfinding.mapf import CBS

    prepared: list = []
    while (message := pipe.recv()) is not None:
        if isinstance(message, list):
            # edge_collision is off by default, and then agents may change places.
            prepared = [(CBS(Grid(weights=rows, edge_collision=True), seed=0), *ends) for rows, *ends in message]
            pipe.send(len(prepared))
        else:
            pipe.send([cost(search, starts, goals, message == "disjoint") for search, starts, goals in prepared])


def cost(search, starts: list[tuple[int, int]], goals: list[tuple[int, int]], disjoint: bool) -> int | None:
    try:
        paths = search.mapf(starts, goals, max_length=100, max_time=LIMIT, disjoint_splitting=disjoint)
    except RuntimeError:  # its way of saying that the time is over
        return None
    return sum(last_arrival(path) for path in paths) if paths else None


def last_arrival(path: list[tuple[int, int]]) -> int:
    """Count the steps until a path reaches its last cell for good."""
    length = len(path)
    while length > 1 and path[length - 2] == path[-1]:
        length -= 1
    return length - 1


if __name__ == "__main__":
    main()

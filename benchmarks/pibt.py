"""Large boards: how many are drawn in a second, and how good are PIBT's plans?

The peer is w9-pathfinding, C++ on one core, on the same boards one by one: HCA*
(prioritised planning) and WHCA* (the same in windows). A plan is a success if
all agents are on their goals within 256 steps. Costs are over the sum of the
agents' shortest paths, medians of the boards that both solve. Seconds are of
all boards, distances included, compiled before. On boards that the exact solver
reaches, costs are over the optimum: means with 95 % intervals.

examples:
  pip install w9-pathfinding
  python benchmarks/pibt.py
      1,000 boards of 32 x 32 with 32 agents
  python benchmarks/pibt.py --quick
      32 boards
"""

import os
import statistics
import time

import jax
import numpy as np
from machine import measure
from side_by_side import installed, read_options, write_rows

from jaxlake import Instance, LakeConfig, generate, pibt, verify
from jaxlake.types import ABSENT

HOLE, HORIZON, TARGET = 0.2, 256, 20_000
ORDERS = (1, 8)


def main() -> None:
    options = read_options(__doc__, quick="32 boards")
    count = 32 if options.quick else 1000
    print(f"{os.cpu_count()} cores, which {measure()}")
    rows = [drawing("32x32", 512 if options.quick else 20_000)]
    config = LakeConfig.uniform(["32x32"], HOLE, 0.0)
    found = generate(config, jax.random.key(0), count, exact=False)
    bounds = found.solutions.lower_bound
    results = {f"PIBT, {orders} orders": planned(found.instances, orders) for orders in ORDERS}
    if installed("w9_pathfinding", "w9-pathfinding"):
        for name in ("HCAStar", "WHCAStar"):
            results[name] = peer(name, found.instances)
    print(f"\n{count:,} boards of 32 x 32 with 32 agents, holes {HOLE}")
    print(f"{'':<16}{'success':>9}{'cost/bound':>12}{'makespan':>10}{'seconds':>9}")
    both = np.all([cost != ABSENT for cost, _, _ in results.values()], axis=0)
    for name, (cost, makespan, seconds) in results.items():
        ratio = float(np.median((cost / bounds)[both])) if both.any() else None
        longest = float(np.median(makespan[both])) if both.any() else None
        success = float(np.mean(cost != ABSENT))
        shown = "-" if ratio is None else f"{ratio:.3f}"
        print(f"{name:<16}{success:>9.1%}{shown:>12}{longest or 0:>10.0f}{seconds:>9.1f}", flush=True)
        rows.append({"name": name, "success": success, "ratio": ratio, "makespan": longest, "seconds": seconds})
    for kind in ("8x3",) if options.quick else ("8x3", "10x5"):
        rows.append(over_optimum(kind, count))
    write_rows([{"met": None} | row for row in rows], options.json)


def drawing(kind: str, count: int) -> dict:
    """Measure boards a second, the median of three calls after the first, and processor time of one."""
    config = LakeConfig.uniform([kind], HOLE, 0.0)
    seconds, used = [], []
    for seed in range(4):
        began, cpu = time.perf_counter(), time.process_time()
        generate(config, jax.random.key(seed), count, exact=False)
        seconds.append(time.perf_counter() - began)
        used.append(time.process_time() - cpu)
    rate, each = count / statistics.median(seconds[1:]), statistics.median(used[1:]) / count
    print(f"{kind}: {rate:,.0f} boards a second (target {TARGET:,}), {each * 1e6:.0f} us of a core each")
    return {"name": f"draw {kind}", "ours": rate, "core_us": each * 1e6, "target": TARGET, "met": rate >= TARGET}


def planned(boards: Instance, orders: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return costs and makespans, `ABSENT` where PIBT fails, and seconds."""
    for _ in range(2):  # the first compiles
        began = time.perf_counter()
        plans = pibt.plan(boards, jax.random.key(1), orders=orders, max_steps=HORIZON)
        seconds = time.perf_counter() - began
    verdicts = verify(boards, plans, np.int32(ABSENT))
    assert np.all(np.asarray(verdicts.checks)[:, :7]), "a plan breaks a rule"
    return np.asarray(verdicts.cost), np.asarray(verdicts.costs.makespan), seconds


def peer(name: str, boards: Instance) -> tuple[np.ndarray, np.ndarray, float]:
    """Time a planner of w9-pathfinding likewise."""
    from w9_pathfinding import mapf
    from w9_pathfinding.envs import Grid

    costs, makespans, side = [], [], boards.max_size
    began = time.perf_counter()
    for board in boards:
        weights = np.where(board.holes, -1.0, 1.0).reshape(side, side).tolist()
        search = getattr(mapf, name)(Grid(weights=weights, edge_collision=True))
        starts, goals = (
            [(int(cell) % side, int(cell) // side) for cell in cells] for cells in (board.starts, board.goals)
        )
        paths = search.mapf(starts, goals, max_length=HORIZON)
        arrivals = [arrival(path, goal) for path, goal in zip(paths, goals, strict=bool(paths))]
        success = bool(paths) and None not in arrivals
        costs.append(sum(arrivals) if success else ABSENT)
        makespans.append(max(arrivals) if success else ABSENT)
    return np.array(costs), np.array(makespans), time.perf_counter() - began


def arrival(path: list, goal: tuple[int, int]) -> int | None:
    """Return the time of the last arrival, None if the path ends elsewhere."""
    if tuple(path[-1]) != goal:
        return None
    return max((time + 1 for time, cell in enumerate(path) if tuple(cell) != goal), default=0)


def over_optimum(kind: str, count: int) -> dict:
    """Compare PIBT with the exact solver."""
    found = generate(LakeConfig.uniform([kind], HOLE, 0.0), jax.random.key(0), count)
    row: dict = {"name": f"over optimum {kind}"}
    for orders in ORDERS:
        cost, _, _ = planned(found.instances, orders)
        solved = cost != ABSENT
        ratio = (cost / found.solutions.cost)[solved]
        half = 1.96 * ratio.std(ddof=1) / len(ratio) ** 0.5
        low, high = ratio.mean() - half, ratio.mean() + half
        print(f"{kind}, {orders} orders: success {solved.mean():.1%}, {ratio.mean():.3f} ({low:.3f} to {high:.3f})")
        row[f"orders_{orders}"] = [float(solved.mean()), float(ratio.mean()), float(low), float(high)]
    return row


if __name__ == "__main__":
    main()

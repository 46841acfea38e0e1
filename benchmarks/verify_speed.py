"""How many plans are checked per second? ``jaxlake.verify`` against a plain
checker in Python, one process a core.

The plans are valid random walks, so that every check runs to its end. The peer
is the usual loop over steps and agents that says valid or not and adds up the
cost, over Python lists that are made outside its timing; it stops at the first
fault. Both judge the same plans, turn by turn; a row is the median of the
rounds, and the ratio that of their ratios. Verdicts are first compared on
plans of which half are broken.

examples:
  python benchmarks/verify_speed.py
      65,536 plans of 5 agents and 64 steps on 10x10 boards
  python benchmarks/verify_speed.py --quick
      fewer rounds: under a minute
"""

import multiprocessing
import os
import statistics
import time

import jax
import numpy as np
from side_by_side import read_options, write_rows

from jaxlake import Instance, Plan, verify
from jaxlake.types import MAX_AGENTS, MAX_SIZE, MAX_STEPS

BATCH = 65_536
HOLES = 9
TARGET = 1e6  # plans per second on two cores
SHARE = 2_000  # plans a process of the peer checks per round
Case = tuple[list[list[int]], list[int], list[int], set[int]]
_cases: list[Case] = []  # of a process of the peer


def main() -> None:
    options = read_options(__doc__, quick="5 rounds instead of 25")
    rounds = 5 if options.quick else 25
    processes = len(os.sched_getaffinity(0))

    instances, plans = random_walks(np.random.default_rng(0), BATCH)
    compare(instances, plans)
    optimum = np.zeros(BATCH, np.int32)
    on_host, on_device = (instances, plans, optimum), jax.device_put((instances, plans, optimum))
    jax.block_until_ready(verify(*on_device))

    cases = as_lists(instances, plans, SHARE)
    ours, ours_host, peer = [], [], []
    with multiprocessing.get_context("spawn").Pool(processes, initializer=keep, initargs=(cases,)) as pool:
        pool.map(check_all, range(processes), chunksize=1)
        for _ in range(rounds):
            ours.append(BATCH / seconds(lambda: jax.block_until_ready(verify(*on_device))))
            ours_host.append(BATCH / seconds(lambda: jax.block_until_ready(verify(*on_host))))
            peer.append(processes * SHARE / seconds(lambda: pool.map(check_all, range(processes), chunksize=1)))

    rows = []
    for name, rates, target in (("arrays on the device", ours, TARGET), ("numpy arrays", ours_host, None)):
        ratio = statistics.median(a / b for a, b in zip(rates, peer, strict=True))
        rate = statistics.median(rates)
        met = None if target is None else rate >= target
        rows.append(
            {"name": name, "ours": rate, "peer": statistics.median(peer), "ratio": ratio, "target": target, "met": met}
        )
    print(
        f"plans checked per second, {BATCH:,} plans of {MAX_AGENTS} agents and {MAX_STEPS} steps, "
        f"{processes} cores, median of {rounds}"
    )
    print(f"{'':22}{'jaxlake':>12}  {'plain Python':>12}  {'ratio':>7}  {'target':>10}  met")
    for row in rows:
        target = "-" if row["target"] is None else f"{row['target']:,.0f}"
        met = {None: "-", True: "yes", False: "no"}[row["met"]]
        print(f"{row['name']:22}{row['ours']:12,.0f}  {row['peer']:12,.0f}  {row['ratio']:7.1f}  {target:>10}  {met}")
    write_rows(rows, options.json)


def random_walks(rng: np.random.Generator, count: int) -> tuple[Instance, Plan]:
    """Draw valid plans: agents step into cells free before and after the step, or stay; goals are where they end."""
    order = rng.random((count, MAX_SIZE**2)).argsort(axis=1).astype(np.int32)
    holes = np.zeros((count, MAX_SIZE**2), bool)
    np.put_along_axis(holes, order[:, :HOLES], True, axis=1)
    here = order[:, HOLES : HOLES + MAX_AGENTS]
    paths = [here]
    lanes = np.arange(count)
    for _ in range(MAX_STEPS):
        after = here.copy()
        for agent in range(MAX_AGENTS):
            row, column = np.divmod(here[:, agent], MAX_SIZE)
            step = rng.integers(5, size=count)
            row = np.clip(row + np.array([0, 1, -1, 0, 0])[step], 0, MAX_SIZE - 1)
            column = np.clip(column + np.array([0, 0, 0, 1, -1])[step], 0, MAX_SIZE - 1)
            target = row * MAX_SIZE + column
            taken = holes[lanes, target]
            for other in set(range(MAX_AGENTS)) - {agent}:
                taken |= (target == here[:, other]) | (target == after[:, other])
            after[:, agent] = np.where(taken, here[:, agent], target)
        here = after
        paths.append(here)
    walked = np.stack(paths, axis=-1).astype(np.int32)
    agents = np.full(count, MAX_AGENTS, np.int32)
    instances = Instance(
        size=np.full(count, MAX_SIZE, np.int32),
        num_agents=agents,
        holes=holes,
        starts=walked[..., 0],
        goals=walked[..., -1],
    )
    lengths = np.full((count, MAX_AGENTS), MAX_STEPS + 1, np.int32)
    return instances, Plan(parsable=np.ones(count, bool), num_named=agents, paths=walked, lengths=lengths)


def compare(instances: Instance, plans: Plan) -> None:
    """Both find the same plans valid, at the same cost, where every other plan has a random cell in it."""
    rng = np.random.default_rng(1)
    few = 1_000
    instances, plans = jax.tree.map(np.copy, (instances[:few], plans[:few]))
    for index in range(0, few, 2):
        plans.paths[index, rng.integers(MAX_AGENTS), rng.integers(MAX_STEPS + 1)] = rng.integers(MAX_SIZE**2)
    verdicts = verify(instances, plans, np.zeros(few, np.int32))
    expected = [check(*case) for case in as_lists(instances, plans, few)]
    np.testing.assert_array_equal(verdicts.cost, [-1 if cost is None else cost for cost in expected])


def as_lists(instances: Instance, plans: Plan, count: int) -> list[Case]:
    """Per plan: the paths, starts, goals and holes."""
    holes = [set(np.flatnonzero(board).tolist()) for board in instances.holes[:count]]
    columns = (plans.paths[:count].tolist(), instances.starts[:count].tolist(), instances.goals[:count].tolist(), holes)
    return list(zip(*columns, strict=True))


def keep(cases: list[Case]) -> None:
    """Leaves the plans in a process of the peer, so that no round pays for sending them."""
    global _cases
    _cases = cases


def check_all(_: int) -> int:
    return sum(check(*case) is not None for case in _cases)


def check(paths: list[list[int]], starts: list[int], goals: list[int], holes: set[int]) -> int | None:
    """Return the sum of costs of a plan whose paths have one length, or None for a plan that breaks a rule."""
    agents, steps = range(len(paths)), len(paths[0])
    for path, start, goal in zip(paths, starts, goals, strict=True):
        if path[0] != start or path[-1] != goal:
            return None
        for t in range(steps):
            cell = path[t]
            if not 0 <= cell < MAX_SIZE**2 or cell in holes:
                return None
            if t:
                row, column = divmod(cell, MAX_SIZE)
                row_before, column_before = divmod(path[t - 1], MAX_SIZE)
                if abs(row - row_before) + abs(column - column_before) > 1:
                    return None
    for t in range(steps):
        for i in agents:
            for j in range(i):
                if paths[i][t] == paths[j][t]:
                    return None
                if t and paths[i][t] == paths[j][t - 1] and paths[i][t - 1] == paths[j][t]:
                    return None
    cost = 0
    for path, goal in zip(paths, goals, strict=True):
        last = steps
        while last and path[last - 1] == goal:
            last -= 1
        cost += last
    return cost


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

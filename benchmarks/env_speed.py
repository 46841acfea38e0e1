"""How many environment steps a second with each observation, how much memory,
and how many times the peers' rate?

4,096 environments, 512 of 32x32 and 256 of 64x64, auto-reset from a bank of as
many levels, the observation kept in the scan's carry, 64 steps a repeat;
actions, and the keys where a step takes one, are drawn beforehand, for us and
for the peers. A peer is installed with pip into a virtual environment of its
own below --peers. It plays one repeat after each of ours, which has an
observation of the peer's kind; on large boards, where one takes it up to half a
minute, a third as many.

examples:
  python benchmarks/env_speed.py
      our boards and observations, and Jumanji, Navix, JaxUED and POGEMA beside
  python benchmarks/env_speed.py --quick
      fewer repeats, and only peers of small boards that are installed already
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side import Peer, Unavailable, environment, read_options, write_rows

from jaxlake import generate, lifelong, observations, rewards
from jaxlake.autoreset import AutoReset, AutoResetMode
from jaxlake.config import LakeConfig
from jaxlake.env import Lake
from jaxlake.levels import LevelBank, stack
from jaxlake.rules import GoalRule
from jaxlake.state import Params, State
from jaxlake.types import ABSENT, Instance, LifelongInstance

STEPS = 64
MAX_COMPILE_S, MAX_BYTES, MAX_RESET_COST, MAX_AGENT_COST = 1.0, 512, 1.5, 1.5
MAX_LIFELONG_COST = 1.3


@dataclasses.dataclass(frozen=True)
class Case:
    """Boards of these sizes with these numbers of agents, what is seen, and the steps a second we want to reach."""

    name: str
    sizes: tuple[int, ...]
    agents: tuple[int, ...]
    target: float | None = None
    observe: Callable[[State], jax.Array] = observations.planes
    batch: int = 4096


CASES = (
    Case("8x8, 4 agents: planes", (8,), (4,), 15e6),
    Case("10x10, 5 agents: planes", (10,), (5,), 7e6),
    Case("3x3 to 10x10, 2 to 5 agents: planes", tuple(range(3, 11)), (2, 3, 4, 5), 6e6),
    Case("8x8, 4 agents: one_hot", (8,), (4,), None, observations.one_hot),
    Case("8x8, 4 agents: flat", (8,), (4,), None, observations.flat),
    Case("8x8, 4 agents: window(1)", (8,), (4,), None, observations.window(1)),
    Case("8x8, 4 agents: window(3)", (8,), (4,), None, observations.window(3)),
    Case("8x8, 4 agents: window(5)", (8,), (4,), 1e6, observations.window(5)),
)
LARGE = (
    Case("32x32, 32 agents: planes", (32,), (32,), batch=512),
    Case("32x32, 32 agents: window(5)", (32,), (32,), None, observations.window(5), 512),
    Case("64x64, 64 agents: planes", (64,), (64,), batch=256),
    Case("64x64, 64 agents: window(5)", (64,), (64,), None, observations.window(5), 256),
)
"""As many agents at a time as on 8x8: 16,384."""
FOUR = Case("8x8, 4 agents", (8,), (4,))
LIFELONG = (
    LARGE[0],
    Case("32x32, 32 agents: window(5) with distances", (32,), (32,), None, observations.window(5, distances=True), 64),
)
"""Each level of the second has a table of 2 MiB."""


def seen(case: Case, radius: int) -> Case:
    """Return the same boards, seen through windows."""
    return dataclasses.replace(case, observe=observations.window(radius))


@dataclasses.dataclass(frozen=True)
class Script:
    """A script in ``peers/``, what it needs, our boards and observation of its kind, and how often its rate we want."""

    name: str
    script: str
    packages: tuple[str, ...]
    ours: str
    case: Case
    target: float = 1.0


JUMANJI, POGEMA = ("jumanji==1.1.2",), ("pogema==1.4.0", "gymnasium==0.28.1", "numpy<2")
PEERS = (
    # These give the whole board once, as planes do; the others' are views of each agent.
    Script("Jumanji Connector 8x8, 4 agents", "connector.py", JUMANJI, "planes", FOUR),
    Script("Navix Empty-8x8, 1 agent", "navix_empty.py", ("navix==0.7.4",), "planes", FOUR),
    Script("JaxUED Maze 13x13, 1 agent, view 5x5", "maze.py", ("jaxued==0.0.1", "six"), "window(2)", seen(FOUR, 2)),
    Script("POGEMA 8x8, 4 agents, views 11x11, Python", "pogema_random.py", POGEMA, "window(5)", seen(FOUR, 5)),
    Script("Jumanji Connector 32x32, 32 agents", "connector.py", JUMANJI, "planes", LARGE[0]),
    Script("Jumanji Connector 64x64, 64 agents", "connector.py", JUMANJI, "planes", LARGE[2]),
    Script("POGEMA 32x32, 32 agents, Python", "pogema_random.py", POGEMA, "window(5)", LARGE[1], 100.0),
    Script("POGEMA 64x64, 64 agents, Python", "pogema_random.py", POGEMA, "window(5)", LARGE[3], 100.0),
)


def main() -> None:
    options = read_options(__doc__, quick="under a minute", peers=True)
    repeats = 3 if options.quick else 15

    rows = []
    print(f"{'':36} {'M steps/s':>9} {'bound':>7} {'target':>6} {'compile s':>9} {'bytes':>5} {'reset costs':>11}")
    for case in CASES + LARGE:
        rows += measure(case, repeats)
    rows += agent_cost(repeats)
    rows += [lifelong_cost(case, repeats) for case in LIFELONG]
    print("bound: the same observation written and nothing else; bytes: state and observation\n")

    print(f"{'peer, and ours':54} {'ours M/s':>9} {'peer M/s':>9} {'ratio':>8} {'compile s':>9}")
    missing = {}
    for peer in PEERS:
        if options.quick and peer.case in LARGE:
            continue
        name = f"{peer.name} / {peer.ours}"
        try:
            python = environment(options.peers / Path(peer.script).stem, peer.packages, install=not options.quick)
            ours = Ours(peer.case, AutoResetMode.SAME_STEP)
            rates, theirs, facts = alternate(peer, python, ours, repeats // 3 if peer.case in LARGE else repeats)
        except Unavailable as reason:
            missing[peer.name] = str(reason)
            continue
        ratio = statistics.median(mine / their for mine, their in zip(rates, theirs, strict=True))
        mine, their = statistics.median(rates), statistics.median(theirs)
        compile_s = "-" if facts["compile_s"] is None else f"{facts['compile_s']:.2f}"
        print(f"{name:54} {mine / 1e6:9.2f} {their / 1e6:9.3f} {ratio:7.1f}x {compile_s:>9}")
        name = f"steps/s with {peer.ours} against {peer.name}"
        rows.append(row(name, mine, peer.target, ratio >= peer.target, their, ratio))
    for name, reason in missing.items():
        print(f"{name}: no peer: {reason}")
    write_rows(rows, options.json)


def measure(case: Case, repeats: int) -> list[dict]:
    """Print a case's line and return its rows; the bytes and what resets cost are judged where planes are seen."""
    planes = case.observe is observations.planes and case not in LARGE
    ours, bare = Ours(case, AutoResetMode.SAME_STEP), Ours(case, AutoResetMode.OFF) if planes else None
    writing = writes_alone(ours.observation)
    measured = [(ours.rate(), bare.rate() if bare else None, writing()) for _ in range(repeats)]
    rate, bound = (statistics.median(rates[column] for rates in measured) for column in (0, 2))
    reset_cost = statistics.median(off / on for on, off, _ in measured) if planes else None
    print(
        f"{case.name:36} {rate / 1e6:9.2f} {bound / 1e6:7.1f} {case.target / 1e6 if case.target else '-':>6} "
        f"{ours.compile_s:9.2f} {ours.bytes:5.0f} {f'{reset_cost:.2f}x' if planes else '-':>11}"
    )
    rows = [
        row(f"{case.name}: steps/s", rate, case.target, rate >= case.target if case.target else None),
        row(f"{case.name}: compile s", ours.compile_s, MAX_COMPILE_S, ours.compile_s < MAX_COMPILE_S),
    ]
    if planes:
        rows += [
            row(f"{case.name}: bytes an environment", ours.bytes, MAX_BYTES, ours.bytes <= MAX_BYTES),
            row(f"{case.name}: auto-reset over bare step", reset_cost, MAX_RESET_COST, reset_cost <= MAX_RESET_COST),
        ]
    return rows


def agent_cost(repeats: int) -> list[dict]:
    """Return what a step costs an agent of 64 on 64x64, over the cost of one of four on 8x8, with the same window."""
    many, few = (Ours(case, AutoResetMode.SAME_STEP) for case in (LARGE[3], seen(FOUR, 5)))
    rates = [(64 * many.rate(), 4 * few.rate()) for _ in range(repeats)]
    cost = statistics.median(theirs / mine for mine, theirs in rates)
    mine, theirs = (statistics.median(side) for side in zip(*rates, strict=True))
    print(
        f"agent-steps/s with window(5): {mine / 1e6:.1f} M with 64 agents, {theirs / 1e6:.1f} M with 4, "
        f"so that one costs {cost:.2f}x"
    )
    return [row("cost of an agent-step, 64 agents over 4", mine, MAX_AGENT_COST, cost <= MAX_AGENT_COST, theirs, cost)]


def lifelong_cost(case: Case, repeats: int) -> dict:
    """Return what a step costs in which who arrives gets a goal drawn, over a classic one on the same boards."""
    config = LakeConfig.uniform([f"{case.sizes[0]}x{case.agents[0]}"], hole=0.15, wait=0.0)
    boards = generate(config, jax.random.key(0), case.batch, exact=False).instances
    with_goals = stack([lifelong.board(board) for board in boards])
    drawn, once = (Ours(case, AutoResetMode.SAME_STEP, levels) for levels in (with_goals, boards))
    rates = [(drawn.rate(), once.rate()) for _ in range(repeats)]
    cost = statistics.median(theirs / mine for mine, theirs in rates)
    mine, theirs = (statistics.median(side) for side in zip(*rates, strict=True))
    print(f"{case.name}: {mine / 1e6:.2f} M lifelong steps/s, so that one costs {cost:.2f}x a classic one")
    name = f"{case.name}: lifelong over classic step"
    return row(name, mine, MAX_LIFELONG_COST, cost <= MAX_LIFELONG_COST, theirs, cost)


def row(
    name: str,
    ours: float,
    target: float | None,
    met: bool | None,
    peer: float | None = None,
    ratio: float | None = None,
) -> dict:
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "target": target, "met": met}


class Ours:
    """Our environment, compiled and warm: ``rate()`` plays one repeat and returns steps a second."""

    def __init__(self, case: Case, mode: AutoResetMode, levels: Instance | None = None) -> None:
        levels, self._batch = random_levels(case) if levels is None else levels, case.batch
        bank = LevelBank.build(levels, with_distances=getattr(case.observe, "distances", False))
        lake = Lake(observe=case.observe)
        if isinstance(levels, LifelongInstance):
            lake = Lake(observe=case.observe, reward=rewards.reached, goals=GoalRule.DRAWN)
        episodes = AutoReset(lake, mode)
        state, first = jax.jit(jax.vmap(episodes.reset, in_axes=(None, 0, None)))(
            bank, jax.random.split(jax.random.key(0), case.batch), Params(max_steps=STEPS)
        )
        actions = jax.random.randint(jax.random.key(1), (STEPS, case.batch, max(case.agents)), 0, 5)

        def play(bank, state, observation, actions, keys):
            def step(carry, inputs):
                state, _ = carry
                state, time_step = jax.vmap(episodes.step, in_axes=(None, 0, 0, 0))(bank, state, *inputs)
                return (state, time_step.observation), time_step.shared_reward

            return jax.lax.scan(step, (state, observation), (actions, keys))

        keys = jax.random.split(jax.random.key(2), (STEPS, case.batch))
        arguments = (bank, state, first.observation, actions, keys)
        lowered = jax.jit(play).lower(*arguments)
        start = time.perf_counter()
        program = lowered.compile()
        self.compile_s = time.perf_counter() - start
        self.bytes = sum(leaf.nbytes for leaf in jax.tree.leaves((state, first.observation))) / case.batch
        self.observation = first.observation
        self._play = partial(program, bank)
        self._carry, self._actions, self._repeats = (state, first.observation), actions, 2
        self.rate()

    def rate(self) -> float:
        self._repeats += 1
        keys = jax.block_until_ready(jax.random.split(jax.random.key(self._repeats), (STEPS, self._batch)))
        start = time.perf_counter()
        self._carry, _ = jax.block_until_ready(self._play(*self._carry, self._actions, keys))
        return self._batch * STEPS / (time.perf_counter() - start)


def writes_alone(observation: jax.Array) -> Callable[[], float]:
    """Return the rate at which an array of the observation's bytes is read and written, as one long line of int8."""
    line = jnp.zeros(observation.nbytes, jnp.int8)
    program = jax.jit(lambda x: jax.lax.fori_loop(0, STEPS, lambda _, y: y + 1, x))
    jax.block_until_ready(program(line))

    def rate() -> float:
        start = time.perf_counter()
        jax.block_until_ready(program(line))
        return len(observation) * STEPS / (time.perf_counter() - start)

    return rate


def random_levels(case: Case) -> Instance:
    """Return a level for each environment, 15 % holes; not all can be solved, which random play does not notice."""
    count, side, slots = case.batch, max(case.sizes), max(case.agents)
    rng = np.random.default_rng(0)
    size = rng.choice(case.sizes, count).astype(np.int32)
    num_agents = np.minimum(rng.choice(case.agents, count), size * size // 2).astype(np.int32)
    holes = np.zeros((count, side * side), bool)
    ends = np.full((count, 2, slots), ABSENT, np.int32)
    row, column = np.divmod(np.arange(side * side), side)
    for level in range(count):
        cells = rng.permutation(np.flatnonzero(np.maximum(row, column) < size[level]))
        agents = num_agents[level]
        ends[level, :, :agents] = cells[: 2 * agents].reshape(2, -1)
        free = cells[2 * agents :]
        holes[level, free[: int(0.15 * len(free))]] = True
    return Instance(size=size, num_agents=num_agents, holes=holes, starts=ends[:, 0], goals=ends[:, 1])


def alternate(peer: Script, python: Path, ours: Ours, repeats: int) -> tuple[list[float], list[float], dict]:
    """Return our rates, the peer's and its facts, one repeat each in turn.

    Raises:
      Unavailable: if the peer does not run.
    """
    case = peer.case
    with Peer(peer.script, case.batch, STEPS, case.sizes[0], case.agents[0], python=python) as process:
        facts = process.answer()
        rates = [(ours.rate(), process.ask()["rate"]) for _ in range(repeats)]
    return [mine for mine, _ in rates], [their for _, their in rates], facts


if __name__ == "__main__":
    main()

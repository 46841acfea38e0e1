"""How many environment steps a second does the laboratory's network train on?
Our student against JaxMARL's independent PPO.

Boards of 5x5 to 10x10 with five agents. An update plays 128 environments for
32 steps each and passes over the steps twice, in four parts. The peer plays
through our JaxMARL adapter, by the same rules and with the same observation;
and on an environment of its own, MPE's simple spread with three agents, for
which there is no target. JaxMARL's actor and critic have two layers of 64
each, ours share theirs: "one trunk" is the peer so changed. "Matrix products"
is the machine's own limit: those of our network in an update, forward and
backward, and nothing else. The peer is JaxMARL 0.2.0 with distrax, in a
virtual environment below --peers. They take turns, compiled before: rates are
medians, the ratio is that of the turns' ratios.

Then decisions a second of the language model of configs/turns.yaml, forward
alone and with the gradient, beside its matrix products and nothing else.

Then seconds, with the settings of configs/lab.yaml: a round against the number
of seeds that learn beside each other in one program, and a branch, which is a
round on boards of its own and a validation.

examples:
  python benchmarks/lab_speed.py
      nine turns; installs the peer first, then some four minutes
  python benchmarks/lab_speed.py --quick
      three turns, beside the adapter's peer if it is installed already
"""

import contextlib
import dataclasses
import functools
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side import ROOT, Peer, Row, header, interpreter, read_options, report, row

from jaxlake import view
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from jaxlake.kinds import read_kinds
from jaxlake.types import ABSENT, Action
from rl import config as config_
from rl.config import NetworkSection, TurnLearnSection
from rl.model import lora
from rl.model.policy import Policy
from rl.run.directory import RunDirectory
from rl.run.tracking import Display
from rl.students import NetworkPlayer
from rl.students.turns import language, network
from rl.students.turns.actor import lanes
from rl.students.turns.network import NetworkActor
from rl.students.turns.rollout import Boards
from rl.students.turns.student import make_trainer

jax.config.update("jax_platforms", "cpu")  # where the peer runs
LAB, TURNS = ROOT / "configs" / "lab.yaml", ROOT / "configs" / "turns.yaml"
PACKAGES = ("jaxmarl==0.2.0", "distrax==0.1.9", "optax==0.2.8", "jax==0.9.2", "flax==0.12.6", "six")
PACKAGES += ("pydantic", "jinja2")  # for our observation, whose package reads configurations
AGENTS = 5
STEPS = 32
"""Steps of an update, on both sides."""
COMPARED = NetworkSection(environments=128, updates=8, learn=TurnLearnSection(iterations=2, minibatches=4))
ACTOR = NetworkActor.of(COMPARED)
"""What both sides have alike; the updates are those of a turn."""
ADAPTER, ONE_TRUNK, MPE = "IPPO, our adapter", "IPPO with one trunk, our adapter", "IPPO, MPE with 3 agents"
PRODUCTS = "matrix products"
SEEDS, BRANCHES, COST_TURNS = (1, 2, 4, 8), 16, 5
TARGET = 2.0


def main() -> None:
    options = read_options(__doc__, quick="under a minute; installs nothing", peers=True)
    repeats, peers = (3, (ADAPTER,)) if options.quick else (9, (ADAPTER, ONE_TRUNK, MPE))
    with tempfile.TemporaryDirectory() as scratch:
        student = make_student(Path(scratch))
        boards = student.build(LakeConfig.uniform(read_kinds([f"5-10x{AGENTS}"]), hole=0.2, wait=0.0))
        python = interpreter(options.peers / "ippo_jaxmarl", PACKAGES, install=not options.quick)
        rows = compare(python, Path(scratch) / "levels.npz", boards, peers if python else (), repeats)
        print(f"float32, median of {repeats} turns")
        print(header("environment steps trained a second", "peer"))
        print("\n".join(compared.line() for compared in rows))
        rows += measure_decisions(repeats)
        costs = [] if options.quick else measure_costs(student, boards)
    report([*rows, *costs], options.json)


def compare(python: Path | None, levels: Path, boards: Dataset, peers: tuple[str, ...], repeats: int) -> list[Row]:
    """Let all train in turn and return a row for each peer, and one for the machine.

    Raises:
      Unavailable: if a peer does not run.
    """
    np.savez(levels, **vars(boards.instances))
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(Peer("ippo_jaxmarl.py", settings(peer, levels, repeats), python=python))
            for peer in peers
        ]
        with ThreadPoolExecutor() as pool:  # they compile, and so do we
            warm = pool.map(Peer.ask, processes)
            sides = [ours(COMPARED, boards, seeds=1), products()]
            list(warm)
        turns = [[*(side()[1] for side in sides), *(peer.ask()["rate"] for peer in processes)] for _ in range(repeats)]
    mine, bound, *theirs = zip(*turns, strict=True)
    rows = [
        row(name, mine, rates, TARGET if name == ADAPTER else None) for name, rates in zip(peers, theirs, strict=True)
    ]
    return [*rows, row(PRODUCTS, mine, bound, None)]


def settings(peer: str, levels: Path, repeats: int) -> str:
    """Return what the peer's script is told."""
    common = {
        "environments": COMPARED.environments,
        "steps": STEPS,
        "epochs": COMPARED.learn.iterations,
        "minibatches": COMPARED.learn.minibatches,
        "learning_rate": COMPARED.learn.learning_rate,
        "updates": COMPARED.updates,
        "anneal_over": COMPARED.updates * (1 + repeats),
        "one_trunk": peer == ONE_TRUNK,
    }
    lake = {"levels": str(levels), "radius": ACTOR.radius, "episode_steps": COMPARED.episode_steps}
    return json.dumps(common | ({} if peer == MPE else lake))


def make_student(folder: Path) -> NetworkPlayer:
    """Return a fresh student as `python -m rl.train --config configs/lab.yaml` makes it."""
    student, display = NetworkPlayer(config_.load(LAB)), Display(quiet=True)
    student.restore(RunDirectory(folder / "run", student.config), display)
    return student


def ours(settings: NetworkSection, boards: Dataset, seeds: int) -> Callable[[], tuple[float, float]]:
    """Return a function, already warm, that trains a round of so many seeds and returns its seconds and its rate."""
    optima = np.stack([np.asarray(boards.solutions.cost)] * seeds)
    levels = Boards.of_lanes(lanes([boards.instances] * seeds), optima, settings.reward)
    keys, trainer = jax.random.split(jax.random.key(0), seeds), make_trainer(ACTOR, settings, 1)
    learner = network.begin(ACTOR, trainer.optimizer, keys)

    def train() -> tuple[float, float]:
        nonlocal learner
        start = time.perf_counter()
        learner, plays, _ = jax.block_until_ready(trainer.train(None, None, learner, levels, keys))
        seconds = time.perf_counter() - start
        return seconds, plays.length[plays.outcome != ABSENT].sum() / seconds

    train()
    return train


def products() -> Callable[[], tuple[float, float]]:
    """Return a function, already warm, that multiplies the matrices of a turn and returns its seconds and its rate."""
    settings, key = COMPARED, jax.random.key(0)
    parameters = jax.tree.map(
        lambda x: x[0],
        network.begin(ACTOR, make_trainer(ACTOR, settings, 1).optimizer, key[None]).parameters,
    )
    weights = [parameters[layer]["w"] for layer in ("hidden_1", "hidden_2", "heads")]
    played = jax.random.normal(key, (settings.environments * AGENTS, len(weights[0])))
    learned = jax.random.normal(key, (len(played) * STEPS // settings.learn.minibatches, len(weights[0])))
    error = jax.random.normal(key, (len(learned), len(Action) + 1))

    def forward(weights: list[jax.Array], rows: jax.Array) -> jax.Array:
        return rows @ weights[0] @ weights[1] @ weights[2]

    def play(weights: list[jax.Array], _: None) -> tuple[list[jax.Array], jax.Array]:
        return weights, forward(weights, played)

    def learn(weights: list[jax.Array], _: None) -> tuple[list[jax.Array], None]:
        gradient = jax.vjp(lambda weights: forward(weights, learned), weights)[1](error)[0]
        return [weight - 1e-9 * part for weight, part in zip(weights, gradient, strict=True)], None

    def update(weights: list[jax.Array], _: None) -> tuple[list[jax.Array], jax.Array]:
        weights, outputs = jax.lax.scan(play, weights, None, STEPS)
        return jax.lax.scan(learn, weights, None, settings.learn.iterations * settings.learn.minibatches)[0], outputs

    program = jax.jit(lambda weights: jax.lax.scan(update, weights, None, settings.updates))

    def multiply() -> tuple[float, float]:
        start = time.perf_counter()
        jax.block_until_ready(program(weights))
        seconds = time.perf_counter() - start
        return seconds, settings.updates * STEPS * settings.environments / seconds

    multiply()
    return multiply


def measure_decisions(turns: int) -> list[Row]:
    """Print and return the rates of the language actor's decisions against those of their matrix products."""
    config = config_.load(TURNS)
    policy, parameters = Policy.create(config.student, config.mesh, jax.random.key(0))
    actor, policy, parameters = language.make_actor(policy, config.student, parameters, jax.random.key(1))
    trained, frozen = lora.split(parameters)
    tree = {"model": trained, "value": {"w": jnp.zeros(policy.shape.hidden_size), "b": jnp.zeros(())}}
    views, legal = np.zeros((actor.chunk, len(view.phrases())), np.int8), np.ones((actor.chunk, len(Action)), bool)
    tokens = actor.chunk * actor.prompt.length

    def forward(tree: Any) -> tuple[jax.Array, jax.Array]:
        return actor.forward(tree, frozen, views, legal)

    def matrices(pairs: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        return sum((jnp.einsum("ni,lio->lno", rows, w) ** 2).sum() for rows, w in pairs)

    # The rows are arguments and the sums are of squares: of constants, XLA folds most of the gradient's products.
    weights = [x for x in jax.tree.leaves(trained) if x.ndim == 3]
    stacked = [(jax.random.normal(jax.random.key(2), (tokens, w.shape[1])), w) for w in weights]
    programs = {
        "forward": (jax.jit(forward), jax.jit(matrices)),
        "gradient": (jax.jit(jax.grad(lambda tree: sum(x.sum() for x in forward(tree)))), jax.jit(jax.grad(matrices))),
    }

    def rate(program: Callable[[Any], Any], argument: Any) -> float:
        start = time.perf_counter()
        for _ in range(20):
            jax.block_until_ready(program(argument))
        return 20 * actor.chunk / (time.perf_counter() - start)

    rows = []
    for name, (ours, limit) in programs.items():
        rate(ours, tree), rate(limit, stacked)  # compiled
        both = [(rate(ours, tree), rate(limit, stacked)) for _ in range(turns)]
        here, there = map(list, zip(*both, strict=True))
        rows.append(row(f"decisions of a language model, {name}", here, there, None))
        print(f"{rows[-1].name:44} {1e6 / rows[-1].ours:8.1f} us each, {rows[-1].ratio:.2f} of its matrix rate")
    return rows


@dataclasses.dataclass(frozen=True)
class Cost(Row):
    """Seconds of each of several that are done in one program, and their ratio to those of one that is alone."""

    def line(self) -> str:
        return f"{self.name:34} {self.ours:10.3f} {self.ratio:23.2f}x"


def measure_costs(student: NetworkPlayer, boards: Dataset) -> list[Cost]:
    """Print and return what a round costs with each number of seeds, and what a branch does."""
    trains = [ours(student.settings, boards, count) for count in SEEDS]
    rounds = [lambda train=train: train()[0] for train in trains]
    kinds = student.config.lake.kinds
    designs = [LakeConfig.random(kinds, key) for key in jax.random.split(jax.random.key(0), BRANCHES)]

    def branch(count: int) -> float:
        start = time.perf_counter()
        learner = student.branch(designs[:count], jax.random.key(1))
        student.valid_shares(learner, student.validation, student.config.validation.samples)
        return time.perf_counter() - start

    branches = [functools.partial(branch, count) for count in (1, BRANCHES)]
    for run in branches:
        run()
    print(f"\n{'seconds':34} {'of each':>10} {'against one alone':>24}")
    costs = [
        *in_turns("a round, seeds at once", SEEDS, rounds),
        *in_turns("a branch, branches at once", (1, BRANCHES), branches),
    ]
    print("\n".join(cost.line() for cost in costs))
    return costs


def in_turns(name: str, counts: tuple[int, ...], programs: Sequence[Callable[[], float]]) -> list[Cost]:
    """Run programs that do so many things at once in turn, the first of which does one."""
    turns = [[run() / count for run, count in zip(programs, counts, strict=True)] for _ in range(COST_TURNS)]
    alone, *_ = columns = list(zip(*turns, strict=True))
    rows = [row(f"{name}: {count}", each, alone, None) for count, each in zip(counts, columns, strict=True)]
    return [Cost(one.name, one.ours, None, one.ratio, one.spread, None) for one in rows]


if __name__ == "__main__":
    main()

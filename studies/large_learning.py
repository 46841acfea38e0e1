"""Does what learned on small boards play large ones? JaxMARL's independent PPO
trains on 16x16 with 8 agents and is tested on 32x32 with 32, beside PIBT; so is
the lab's network, by the lab's rules.

All have the same test boards and steps. An agent of PPO sees a window of 9x9
with the steps to its goal, which PIBT reads too, and draws from its policy.
PIBT with one order is the row to compare with: it, too, decides step by step.
The lab's network sees 5x5 and where its goal lies, but no way around holes. It
is paid only when all arrive, and a hole or a collision ends its episode, so it
trains on smaller boards first; from 16x16 alone it learns nothing.

examples:
  python studies/large_learning.py
      a row after every twenty updates
  python studies/large_learning.py --quick
      few updates; only a peer that is installed already
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from lab_speed import PACKAGES
from side_by_side import Peer, interpreter, read_options, write_rows

from jaxlake import Dataset, Lake, LakeConfig, generate, pibt, verify
from jaxlake.kinds import read_kinds
from jaxlake.state import Params, State
from jaxlake.types import Instance
from rl.config import NetworkSection, TurnLearnSection
from rl.students.turns import network
from rl.students.turns.actor import lane
from rl.students.turns.network import NetworkActor, Parameters
from rl.students.turns.rollout import Boards
from rl.students.turns.student import make_trainer

HOLE, TEST_STEPS = 0.2, 256
SETTINGS = {
    "environments": 128,
    "steps": 32,
    "epochs": 2,
    "minibatches": 4,
    "learning_rate": 1e-3,
    "one_trunk": False,
    "radius": 4,
    "episode_steps": 64,
    "test_steps": TEST_STEPS,
}
LAB = NetworkSection(updates=20, episode_steps=64, learn=TurnLearnSection(iterations=2, learning_rate=1e-3))
ACTOR = NetworkActor.of(LAB)
CURRICULUM = ((("3-10", "4-10x3"), 50), (("4-10x4", "5-10x5"), 30), (("16x8",), 50))
"""Kinds that the lab's network trains on, and rounds of twenty updates."""


def main() -> None:
    options = read_options(__doc__, quick="few updates", peers=True)
    requests, updates, count = (2, 5, 16) if options.quick else (20, 20, 128)
    train, test = boards(["16x8"], 512 if options.quick else 4096, 0), boards(["32x32"], count, 1)
    rows = [baseline(test, orders) for orders in (1, 8)]
    rows.append(play_lab(train_lab(rounds=1 if options.quick else None), test))
    python = interpreter(options.peers / "ippo_jaxmarl", PACKAGES, install=not options.quick)
    curve = learn(python, train.instances, test.instances, requests, updates) if python else ()
    for done, seconds, answer in curve:
        row = {"name": f"IPPO, {done} updates, {seconds:.0f} s"} | answer
        show(row)
    rows += [row] if python else []
    write_rows([{"met": None} | row for row in rows], options.json)


def boards(kinds: Iterable[str], count: int, seed: int) -> Dataset:
    """Return boards of some kinds, drawn and not solved."""
    return generate(LakeConfig.uniform(read_kinds(kinds), HOLE, 0.0), jax.random.key(seed), count, exact=False)


def baseline(test: Dataset, orders: int) -> dict:
    """PIBT's row."""
    plans = pibt.plan(test.instances, jax.random.key(0), orders=orders, max_steps=TEST_STEPS)
    verdicts = verify(test.instances, plans, test.solutions.cost)
    ends = np.take_along_axis(plans.paths, np.maximum(plans.lengths - 1, 0)[..., None], axis=2)[..., 0]
    ratio = np.asarray(verdicts.cost / test.solutions.lower_bound)[verdicts.valid].mean()
    row = {"name": f"PIBT, {orders} orders", "success": float(np.mean(verdicts.valid)), "ratio": float(ratio)}
    row["arrived"] = float(np.mean(ends == test.instances.goals))
    show(row)
    return row


def train_lab(rounds: int | None) -> Parameters:
    """Return the lab's network after the curriculum, or after so many rounds of each of its parts."""
    key, trainer = jax.random.key(0), make_trainer(ACTOR, LAB, 1)
    learner = network.begin(ACTOR, trainer.optimizer, key[None])
    for kinds, count in CURRICULUM:
        train = boards(kinds, 4096, 0)
        levels, optima = jax.tree.map(lambda x: jnp.asarray(x)[None], (train.instances, train.solutions.lower_bound))
        stock = Boards.of_lanes(levels, optima, LAB.reward)
        for _ in range(rounds or count):
            key, play_key = jax.random.split(key)
            learner, _, _ = trainer.train(None, None, learner, stock, play_key[None])
    return lane(learner.parameters, 0)


def cut(state: State) -> tuple[jax.Array, jax.Array]:
    """Return the lab's view, distances and sizes cut to those of 16x16 with 8 agents and the time to half an episode.

    Uncut, 2 % of the agents arrive: the network never saw such numbers.
    """
    window, numbers = ACTOR.observe(state)
    most = jnp.array([1.5, 1.5, 1, 1, 1, 1.6, 1.6, 0.5])
    return window, jnp.clip(numbers, -most, most)


def play_lab(parameters: Parameters, test: Dataset) -> dict:
    """Return the row of the lab's network, which plays by the default rules: whoever would collide stays."""
    lake = Lake(observe=cut)

    @jax.jit
    def play(instances) -> tuple:
        state, first = jax.vmap(lambda board: lake.reset(board, Params(max_steps=TEST_STEPS)))(instances)

        def step(carry: tuple, key: jax.Array) -> tuple:
            state, seen = carry
            logits, _ = ACTOR.forward(parameters, None, seen, jax.vmap(lake.legal_actions)(state))
            state, timestep = jax.vmap(lake.step)(state, jax.random.categorical(key, logits))
            return (state, timestep.observation), None

        keys = jax.random.split(jax.random.key(7), TEST_STEPS)
        (state, _), _ = jax.lax.scan(step, (state, first.observation), keys)
        return state.positions == instances.goals, state.arrivals.sum(axis=1)

    home, costs = map(np.asarray, play(test.instances))
    solved = home.all(axis=1)
    ratio = float((costs / test.solutions.lower_bound)[solved].mean()) if solved.any() else None
    row = {"name": "the lab's network", "success": float(solved.mean()), "arrived": float(home.mean()), "ratio": ratio}
    show(row)
    return row


def learn(
    python: Path, train: Instance, test: Instance, requests: int, updates: int
) -> Iterator[tuple[int, float, dict]]:
    """Train by so many requests; yield updates and seconds so far and the peer's answer after each."""
    with tempfile.TemporaryDirectory() as scratch:
        files = {"levels": Path(scratch) / "train.npz", "test_levels": Path(scratch) / "test.npz"}
        for path, part in zip(files.values(), (train, test), strict=True):
            np.savez(path, **vars(part))
        settings = SETTINGS | {"updates": updates, "anneal_over": requests * updates}
        settings |= {name: str(path) for name, path in files.items()}
        seconds = 0.0
        with Peer("ippo_jaxmarl.py", json.dumps(settings), python=python) as peer:
            for request in range(1, requests + 1):
                answer = peer.ask()
                seconds += updates * SETTINGS["steps"] * SETTINGS["environments"] / answer["rate"]
                yield request * updates, seconds, answer


def show(row: dict) -> None:
    """Print a row."""
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
    print(f"{row['name']:<28} success {row['success']:6.1%}  on goals {row['arrived']:6.1%}  cost {ratio}", flush=True)


if __name__ == "__main__":
    main()

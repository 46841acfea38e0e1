"""Does what learned on small boards play large ones? JaxMARL's independent PPO
trains on 16x16 with 8 agents and is tested on 32x32 with 32, beside PIBT.

Both have the same test boards and steps. An agent of PPO sees a window of 9x9
with the steps to its goal, which PIBT reads too, and draws from its policy.
PIBT with one order is the row to compare with: it, too, decides step by step.

examples:
  python benchmarks/large_learning.py
      a row after every twenty updates
  python benchmarks/large_learning.py --quick
      few updates; only a peer that is installed already
"""

import json
import tempfile
from pathlib import Path

import jax
import numpy as np
from lab_speed import PACKAGES
from side_by_side import Peer, interpreter, read_options, write_rows

from jaxlake import Dataset, LakeConfig, generate, pibt, verify

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


def main() -> None:
    options = read_options(__doc__, quick="few updates", peers=True)
    requests, updates, count = (2, 5, 16) if options.quick else (20, 20, 128)
    train, test = boards("16x8", 512 if options.quick else 4096, 0), boards("32x32", count, 1)
    rows = [baseline(test, orders) for orders in (1, 8)]
    python = interpreter(options.peers / "ippo_jaxmarl", PACKAGES, install=not options.quick)
    curve = learn(python, train, test, requests, updates) if python else []
    rows += curve[-1:]
    write_rows([{"met": None} | row for row in rows], options.json)


def boards(kind: str, count: int, seed: int) -> Dataset:
    """Return boards of a kind, drawn and not solved."""
    return generate(LakeConfig.uniform([kind], HOLE, 0.0), jax.random.key(seed), count, exact=False)


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


def learn(python: Path, train: Dataset, test: Dataset, requests: int, updates: int) -> list[dict]:
    """Train, test after each request, and return the rows."""
    with tempfile.TemporaryDirectory() as scratch:
        files = {"levels": Path(scratch) / "train.npz", "test_levels": Path(scratch) / "test.npz"}
        for path, part in zip(files.values(), (train, test), strict=True):
            np.savez(path, **vars(part.instances))
        settings = SETTINGS | {"updates": updates, "anneal_over": requests * updates}
        settings |= {name: str(path) for name, path in files.items()}
        rows, seconds = [], 0.0
        with Peer("ippo_jaxmarl.py", json.dumps(settings), python=python) as peer:
            for request in range(1, requests + 1):
                answer = peer.ask()
                steps = updates * SETTINGS["steps"] * SETTINGS["environments"]
                seconds += steps / answer["rate"]
                row = {"name": f"IPPO, {request * updates} updates, {seconds:.0f} s"} | answer
                show(row)
                rows.append(row)
    return rows


def show(row: dict) -> None:
    """Print a row."""
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
    print(f"{row['name']:<28} success {row['success']:6.1%}  on goals {row['arrived']:6.1%}  cost {ratio}", flush=True)


if __name__ == "__main__":
    main()

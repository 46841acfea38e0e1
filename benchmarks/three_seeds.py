"""Does GRPO improve the policy, on every seed? Trains runs and reads their
evidence.

"Ours" is the valid share after the last round, the peer the same policy before
the rounds, on the same boards: of the first command, which plays turn by turn,
sampled; of whole plans greedy and sampled. Met means: 15 points more greedy, 20
sampled.

examples:
  python benchmarks/three_seeds.py
      three seeds of configs/turns.yaml and of configs/tiny.yaml
  python benchmarks/three_seeds.py --quick
      one short run: only that the script works
"""

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from side_by_side import write_rows

from engineer.evidence import Evidence
from rl.config import SHIPPED

TARGETS = {"greedy": 15.0, "sampled": 20.0}
"""Points that the valid share is to gain."""
QUICK = {
    "turns": ("rounds.count=2", "student.updates=1", "validation.instances=39"),
    "tiny": (
        "student.warm_start.steps=8",
        "student.warm_start.instances=500",
        "rounds.instances=96",
        "validation.instances=200",
    ),
}
BEFORE = {"turns": "before", "tiny": "warm_start"}
"""The validation before the rounds of each configuration, by its folder."""
WAYS = {"turns": ("sampled",), "tiny": ("greedy", "sampled")}
"""Answers that are compared: a model that plays turn by turn draws its moves."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--runs", type=Path, default=Path("runs/three_seeds"), metavar="DIR", help="where the runs go")
    options = parser.parse_args()

    rows = []
    for name, seed in itertools.product(QUICK, (0,) if options.quick else (0, 1, 2)):
        run = options.runs / f"{name}-{'quick' if options.quick else 'seed'}{seed}"
        overrides = (f"seed={seed}", *((*QUICK[name], "validation.samples=1") if options.quick else ()))
        started = time.perf_counter()
        config = ("--config", str(SHIPPED / f"{name}.yaml"))
        subprocess.run([sys.executable, "-m", "rl.train", *config, "--run", str(run), *overrides], check=True)
        rows += compare(run, name, seed, time.perf_counter() - started)

    print(f"\n{'':30} {'before':>11} {'after the rounds':>17} {'gain':>7} {'95 % interval':>14}  met")
    for row in rows:
        print(
            f"{row['name']:30} {row['peer']:11.1f} {row['ours']:17.1f} {row['ours'] - row['peer']:+7.1f} "
            f"{'+-':>9} {row['interval']:4.1f}  {'yes' if row['met'] else 'no'}"
        )
    for of in dict.fromkeys(row["of"] for row in rows):
        gains = [row["ours"] - row["peer"] for row in rows if row["of"] == of]
        print(f"{of}: {np.mean(gains):+.1f} points, from {min(gains):+.1f} to {max(gains):+.1f}")
    write_rows(rows, options.json)


def compare(run: Path, name: str, seed: int, seconds: float) -> list[dict]:
    """Return a row for each way of answering, in percent; an interval takes two validations for independent."""
    last = max((run / "rounds").iterdir(), key=lambda folder: int(folder.name))
    before, after = (
        Evidence.from_json(json.loads((folder / "evidence.json").read_text(encoding="utf-8")))
        for folder in (run / BEFORE[name], last)
    )
    rows = []
    for way in WAYS[name]:
        target = TARGETS[way]
        shares, errors = zip(*(share(evidence, way) for evidence in (before, after)), strict=True)
        rows.append(
            {
                "name": f"{name}: {way} valid %, seed {seed}",
                "of": f"{name}, {way}",
                "ours": 100 * shares[1],
                "peer": 100 * shares[0],
                "ratio": shares[1] / max(shares[0], 1e-9),
                "target": target,
                "met": 100 * (shares[1] - shares[0]) >= target,
                "interval": 196 * math.hypot(*errors),
                "seconds": seconds,
            }
        )
    return rows


def share(evidence: Evidence, way: str) -> tuple[float, float]:
    """Return the valid share, and its standard error over boards."""
    if way == "sampled":
        return evidence.sampled_valid, evidence.sampled_se
    p = evidence.valid / evidence.n
    return p, math.sqrt(p * (1 - p) / evidence.n)


if __name__ == "__main__":
    main()

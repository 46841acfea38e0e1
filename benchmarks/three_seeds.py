"""Does GRPO improve the policy after its warm start, on every seed? Trains
runs and reads their evidence.

"Ours" is the valid share after the last round, greedy and sampled, the peer the
same policy after its warm start, on the same boards. Met means: 15 points more
greedy, 20 sampled.

examples:
  python benchmarks/three_seeds.py
      three seeds of configs/tiny.yaml
  python benchmarks/three_seeds.py --quick
      one short run: only that the script works
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from side_by_side import write_rows

from engineer.evidence import Evidence

TARGETS = {"greedy": 15.0, "sampled": 20.0}
"""Points that the valid share is to gain."""

QUICK = (
    *("warm_start.steps=8", "warm_start.instances=500", "rounds.instances=96"),
    *("validation.instances=200", "validation.samples=1"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--runs", type=Path, default=Path("runs/three_seeds"), metavar="DIR", help="where the runs go")
    options = parser.parse_args()

    rows = []
    for seed in (0,) if options.quick else (0, 1, 2):
        run = options.runs / (f"quick{seed}" if options.quick else f"seed{seed}")
        overrides = (f"seed={seed}", *(QUICK if options.quick else ()))
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "rl.train", "--run", str(run), *overrides], check=True)
        rows += compare(run, seed, time.perf_counter() - started)

    print(f"\n{'':24} {'warm start':>11} {'after the rounds':>17} {'gain':>7} {'95 % interval':>14}  met")
    for row in rows:
        print(
            f"{row['name']:24} {row['peer']:11.1f} {row['ours']:17.1f} {row['ours'] - row['peer']:+7.1f} "
            f"{'+-':>9} {row['interval']:4.1f}  {'yes' if row['met'] else 'no'}"
        )
    for way in TARGETS:
        gains = [row["ours"] - row["peer"] for row in rows if row["way"] == way]
        print(f"{way}: {np.mean(gains):+.1f} points, from {min(gains):+.1f} to {max(gains):+.1f}")
    write_rows(rows, options.json)


def compare(run: Path, seed: int, seconds: float) -> list[dict]:
    """Two rows, greedy and sampled, in percent; the interval of a gain takes the two validations for independent."""
    last = max((run / "rounds").iterdir(), key=lambda folder: int(folder.name))
    before, after = (
        Evidence.from_json(json.loads((folder / "evidence.json").read_text(encoding="utf-8")))
        for folder in (run / "warm_start", last)
    )
    rows = []
    for way, target in TARGETS.items():
        shares, errors = zip(*(share(evidence, way) for evidence in (before, after)), strict=True)
        rows.append(
            {
                "name": f"{way} valid %, seed {seed}",
                "way": way,
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

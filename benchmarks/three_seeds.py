"""Does GRPO improve the policy after its warm start, on every seed? Trains
runs and reads their evidence.

"Ours" is the sampled valid share after the last round, the peer the same
policy after its warm start, on the same boards. Met means: higher by more than
the 95 % interval of the mean.

examples:
  python benchmarks/three_seeds.py
      three seeds of configs/tiny.yaml
  python benchmarks/three_seeds.py --quick
      one short run: only that the script works
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from side_by_side import write_rows

QUICK = (
    *("warm_start.steps=8", "warm_start.instances=500", "rounds.instances=24"),
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
        subprocess.run([sys.executable, "-m", "rl.train", "--run", str(run), *overrides], check=True)
        rows.append(compare(run, seed))

    print("\nsampled valid %, mean of the samples a board (greedy in brackets)")
    print(f"{'seed':>4}  {'warm start':>16}  {'after the rounds':>16}  {'gain':>6}  {'95 % interval':>13}  met")
    for row in rows:
        print(
            f"{row['seed']:>4}  {row['peer']:8.1f} ({row['greedy_before']:5.1f})  {row['ours']:8.1f} "
            f"({row['greedy_after']:5.1f})  {row['ours'] - row['peer']:+6.1f}  {'+-':>8} {row['target']:4.1f}  "
            f"{'yes' if row['met'] else 'no'}"
        )
    write_rows(rows, options.json)


def compare(run: Path, seed: int) -> dict:
    """One row: percentages, and as target the half width of the larger of the two intervals."""
    before = json.loads((run / "warm_start" / "evidence.json").read_text())
    last = max((run / "rounds").iterdir(), key=lambda folder: int(folder.name))
    after = json.loads((last / "evidence.json").read_text())
    interval = 196 * max(before["sampled_se"], after["sampled_se"])
    gain = 100 * (after["sampled_valid"] - before["sampled_valid"])
    greedy = [
        100 * sum(row["valid"] for row in evidence["by_size"]) / sum(row["n"] for row in evidence["by_size"])
        for evidence in (before, after)
    ]
    return {
        "name": f"sampled valid %, seed {seed}",
        "seed": seed,
        "ours": 100 * after["sampled_valid"],
        "peer": 100 * before["sampled_valid"],
        "ratio": after["sampled_valid"] / max(before["sampled_valid"], 1e-9),
        "target": interval,
        "met": gain > interval,
        "greedy_before": greedy[0],
        "greedy_after": greedy[1],
    }


if __name__ == "__main__":
    main()

"""Does an engineer read its evidence? The reading test of rl.evaluate beside
the same tables shuffled.

"Ours" is what an engineer gets right, or how equally it designs when the kinds'
names are exchanged; the peer is the same responses held against a table whose
kinds have other names, what one gets who reads no row. Met means: 95 % right,
98 % of the quoted numbers, .9 of equivariance. Untrained parameters, whose
answers the grammar keeps legal, are a second control, without a target.

examples:
  python benchmarks/reading.py
      the shipped engineer, on 200 drawn tables of the lab and real ones
  python benchmarks/reading.py --run runs/tiny
      also the engineer of a run of the policy, after its rounds
  python benchmarks/reading.py --quick
      a few tables: only that the script works
"""

import argparse
import tempfile
from pathlib import Path

import jax
from side_by_side import write_rows

from rl import config as config_
from rl.command import shipped
from rl.config import Config
from rl.judge import reading_test as reading
from rl.judge.asking import engineer_asker
from rl.model.policy import SHIPPED_MODEL, Policy
from rl.run.keys import Purpose, make_key
from rl.run.signals import Stop
from rl.run.tracking import Display

RIGHT, QUOTES, EQUIVARIANCE = 95, 98, 0.9
"""Targets."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run of a language policy whose engineer reads, too")
    options = parser.parse_args()

    lab = config_.load(shipped("tiny-engineer.yaml"))
    random = config_.load(shipped("tiny-engineer.yaml"), [f"model.shape={SHIPPED_MODEL}"])  # its shape and no weights
    asked: dict[str, tuple[Config, str | None]] = {"shipped": (lab, str(SHIPPED_MODEL)), "untrained": (random, None)}
    if options.run:
        config = config_.load(options.run / "config.yaml")
        asked |= {f"{options.run.name} after the rounds": (config, str(options.run / "final"))}
    rows = []
    for name, (config, folder) in asked.items():
        rows += read(name, config, folder, 4 if options.quick else None)

    print(f"\n{'':52} {'reads':>7} {'shuffled':>9} {'target':>7}  met")
    for row in rows:
        peer, target = ("" if row[name] is None else f"{row[name]:.2f}" for name in ("peer", "target"))
        met = {None: "", True: "yes", False: "no"}[row["met"]]
        print(f"{row['name']:52} {row['ours']:7.2f} {peer:>9} {target:>7}  {met}")
    write_rows(rows, options.json)


def read(name: str, config: Config, folder: str | None, limit: int | None) -> list[dict]:
    """Return rows for a checkpoint, or for random parameters where there is none."""
    if folder:
        policy, parameters = Policy.load(config, folder, make_key(config.seed, Purpose.PARAMETERS))
    else:
        policy, parameters = Policy.create(config, jax.random.key(config.seed))
    asker = engineer_asker(policy, parameters, config)
    with tempfile.TemporaryDirectory() as out, Display() as display:
        scores = reading.run(asker, config, name, limit, Path(out), display, Stop())["all"]
    figures = {
        "weakest kind right, %": RIGHT,
        "most learnable kind right, %": RIGHT,
        "leading failure right, %": RIGHT,
        "quotes right, %": QUOTES,
        "follows the rule: data": None,
        "equivariance: data": EQUIVARIANCE,
    }
    rows = []
    for what, target in figures.items():
        target = None if folder is None else target
        ours, peer = scores[what] or 0.0, scores.get(f"shuffled: {what}")  # none quoted: none right
        rows.append(
            {
                "name": f"{name}, {scores['states']} tables: {what}",
                "ours": ours,
                "peer": peer,
                "ratio": ours / peer if peer else None,
                "target": target,
                "met": None if target is None else ours >= target,
            }
        )
    return rows


if __name__ == "__main__":
    main()

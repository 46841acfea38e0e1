"""What should an agent's view say? A language model plays with six views.

Six rounds of configs/turns.yaml with engineer.kind=frontier: the end, and the
mean after rounds 1 to 5, of the valid share of sampled plays on the target.
`rows of their own`: ours, with a row of the embedding for each phrase in place
of shared properties. Needs nothing more to install.

examples:
  python benchmarks/views.py
      18 runs of 80 s of a core each
  python benchmarks/views.py --seeds 100
      a seed of each view
"""

import argparse
import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side import write_rows

from jaxlake import view
from jaxlake.state import State
from rl import config as config_
from rl.config import SHIPPED
from rl.loop.rounds import execute
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students.player import language

DIRECTIONS = slice(2, 6)


@dataclasses.dataclass(frozen=True)
class Coarse(view.View):
    """The view with a part left out: every phrase of it is the first of those that differ in that part alone."""

    without: str = ""

    def __call__(self, state: State) -> jax.Array:
        numbers = super().__call__(state)
        near, beyond, contested = numbers // 6, numbers // 2 % 3, numbers % 2
        match self.without:
            case "beyond":
                coarse = near * 6 + contested
            case "contested":
                coarse = near * 6 + beyond * 2
            case "directions":
                coarse = jnp.zeros_like(numbers)
            case "clock":
                return numbers.at[:, -1].set(0)
            case "distance":
                return numbers.at[:, :2].set(jnp.clip(numbers[:, :2], view.FAR - 1, view.FAR + 1))
        return numbers.at[:, DIRECTIONS].set(coarse[:, DIRECTIONS])


VIEWS = {
    "ours": view.View(),
    "without the cells beyond": Coarse("beyond"),
    "without contested": Coarse("contested"),
    "without the clock": Coarse("clock"),
    "signs of distances alone": Coarse("distance"),
    "rows of their own": view.View(),
}


def run(name: str, seed: int, overrides: list[str]) -> tuple[float, float]:
    """Return the end and the area of a run, valid shares of sampled plays."""
    config = config_.load(SHIPPED / "turns.yaml", ["engineer.kind=frontier", f"seed={seed}", *overrides])

    def make(*arguments: object) -> tuple[language.LanguageActor, object, object]:
        actor, *rest = make_actor(*arguments)
        return dataclasses.replace(actor, observe=VIEWS[name]), *rest

    make_actor, shared = language.make_actor, language._by_properties
    learn = (lambda adam, first: adam) if name == "rows of their own" else shared
    with (
        TemporaryDirectory() as folder,
        mock.patch.object(language, "make_actor", make),
        mock.patch.object(language, "_by_properties", learn),
    ):
        directory = RunDirectory(Path(folder) / "run", config)
        execute(config, directory, Display(quiet=True), Stop())
        shares = [
            json.loads((directory.path / f"rounds/{k}/evidence.json").read_text(encoding="utf-8"))["sampled_valid"]
            for k in range(config.rounds.count)
        ]
        directory.close()
    return shares[-1], float(np.mean(shares[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102], help="none of the study's")
    parser.add_argument("--quick", action="store_true", help="two views, two rounds of one small update")
    parser.add_argument("--json", type=Path, help="file for the rows")
    options = parser.parse_args()
    small = ["rounds.count=2", "student.updates=1", "student.environments=16", "validation.samples=1"]
    names = list(VIEWS)[:2] if options.quick else list(VIEWS)
    seeds = options.seeds[:1] if options.quick else options.seeds
    print(f"{'view':28} {'end':>6} {'area':>6}   ends by seed (%)")
    results = {}
    for name in names:
        runs = [run(name, seed, small if options.quick else []) for seed in seeds]
        results[name] = np.mean(runs, axis=0)
        ends = " ".join(f"{100 * end:.1f}" for end, _ in runs)
        print(f"{name:28} {100 * results[name][0]:6.1f} {100 * results[name][1]:6.1f}   {ends}", flush=True)
    ours = results.pop("ours")
    rows = [
        {
            "name": f"end, {name}",
            "ours": float(ours[0]),
            "peer": float(end),
            "ratio": float(ours[0] / end) if end else None,
            "target": 1.0,
            "met": bool(ours[0] >= end),
        }
        for name, (end, _) in results.items()
    ]
    write_rows(rows, options.json)


if __name__ == "__main__":
    main()

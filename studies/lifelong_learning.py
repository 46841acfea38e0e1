"""Does a shared network learn lifelong play? JaxMARL's independent PPO trains
on 16x16 with 8 agents, 20 % holes and goals drawn, and is paid 1 for each goal
that an agent reaches. Its throughput, goals that all agents of a board reach in
a step, is measured on 128 other boards of the kind over 256 steps, from the
policy's draws, beside PIBT's on the same boards with other goals drawn.

An agent sees a window of 9x9 with the steps to its goal, which PIBT reads too.
The peer is that of `large_learning.py`, in the same virtual environment.

examples:
  python studies/lifelong_learning.py --picture learning.png
      a row after every twenty updates, and their curve
  python studies/lifelong_learning.py --quick
      few updates; only a peer that is installed already
"""

import sys
from pathlib import Path

import jax

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from lab_speed import PACKAGES
from large_learning import TEST_STEPS, boards, learn
from side_by_side import interpreter, read_options, write_rows

from jaxlake import lifelong, pibt, stack
from jaxlake.types import LifelongInstance
from rl.report import style


def main() -> None:
    options = read_options(__doc__, quick="few updates", peers=True, picture=True)
    requests, updates, levels, count = (2, 5, 64, 16) if options.quick else (20, 20, 512, 128)
    train, test = with_goals(levels, 0), with_goals(count, 1)
    planner = float(pibt.play(test, jax.random.key(0), TEST_STEPS).sum(axis=1).mean() / TEST_STEPS)
    print(f"{'PIBT':<28} {planner:.3f} goals a step", flush=True)
    python = interpreter(options.peers / "ippo_jaxmarl", PACKAGES, install=not options.quick)
    curve, rows = [], [row("PIBT: goals a step", planner)]
    for done, seconds, answer in learn(python, train, test, requests, updates) if python else ():
        curve.append((done, answer["throughput"]))
        name = f"IPPO, {done} updates, {seconds:.0f} s"
        print(f"{name:<28} {curve[-1][1]:.3f} goals a step, {curve[-1][1] / planner:.2f} of PIBT's", flush=True)
        rows.append(row(f"{name}: goals a step", curve[-1][1], planner))
    if options.picture:
        options.picture.write_bytes(style.draw({"": picture}, (curve, planner))[""])
    write_rows(rows, options.json)


def with_goals(count: int, seed: int) -> LifelongInstance:
    """Return boards with all cells in reach as goals; an environment keeps a table of 128 KiB of its board."""
    return stack([lifelong.board(board) for board in boards(["16x8"], count, seed).instances])


def row(name: str, ours: float, peer: float | None = None) -> dict:
    return {"name": name, "ours": ours, "peer": peer, "ratio": peer and ours / peer, "target": None, "met": None}


def picture(drawn: tuple[list[tuple[int, float]], float]):
    """Draw throughput by updates, and the planner's."""
    from matplotlib.figure import Figure

    curve, planner = drawn
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*curve, strict=True), color=style.BLUE, marker="o", label="independent PPO")
    axes.axhline(planner, color=style.GREY, linestyle="--", label="PIBT")
    axes.set(xlabel="updates", ylabel="goals reached a step", ylim=(0, None))
    axes.legend()
    return figure


if __name__ == "__main__":
    main()

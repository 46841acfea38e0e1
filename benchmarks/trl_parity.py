"""Does our GRPO learn what TRL's does? The same model, prompts, rewards and seeds
by `rl.students.writer.step` and by TRL's GRPOTrainer.

A warm start of the tiny model learns to write plans on boards of 3x3 and 4x4;
both trainers begin with its parameters. A step has 16 boards in one order for
both, eight answers of at most 40 tokens to each at temperature 1, and one
update of AdamW: reward 1 for an optimal plan, advantages divided by the
group's deviation, the mean over the tokens of the batch, no reference, no
entropy. What differs is the draw of the answers, and that TRL's deviation
divides by n - 1, which scales all advantages alike.

The row compares the mean reward of the last fifth of the steps: the difference
over the seeds, with Student's 95 % interval. It is met if the interval contains
0; the smallest difference that it could have shown stands beside it.

examples:
  python benchmarks/trl_parity.py --picture parity.png
      100 steps, three seeds; installs the peer first, then some ten minutes
  python benchmarks/trl_parity.py --quick
      five steps, one seed, beside the peer if it is installed already
"""

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
from side_by_side import ROOT, connect, interpreter, read_options, write_rows

from jaxlake.adapters import text
from rl import config as config_
from rl.lab.statistics import seed_interval
from rl.learn.boards import BoardSet, build_boards, mixed_boards
from rl.learn.optimizer import B2, MAX_NORM, init_state
from rl.learn.state import TrainState
from rl.loop.rounds import execute
from rl.model.policy import Policy
from rl.report import style
from rl.report.curves import running_mean
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students.writer.step import grpo_step, rounds_optimizer

TINY = ROOT / "configs" / "tiny.yaml"
PROMPTS, SAMPLES, NEW_TOKENS, CLIP, RATE = 16, 8, 40, 0.2, 3e-4
KINDS = "lake.kinds=[3,4]"
START = (KINDS, "student.warm_start.engineer_first=0", "student.warm_start.engineer_every=0")
STEPS = (
    KINDS,
    "student.warm_start.steps=0",
    f"student.text.max_new_tokens={NEW_TOKENS}",
    f"student.learn.prompts={PROMPTS}",
    f"student.learn.samples={SAMPLES}",
    f"student.learn.learning_rate={RATE}",
    "student.learn.schedule=constant",
    "student.learn.warmup_steps=0",
    "student.learn.credit=outcome",
    "student.learn.clip_high=0.2",
    "student.learn.engineer_every=0",
    f"checkpoint.every_steps={10**6}",
)
PACKAGES = ("trl==1.16.0", "torch==2.13.0", "jax==0.9.2", "chex")


def main() -> None:
    options = read_options(
        __doc__, quick="five steps, one seed, a short warm start; installs nothing", peers=True, picture=True
    )
    steps, seeds, taught = (5, 1, 20) if options.quick else (100, 3, 200)
    python = interpreter(options.peers / "trl", PACKAGES, install=not options.quick)
    with tempfile.TemporaryDirectory() as scratch:
        folder = warm_start(Path(scratch) / "start", taught)
        with connect("trl_grpo.py", folder, json.dumps(shared()), python=python) as peer:
            curves: dict[str, list[list[float]]] = {"jaxlake": [], "TRL": []}
            for seed in range(seeds):
                ours = Ours(folder, Path(scratch) / f"seed{seed}", seed, steps)
                curves["jaxlake"].append([ours.step() for _ in range(steps)])
                print(f"seed {seed}: jaxlake {last(curves['jaxlake'][-1]):.3f}", end="", flush=True)
                if peer:
                    curves["TRL"].append(peer.ask(**ours.task(), seed=seed)["rewards"])
                    print(f", TRL {last(curves['TRL'][-1]):.3f}", end="", flush=True)
                print(flush=True)
    row = compare("mean reward, jaxlake less TRL", curves["jaxlake"], curves["TRL"])
    low, high = row.get("interval", (None, None))
    row["met"] = None if low is None else low <= 0 <= high
    if options.picture:
        options.picture.write_bytes(style.draw({"": picture}, curves)[""])
    write_rows([row], options.json)


def last(rewards: list[float]) -> float:
    """Return the mean of the last fifth of the steps."""
    return float(np.mean(rewards[-len(rewards) // 5 :]))


def compare(name: str, ours: list[list[float]], peer: list[list[float]]) -> dict[str, object]:
    """Return the row of rewards by seed and step, and print it: both ends, their paired difference with its interval.

    Without a peer's rewards the end of ours alone.
    """
    ends = np.array([last(rewards) for rewards in ours])
    row: dict[str, object] = {"name": name, "ours": float(ends.mean()), "peer": None, "ratio": None}
    row |= {"target": None, "met": None, "all_steps": float(np.mean(ours))}
    line = f"{name}: last fifth {row['ours']:.3f}, all steps {row['all_steps']:.3f}"
    if peer:
        others = np.array([last(rewards) for rewards in peer])
        less = seed_interval(ends - others)
        row |= {"peer": float(others.mean()), "ratio": float(ends.mean() / others.mean()) if others.any() else None}
        row |= {"difference": less.mean, "interval": [less.t_low, less.t_high], "detectable": less.detectable}
        line += f", less {row['peer']:.3f}: {less.mean:+.3f}"
        if less.t_low is not None:
            line += f" [{less.t_low:+.3f} {less.t_high:+.3f}], detectable {less.detectable:.3f}"
    print(line)
    return row


def shared() -> dict[str, object]:
    """Return what the peer must have as we do."""
    return {
        "prompts": PROMPTS,
        "samples": SAMPLES,
        "new_tokens": NEW_TOKENS,
        "clip": CLIP,
        "learning_rate": RATE,
        "adam_b2": B2,
        "max_gradient_norm": MAX_NORM,
    }


def warm_start(path: Path, steps: int) -> Path:
    """Teach the tiny model to write plans; return the folder with its parameters in Hugging Face's format."""
    config = config_.load(TINY, [*START, f"student.warm_start.steps={steps}"])
    execute(config, RunDirectory(path, config), Display(quiet=True), Stop(), stop_after=0)
    return path / "final"


class Ours:
    """A run that makes one step after the other from a model folder.

    Args:
      folder: the model.
      path: an empty folder for the run.
      steps: that it can make.
    """

    def __init__(self, folder: Path, path: Path, seed: int, steps: int):
        overrides = [*STEPS, f"seed={seed}", f"student.model.path={folder}", f"rounds.instances={PROMPTS * steps}"]
        self.config = config_.load(TINY, overrides)
        self.policy, parameters = Policy.create(
            self.config.student, self.config.mesh, make_key(seed, Purpose.PARAMETERS)
        )
        key, kinds = make_key(seed, Purpose.BUILD), self.config.all_kinds
        draw = functools.partial(build_boards, kinds)
        boards = mixed_boards(draw, self.config.lake.kinds, (0.2,), 0.25, key, PROMPTS * steps)
        order = np.random.default_rng(seed).permutation(len(boards.kinds))
        self.lake, self.order = BoardSet.of(self.policy, boards), order
        levels = [level for _, level in text.tasks(boards.instances, boards.solutions.cost)]
        self._rows = {"tokens": self.lake.prompts.tokens, "levels": levels}
        directory, display = RunDirectory(path, self.config), Display(quiet=True)
        directory.create()
        display.stage("parity", steps)
        optimizer = rounds_optimizer(self.config)
        self.state = TrainState(parameters, init_state(optimizer, parameters, self.policy.mesh))
        self.state.progress.stage = "rounds"
        self.recorder = Recorder(directory, display, Stop(), self)

    def step(self) -> float:
        """Make a step; return its mean reward."""
        boards = self.order[self.state.progress.cursor :][: self.config.writer.learn.prompts]
        metrics, seconds = grpo_step(self.policy, self.config, self.state, self.recorder, self.lake, boards)
        self.recorder.step_done({"phase": "round"} | metrics, seconds, "", save_every=10**6)
        return metrics["reward"]

    def task(self) -> dict[str, list]:
        """Return prompts and levels in the order of the steps, for the peer."""
        return {name: [rows[i] for i in self.order] for name, rows in self._rows.items()}

    def save(self, folder: Path) -> None:
        """Nothing: no step here is the best, or the last."""


def picture(curves: dict[str, list[list[float]]]):
    """Draw each seed's rewards as a running mean over ten steps, and the mean over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    for (name, rows), colour in zip(curves.items(), (style.BLUE, style.VERMILION), strict=True):
        smooth = np.array([running_mean(np.array(row), 10) for row in rows])
        if len(smooth):
            axes.plot(smooth.T, color=colour, linewidth=0.6, alpha=0.5)
            axes.plot(smooth.mean(axis=0), color=colour, label=name)
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, None))
    axes.legend()
    return figure


if __name__ == "__main__":
    main()

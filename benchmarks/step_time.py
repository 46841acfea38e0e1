"""Where do the seconds of a step of GRPO go, and what would they be at the
machine's matrix rate?

Steps of the tiny run, with outcome's credit (24 boards, 8 answers each) and
with the exact one (96 boards, 2 answers), in turns, from a policy that can
write plans. "Ours" is a part's time, the peer what its products of matrices
would take at the rate that this machine reaches with large ones, measured
between the steps. The products are counted: 2 operations a parameter and token
forwards, three times as much forwards and backwards, and another forward pass
that the backward one makes again; tokens that a step pads are not counted.

examples:
  python benchmarks/step_time.py --model runs/tiny/best
      nine turns: a minute
  python benchmarks/step_time.py --quick
      three turns of a random policy, whose answers are all as long as can be
"""

import argparse
import functools
import statistics
import tempfile
import time
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side import ROOT, write_rows

from rl import config as config_
from rl.learn.boards import VALIDATION_WAIT, BoardSet, build_boards, mixed_boards
from rl.learn.optimizer import init_state
from rl.learn.state import TrainState
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import WriterStudent
from rl.students.writer import step as one_step

TINY = ROOT / "configs" / "tiny.yaml"
CREDITS = {
    "exact": (),
    "outcome": (
        "student.learn.credit=outcome",
        "student.reward.kind=paper",
        "student.learn.prompts=24",
        "student.learn.samples=8",
    ),
}
ANSWERS = 192
SIDE = 1024
"""Of the square matrices whose product is timed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three turns of a random policy")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a policy of the tiny run's shape")
    options = parser.parse_args()
    turns, rates = 3 if options.quick else 9, []
    with tempfile.TemporaryDirectory() as scratch:
        runs = {name: Steps(Path(scratch) / name, given, options.model, turns + 1) for name, given in CREDITS.items()}
        for turn in range(turns + 1):
            for run in runs.values():
                run.step()
            if turn:
                rates.append(matrix_rate())
    rate = statistics.median(rates)
    print(
        f"products of {SIDE}x{SIDE} matrices: {rate / 1e9:.0f} GFLOP/s ({min(rates) / 1e9:.0f}-{max(rates) / 1e9:.0f})"
    )
    print(f"{'':18} {'seconds':>8} {'GFLOP':>7} {'at that rate':>12} {'ratio':>6}")
    rows = []
    for name, run in runs.items():
        for part, seconds in run.parts().items():
            work = run.operations.get(part, 0.0)
            ideal = work / rate
            rows.append(
                {
                    "name": f"{name}, {part}",
                    "ours": seconds,
                    "peer": ideal if work else None,
                    "ratio": seconds / ideal if work else None,
                    "target": None,
                    "met": None,
                }
            )
            share = f"{work / 1e9:7.1f} {ideal:11.3f}s {seconds / ideal:6.1f}" if work else ""
            print(f"{rows[-1]['name']:18} {seconds:7.3f}s {share}")
    write_rows(rows, options.json)


class Steps:
    """A run that makes one step after the other.

    Attributes:
      operations: floating-point operations of a step's products by part, mean over the steps.
    """

    def __init__(self, folder: Path, overrides: tuple[str, ...], model: Path | None, steps: int):
        start = () if model is None else ("student.model.shape=null", f"student.model.path={model}")
        config = config_.load(
            TINY, [*overrides, *start, "student.warm_start.steps=0", "student.learn.engineer_every=0"]
        )
        boards = config.student.learn.prompts * steps
        self._config = config = config_.load(
            TINY,
            [
                *overrides,
                *start,
                "student.warm_start.steps=0",
                "student.learn.engineer_every=0",
                f"rounds.instances={boards}",
            ],
        )
        self._student = WriterStudent(config)
        self._policy, parameters = self._student.policy, self._student._parameters
        wanted = config.validation
        draw = functools.partial(build_boards, config.all_kinds)
        key = make_key(0, Purpose.BUILD)
        drawn = mixed_boards(draw, config.lake.kinds, wanted.holes, VALIDATION_WAIT, key, boards)
        self._boards = BoardSet.of(self._policy, drawn)
        self._order = np.random.default_rng(0).permutation(boards)
        directory, display = RunDirectory(folder, config), Display(quiet=True)
        directory.create()
        display.stage("benchmark", steps)
        self._student.state = TrainState(
            parameters, init_state(one_step.rounds_optimizer(config), parameters, self._policy.mesh)
        )
        self._state = self._student.state
        self._state.progress.stage = "rounds"
        self._recorder = Recorder(directory, display, Stop(), self._student)
        self._weights = sum(x.size for x in jax.tree.leaves(parameters))  # tied: the embedding is the head
        self._seconds: list[dict[str, float]] = []
        self._operations: list[dict[str, float]] = []

    def step(self) -> None:
        """Make the next step; the first compiles."""
        boards = self._order[self._state.progress.cursor :][: self._config.writer.learn.prompts]
        with mock.patch.object(one_step, "make_updates", wraps=one_step.make_updates) as make_updates:
            metrics, seconds = one_step.grpo_step(
                self._policy, self._config, self._state, self._recorder, self._boards, boards
            )
        batch = make_updates.call_args.args[4]
        prompts = [len(self._boards.prompts.tokens[i]) for i in boards]
        learns = (batch.sequences.mask & (batch.advantages != 0)).any(axis=-1)
        trained = batch.sequences.valid[learns].sum()
        self._recorder.step_done({"phase": "round"} | metrics, seconds, "", save_every=10**6)
        self._seconds.append({part: seconds[part] for part in seconds if not part.endswith("per_second")})
        written = sum(prompts) + metrics["answer_tokens"] * ANSWERS
        self._operations.append({"rollout": 2 * self._weights * written, "update": 8 * self._weights * trained})

    @property
    def operations(self) -> dict[str, float]:
        return {part: statistics.fmean(x[part] for x in self._operations[1:]) for part in self._operations[0]}

    def parts(self) -> dict[str, float]:
        """Median seconds by part, the first step left out, and of whole steps."""
        steps = self._seconds[1:]
        parts = {part: statistics.median(step[part] for step in steps) for part in steps[0]}
        return parts | {"all": statistics.median(sum(step.values()) for step in steps)}


def matrix_rate(repeats: int = 5) -> float:
    """Floating-point operations a second of a product of two large float32 matrices."""
    x = jnp.ones((SIDE, SIDE), jnp.float32)
    product(x).block_until_ready()
    start = time.perf_counter()
    for _ in range(repeats):
        product(x).block_until_ready()
    return repeats * 2 * SIDE**3 / (time.perf_counter() - start)


product = jax.jit(lambda x: x @ x)

if __name__ == "__main__":
    main()

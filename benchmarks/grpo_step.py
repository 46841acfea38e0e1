"""How long does a step of GRPO take, from boards to new parameters? Our step
against google-tunix's GRPO learner.

Both train the same random Qwen3 of the tiny run's shape, float32, on the same
16 prompts a step, which are boards: eight answers of at most 128 tokens to
each, one optimizer update on all of them. One token in 32 ends an answer, so
lengths are ragged; draws differ, so rates are per sampled token, with other
prompts and seeds every turn. Ours is the step of `rl/loop/rounds.py` with
everything around it: answers become texts, plans, verdicts and rewards, and
rows in the logs. The peer is given less to do: its texts are numbers, and its
reward is the penalty on length alone. Rewards differ within every group, so no
answer is spared the update. Neither has a reference policy or another forward
pass than the update's; both clip by the gradients' norm and use AdamW, with a
rate too small to change the lengths.

The peer has jax, flax and a Qwen3 of its own in a virtual environment below
--peers, which `sampler_speed.py` shares, and reads the folder that we wrote.
They take turns, compiled before: rates are medians, the ratio is that of the
turns' ratios. Host time is all that is neither rollout nor update.

examples:
  python benchmarks/grpo_step.py
      nine turns; installs the peer first, then some two minutes
  python benchmarks/grpo_step.py --quick
      three turns, beside the peer if it is installed already
"""

import dataclasses
import functools
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

import jax
import machine
import numpy as np
from sampler_speed import PACKAGES
from side_by_side import ROOT, Row, alternate, connect, header, interpreter, read_options, report, row

from rl import config as config_
from rl.config import Config
from rl.learn.boards import VALIDATION_WAIT, BoardSet, build_boards, mixed_boards
from rl.learn.optimizer import MAX_NORM, init_state
from rl.learn.state import TrainState
from rl.model import presets, weights
from rl.model.decoder import create
from rl.model.policy import Policy
from rl.model.sharding import make_mesh
from rl.model.tokenizer import Tokenizer
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students.writer.step import grpo_step, rounds_optimizer

TINY = ROOT / "configs" / "tiny.yaml"
PROMPTS, SAMPLES, NEW_TOKENS = 16, 8, 128
OVERRIDES = (
    "student.model.shape=null",
    f"student.text.max_new_tokens={NEW_TOKENS}",
    "student.sampler.rows=32",
    f"student.learn.prompts={PROMPTS}",
    f"student.learn.samples={SAMPLES}",
    "student.learn.micro_batch=16",
    "student.learn.learning_rate=1e-6",
    "student.learn.credit=outcome",
    "student.learn.engineer_every=0",
    "student.reward.kind=paper",
    "student.reward.free_tokens=1",
    f"student.reward.limit_tokens={NEW_TOKENS}",
    "student.warm_start.steps=0",
    f"checkpoint.every_steps={10**6}",
)
"""Of the tiny run's configuration."""
TRAIN_PROMPTS, ROLLOUT_PROMPTS = 8, 16
"""The peer's micro-batches, of eight answers each. Whatever they are, its step is 4.5 to 5.5 s of processor time; the
least on the clock was with these: 2.5 s, against 2.7 with 16 prompts, 3.1 with 4 and 4.1 with 2."""
TARGET, MOST_HOST = 2.0, 0.10


def main() -> None:
    options = read_options(__doc__, quick="three turns; installs nothing", peers=True)
    repeats = 3 if options.quick else 9
    name = f"step, {PROMPTS} prompts x {SAMPLES} answers"
    python = interpreter(options.peers / "tunix_sampler", PACKAGES, install=not options.quick)
    with tempfile.TemporaryDirectory() as scratch:
        ours = Ours(Path(scratch), steps=1 + repeats)
        settings = json.dumps(peer_settings(ours.policy, ours.config))
        with connect("tunix_grpo.py", ours.model, settings, python=python) as peer:
            seeds = itertools.count()

            def mine() -> dict[str, float]:
                return {name: ours.step()}

            def theirs() -> dict[str, float]:
                answer = peer.ask(prompts=ours.prompts, seed=next(seeds))
                if not answer["moved"]:
                    raise AssertionError("the peer's parameters did not change")
                return {name: sum(answer["lengths"]) / answer["seconds"]}

            mine()
            if peer:
                theirs()
            print(f"float32, median of {repeats} turns; this machine: {machine.measure()}")
            print(header("answer tokens per second of a step", "tunix"))
            (compared,) = alternate(mine, theirs if peer else None, {name: TARGET}, repeats)
    parts = {part: statistics.median(step[part] for step in ours.seconds[1:]) for part in ours.seconds[0]}
    compared = dataclasses.replace(compared, facts=parts)
    host = ours.host_share()
    print(f"{compared.line()}\n{host.line()}")
    print("seconds of our step: " + ", ".join(f"{part} {seconds:.3f}" for part, seconds in parts.items()))
    report([compared, host], options.json)


@dataclasses.dataclass(frozen=True)
class Share(Row):
    """Seconds of a part, `ours`, in those of the whole, `peer`. The less the better: `target` is the most."""

    @property
    def met(self) -> bool:
        return self.ratio <= self.target

    def line(self) -> str:
        spread = f"{self.spread[0]:.1%}-{self.spread[1]:.1%}"
        target, met = f"<= {self.target:.0%}", "yes" if self.met else "no"
        return f"{self.name:34} {self.ours:9.3f}s {self.peer:9.3f}s {self.ratio:7.1%} {spread:>11} {target:>8} {met:>4}"


class Ours:
    """A run that makes one step after the other.

    Args:
      scratch: an empty folder, for the model and the run.
      steps: that it can make.

    Attributes:
      model: folder with the first parameters, in Hugging Face format.
      prompts: tokens of each, of the last step.
      seconds: of each step so far, by part and in all.
    """

    def __init__(self, scratch: Path, steps: int):
        self.model = scratch / "model"
        write_model(self.model)
        overrides = [*OVERRIDES, f"student.model.path={self.model}", f"rounds.instances={PROMPTS * steps}"]
        config = config_.load(TINY, overrides)
        policy, parameters = Policy.create(config.student, config.mesh, make_key(0, Purpose.PARAMETERS))
        key, settings = make_key(0, Purpose.BUILD), config.validation
        draw = functools.partial(build_boards, config.all_kinds)
        boards = mixed_boards(draw, config.lake.kinds, settings.holes, VALIDATION_WAIT, key, PROMPTS * steps)
        self.lake = BoardSet.of(policy, boards)
        directory, display = RunDirectory(scratch / "run", config), Display(quiet=True)
        directory.create()
        display.stage("benchmark", steps)
        self.policy, self.config = policy, config
        self.state = TrainState(parameters, init_state(rounds_optimizer(config), parameters, policy.mesh))
        self.state.progress.stage = "rounds"
        self.recorder = Recorder(directory, display, Stop(), self)
        self.order = np.random.default_rng(0).permutation(len(self.lake.prompts))
        self.prompts: list[list[int]] = []
        self.seconds: list[dict[str, float]] = []

    def step(self) -> float:
        """Answer tokens a second of the next step; raises AssertionError if an answer was spared the update."""
        boards = self.order[self.state.progress.cursor :][:PROMPTS]
        start = time.perf_counter()
        metrics, seconds = grpo_step(self.policy, self.config, self.state, self.recorder, self.lake, boards)
        self.recorder.step_done({"phase": "round"} | metrics, seconds, "", save_every=20)
        whole = time.perf_counter() - start
        device = {part: seconds[part] for part in ("rollout", "update")}
        self.seconds.append(device | {"host": whole - sum(device.values()), "all": whole})
        self.prompts = [self.lake.prompts.tokens[i] for i in boards]
        if metrics["rows_computed"] < 0.9:
            raise AssertionError(f"only {metrics['rows_computed']:.0%} of our answers went through the update")
        return metrics["answer_tokens"] * PROMPTS * SAMPLES / whole

    def save(self, folder: Path) -> None:
        """Nothing: no step here is the best, or the last."""

    def host_share(self) -> Share:
        """Return what the host took of the steps, the first left out."""
        host, whole = zip(*((step["host"], step["all"]) for step in self.seconds[1:]), strict=True)
        found = row("host share of our step", host, whole, MOST_HOST)
        return Share(**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)})


def write_model(folder: Path) -> None:
    """Write a random model of the tiny shape that ends an answer with each 32nd token of its vocabulary."""
    # The peer turns its heads by a base of 1e6 whatever the config says (tunix 0.1.7).
    shape = dataclasses.replace(presets.shape_of("tiny"), rope_theta=1e6)
    _, parameters = create(shape, jax.random.key(0), make_mesh(fsdp=1, tp=1))
    tokenizer = Tokenizer()
    weights.save(folder, shape, parameters, tokenizer)
    stops = [tokenizer.stop_ids[0], *range(shape.vocab_size // 32 - 1)]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}), encoding="utf-8")


def peer_settings(policy: Policy, config: Config) -> dict[str, object]:
    """Return what the peer must have as we do, and its micro-batches."""
    return {
        "prompts": PROMPTS,
        "samples": SAMPLES,
        "train_prompts": TRAIN_PROMPTS,
        "rollout_prompts": ROLLOUT_PROMPTS,
        "prompt_tokens": config.student.text.max_prompt_tokens,
        "new_tokens": NEW_TOKENS,
        "stop_ids": policy.tokenizer.stop_ids,
        "free_tokens": config.student.reward.free_tokens,
        "limit_tokens": config.student.reward.limit_tokens,
        "learning_rate": config.student.learn.learning_rate,
        "max_gradient_norm": MAX_NORM,
    }


if __name__ == "__main__":
    main()

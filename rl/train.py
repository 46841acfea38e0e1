"""The command `python -m rl.train`: makes or resumes a run, and shows what came of it."""

import argparse
import contextlib
import shlex
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from engineer import report
from rl import config as config_
from rl import distributed, grpo, sft
from rl.checkpoint import RunDirectory
from rl.config import Config, ConfigError
from rl.policy import Policy
from rl.qwen3 import lora
from rl.rounds import check_room, run_rounds
from rl.run import Interrupted, Purpose, Run, make_key, mixed_boards
from rl.tracking import Display, TensorBoard


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0 finished, 2 a mistake in the configuration or the directory, 130 stopped and saved.

    Of several processes only the first talks; a mistake is told by each that finds it.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    path = options.config or shipped("tiny.yaml")
    try:
        distributed.initialize(options.coordinator, options.processes, options.process)
        config = config_.load(path, options.overrides)
        directory = RunDirectory(options.run or Path("runs") / path.stem, config)
        with contextlib.closing(directory), Display(quiet=not distributed.is_main()) as display:
            execute(config, directory, display)
    except Interrupted:
        if distributed.is_main():
            print(f"Stopped and saved. To go on: python -m rl.train {shlex.join(arguments)}".rstrip())
        return 130
    except KeyboardInterrupt:
        if distributed.is_main():
            print("Stopped at once; what was saved before is kept, and the same command goes on from there.")
        return 130
    except (ConfigError, PermissionError) as error:
        where = "" if distributed.is_main() else f"process {jax.process_index()}: "
        print(f"{where}error: {error}", file=sys.stderr)
        return 2
    if distributed.is_main():
        print(f"\n{report.table_text(directory.path)}\n\nReport: {report.write(directory.path)}")
    return 0


def execute(config: Config, directory: RunDirectory, display: Display) -> None:
    """Trains from wherever the directory stands to the end.

    Raises:
      ConfigError: for a mistake of the user's; nothing is written if it is found before the first step.
      Interrupted: after Ctrl-C or SIGTERM, with everything saved.
    """
    progress = directory.progress()
    if progress.stage == "finished":
        display.say(f"{directory.path} is finished; to train anew choose another directory with --run")
        return
    policy, parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
    count, trained = (sum(x.size for x in jax.tree.leaves(tree)) for tree in (parameters, lora.split(parameters)[0]))
    part = "" if trained == count else f", {trained / 1e6:.2f} M of them trained,"
    devices = policy.mesh.devices
    display.say(f"Qwen3 with {count / 1e6:.2f} M parameters{part} on {devices.size} x {devices.flat[0].device_kind}")
    check_room(policy)
    board = TensorBoard(directory.path) if config.tracking.tensorboard else None
    display.stage("boards", 2)
    settings = config.validation
    key = make_key(config.seed, Purpose.VALIDATION_SET)
    boards = mixed_boards(config, settings.holes, settings.wait, key, settings.instances)
    validation = policy.prompts(boards.instances)
    display.advance("validation")
    supervise = progress.stage == "warm_start" and config.warm_start.steps > 0
    if supervise:
        plans = sft.plan_examples(policy, boards.instances, display)
        display.advance("warm start")

    directory.create()
    with _stop_signals() as stop:
        run = Run(
            config=config,
            directory=directory,
            display=display,
            policy=policy,
            parameters=parameters,
            optimizer_state=None,
            progress=progress,
            validation=validation,
            optima=np.asarray(boards.solutions.cost),
            stop=stop,
            board=board if distributed.is_main() else None,
        )
        supervised, reinforced = sft.make_optimizer(config), grpo.make_optimizer(config.grpo)
        run.begin(supervised if progress.stage == "warm_start" else reinforced)
        if progress.stage == "warm_start":
            if progress.step == 0:
                run.validate("before", occasion=0)
            if supervise:
                sft.warm_start(run, supervised, plans)
                run.validate("warm_start", occasion=1)
            progress.stage, progress.step = "rounds", 0
            run.switch(reinforced)
            run.save()
        run_rounds(run, reinforced)
        policy.save(directory.path / "final", run.parameters)
        progress.stage = "finished"
        run.save()


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; a Ctrl-C after that stops at once, without saving.

    Another SIGTERM does not: `timeout`, for one, sends it to the process and then to its group.
    """
    stop = threading.Event()

    def on_signal(number, frame):
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def shipped(name: str) -> Path:
    """A configuration that comes with the package: beside it in a checkout, inside it where it is installed."""
    package = Path(__file__).parent
    inside = package / "configs" / name
    return inside if inside.exists() else package.parent / "configs" / name


def _parser() -> argparse.ArgumentParser:
    keys = "\n".join(
        textwrap.fill(
            f"{key} = {field.get_default()}" + (f"   {field.description}" if field.description else ""),
            width=100,
            initial_indent="  ",
            subsequent_indent="      ",
        )
        for key, field in config_.keys().items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m rl.train",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Trains a policy to plan paths for several agents on frozen lakes, in rounds: after each, the policy\n"
            "reads the evidence of its own failures and designs the environment of the next.\n\n"
            "Without arguments: a small model from scratch, minutes on two CPU cores, results in runs/tiny.\n"
            "A run that was stopped or killed goes on when the same command is given again."
        ),
        epilog=(
            "examples:\n"
            "  python -m rl.train\n"
            "  python -m rl.train --run runs/seed1 seed=1 grpo.learning_rate=2e-4\n"
            "  python -m rl.train --config configs/qwen3-4b.yaml model.path=/models/Qwen3-4B\n\n"
            f"keys and their defaults (a file overrides them, the command line overrides the file):\n{keys}"
        ),
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file (default: the shipped tiny.yaml)")
    parser.add_argument("--run", type=Path, metavar="DIR", help="directory of the run (default: runs/<name of FILE>)")
    job = parser.add_argument_group(
        "several processes", "the same command in each; on TPU pods and under SLURM (srun) without these options"
    )
    job.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0, a free port there")
    job.add_argument("--processes", type=int, metavar="N", help="how many there are")
    job.add_argument("--process", type=int, metavar="I", help="which one this is, from 0")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="values that override the file's")
    return parser


if __name__ == "__main__":
    sys.exit(main())

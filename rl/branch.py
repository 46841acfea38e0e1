"""The command `python -m rl.branch`: what designs gain from one state, and an engineer that learns from it."""

import argparse
import sys
from pathlib import Path

from jaxlake.commands import command_parser, local_path
from rl import command
from rl import config as config_
from rl.config import ConfigError
from rl.lab.branches import BranchRequest, branch_from
from rl.lab.gains import read_gains
from rl.lab.states import train_states
from rl.lab.teaching import teach
from rl.run.signals import Stop
from rl.run.tracking import Display

DESCRIPTION = """\
Trains a network from the last state of a run on each of several designs, for
some updates, and measures the gain of every design on the run's validation
boards. gains.jsonl has a line for each branch. The report shows the gains of
engineers' designs, whether gains repeat with other keys, and the transfer
between kinds. The run does not change.

With --config it first trains short runs to branch from; states.jsonl has the
evidence that an engineer reads in each. With --teach a language model learns
from such a folder to write the designs that gained most; its thought before a
design still reads the table.

Rerun the same command to resume."""
EXAMPLES = """\
examples:
  python -m rl.branch --run runs/lab
  python -m rl.branch --run runs/lab --designs 16 --kinds --repeats 3
  python -m rl.branch --run runs/lab --designs 4 --repeats 1 --updates 10
  python -m rl.branch --config configs/lab.yaml --states 60 --rules --designs 8
  python -m rl.branch --teach runs/states --out runs/teach
  python -m rl.branch --run runs/lab --rules --model runs/teach/final"""


def main(arguments: list[str] | None = None) -> int:
    """Train and measure branches, or teach from them; return the exit code, see `rl.command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = command.parse(_parser(), arguments)

    def work(stop: Stop) -> None:
        _check(options)
        with Display() as display:
            (_teach if options.teach else _branch)(options, display, stop)

    return command.guarded("rl.branch", arguments, work)


def _branch(options: argparse.Namespace, display: Display, stop: Stop) -> None:
    request = BranchRequest(
        designs=options.designs,
        each_kind=options.kinds,
        rules=options.rules,
        models=options.model,
        repeats=options.repeats,
        updates=options.updates,
        samples=options.samples,
    )
    if options.run:
        out, runs = options.out or options.run / "branches", iter([options.run])
    else:
        out, config = options.out or Path("runs/states"), config_.load(options.config, options.overrides)
        runs = train_states(config, options.states, out, display, stop)
    for run in runs:
        branch_from(run, request, out, display, stop)
    from rl.report import branch as report  # matplotlib takes a second

    display.say(f"\n{report.to_text(read_gains(out))}\n\nReport: {report.write(out)}")


def _teach(options: argparse.Namespace, display: Display, stop: Stop) -> None:
    config = config_.load(options.config or command.shipped("teach.yaml"), options.overrides)
    if config.plays:
        raise ConfigError("student.kind = player is taught no designs; leave it out, as a policy that writes is taught")
    teach(options.teach, config, options.out or Path("runs/teach"), display, stop)


def _check(options: argparse.Namespace) -> None:
    """Refuse numbers that ask for nothing, and options that do not go together."""
    least = {"designs": 0 if options.kinds or options.rules or options.model else 2} | dict.fromkeys(
        ("repeats", "samples", "updates", "states"), 1
    )
    for name, fewest in least.items():
        if (value := getattr(options, name)) is not None and value < fewest:
            raise ConfigError(f"--{name} {value}: must be at least {fewest}")
    if bool(options.run) + bool(options.teach) + bool(options.states) != 1:
        raise ConfigError("one of --run, --states and --teach must be given")
    if options.run and (options.config or options.overrides):
        raise ConfigError("--run: --config and KEY=VALUE are for --states and --teach")
    if options.states and not options.config:
        raise ConfigError("--states: needs --config, the configuration of the runs to train")
    if options.run and not (options.run / "config.yaml").exists():
        raise ConfigError(f"--run {options.run}: holds no run (it has no config.yaml)")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("rl.branch", DESCRIPTION, EXAMPLES)
    command.add_path(parser, "--run", "DIR", "run to branch from, at its last state")
    parser.add_argument(
        "--states", type=int, metavar="N", help="branch from N runs of --config, each with its own seed and engineer"
    )
    command.add_path(parser, "--teach", "DIR", "folder of --states from which a language model learns")
    command.add_path(parser, "--config", "FILE", "YAML file of the runs, or of the model (default: teach.yaml)")
    parser.add_argument("--rules", action="store_true", help="add the designs of all rules")
    parser.add_argument(
        "--model",
        type=local_path,
        action="append",
        default=[],
        metavar="DIR",
        help="add the designs of this language model, with true and with shuffled evidence; repeat it for more models",
    )
    parser.add_argument("--designs", type=int, default=32, metavar="K", help="number of random designs (default: 32)")
    parser.add_argument("--kinds", action="store_true", help="add a design for each kind, with all data on it")
    parser.add_argument("--updates", type=int, metavar="M", help="updates of a branch (default: a round's)")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="R", help="branches of each design, with fresh keys (default: 3)"
    )
    parser.add_argument(
        "--samples", type=int, default=4, metavar="N", help="plays of each board before and after (default: 4)"
    )
    out = "folder of the results (default: branches/ of the run, runs/states, runs/teach)"
    command.add_path(parser, "--out", "DIR", out)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings that override the configuration")
    return parser


if __name__ == "__main__":
    sys.exit(main())

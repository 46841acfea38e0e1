"""The command `python -m rl.branch`: what designs would gain from one saved state, measured by training on each."""

import argparse
import contextlib
import sys
from pathlib import Path

from jaxlake.commands import command_parser, local_path
from rl import command, students
from rl import config as config_
from rl.branching import (
    BranchPlan,
    branch_all,
    deduplicate,
    draw_designs,
    keep_state,
    language,
    model_designs,
    network,
    read_gains,
    rule_designs,
    train_states,
)
from rl.config import ConfigError
from rl.rounds import past_rounds
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import NetworkStudent

DESCRIPTION = """\
Trains a student from the last state of a run on each of several designs, some
updates each, and writes what every design gained on the run's validation
boards: to gains.jsonl, a line a branch, and a report that says what engineers'
designs gain, whether gains repeat with other keys, and what transfers to what.
The run stays as it is.

With --config it first trains short runs to branch from, for whoever is to learn
what designs do: states.jsonl has what an engineer reads in each.

Stopped or killed, it goes on when the same command is given again."""
EXAMPLES = """\
examples:
  python -m rl.branch --run runs/lab
  python -m rl.branch --run runs/lab --designs 16 --kinds --repeats 3
  python -m rl.branch --run runs/tiny --designs 4 --repeats 1 --updates 10
  python -m rl.branch --config configs/lab.yaml --states 60 --rules --designs 8
  python -m rl.branch --run runs/lab --rules --model runs/teach/final"""
LANES = 24
"""Branches of a network that are trained together: more take no less time a branch on a CPU, and 40 MB each."""


def main(arguments: list[str] | None = None) -> int:
    """Train and measure branches; return the exit code, see `rl.command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)

    def work(stop: Stop) -> None:
        _check(options)
        with Display() as display:
            _branch(options, display, stop)

    return command.guarded("rl.branch", arguments, work)


def _branch(options: argparse.Namespace, display: Display, stop: Stop) -> None:
    from rl.report import branch as report  # matplotlib takes a second

    if options.run:
        out, runs = options.out or options.run / "branches", iter([options.run])
    else:
        out = options.out or Path("runs/states")
        config = config_.load(options.config, options.overrides)
        runs = train_states(config, options.states, out, display, stop)
    for run in runs:
        _branch_from(run, out, options, display, stop)
    display.say(f"\n{report.to_text(read_gains(out))}\n\nReport: {report.write(out)}")


def _branch_from(run: Path, out: Path, options: argparse.Namespace, display: Display, stop: Stop) -> None:
    """Train branches from the last state of a run."""
    config = config_.load(run / "config.yaml")
    updates = options.updates or (
        config.student.network.updates if config.plays else config.rounds.instances // config.grpo.prompts
    )
    with contextlib.closing(RunDirectory(run, config)) as directory:
        with stop.interrupt_immediately():
            student = students.create(config)
            student.restore(directory, display)
            progress = student.state.progress
            if not progress.history:
                raise ConfigError(f"--run {run}: has no finished round yet, after which a design would be asked for")
        designs = rule_designs(past_rounds(progress), config.seed) if options.rules else []
        for folder in options.model:
            designs += model_designs(folder, student)
        designs += draw_designs(config.lake.kinds, options.designs, options.kinds, config.seed)
        branches = BranchPlan(deduplicate(designs), options.repeats, updates)
        if isinstance(student, NetworkStudent):
            student.settings = student.settings.model_copy(update={"updates": updates})
            train = network.trainer(student, options.repeats, options.samples)
            at_once = max(1, LANES // options.repeats)
        else:
            directory.close()  # its legs copy its checkpoint, under its lock
            train = language.trainer(student, run, options.repeats, updates, out, display, stop)
            at_once = 1
        keep_state(out, f"{run} round {progress.round}", progress)
        branch_all(student, directory, branches, train, at_once, out, display, stop)


def _check(options: argparse.Namespace) -> None:
    """Refuse numbers that ask for nothing."""
    least = {"designs": 0 if options.kinds or options.rules or options.model else 2} | dict.fromkeys(
        ("repeats", "samples", "updates"), 1
    )
    least |= {"states": 1}
    for name, fewest in least.items():
        if (value := getattr(options, name)) is not None and value < fewest:
            raise ConfigError(f"--{name} {value}: must be at least {fewest}")
    if options.run and (options.states or options.overrides):
        raise ConfigError("--run: --states and KEY=VALUE are for --config")
    if options.config and not options.states:
        raise ConfigError("--config: needs --states, how many to train")
    if options.run and not (options.run / "config.yaml").exists():
        raise ConfigError(f"--run {options.run}: holds no run (it has no config.yaml)")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("rl.branch", DESCRIPTION, EXAMPLES)
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument("--run", type=local_path, metavar="DIR", help="run whose last state is branched from")
    start.add_argument("--config", type=local_path, metavar="FILE", help="configuration of runs to train for --states")
    parser.add_argument(
        "--states", type=int, metavar="N", help="branch from N runs, each of its own seed, length and engineer"
    )
    parser.add_argument("--rules", action="store_true", help="also the designs of all rules")
    parser.add_argument(
        "--model",
        type=local_path,
        action="append",
        default=[],
        metavar="DIR",
        help="also the designs of this language model, and those with the evidence shuffled; may be given again",
    )
    parser.add_argument("--designs", type=int, default=32, metavar="K", help="random designs (default: 32)")
    parser.add_argument("--kinds", action="store_true", help="also a design for each kind, with all data on it")
    parser.add_argument(
        "--updates", type=int, metavar="M", help="updates (steps of a language policy) of a branch (default: a round's)"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="R", help="of each design, fresh keys (default: 3)")
    parser.add_argument(
        "--samples", type=int, default=4, metavar="N", help="plays of a board before and after (default: 4; networks)"
    )
    parser.add_argument(
        "--out",
        type=local_path,
        metavar="DIR",
        help="folder of gains.jsonl (default: branches/ of the run, runs/states)",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="values that override the configuration's")
    return parser


if __name__ == "__main__":
    sys.exit(main())

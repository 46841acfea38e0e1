"""The command `python -m rl.compare`: engineers against each other, from the same start and with the same seeds."""

import argparse
import sys
import textwrap
from pathlib import Path

from jaxlake.commands import command_parser
from rl import command
from rl.config import ConfigError
from rl.lab.comparison import load, open_folder, reopen
from rl.lab.runs import plan_runs
from rl.lab.workers import run_all, run_workers
from rl.run.signals import Stop
from rl.run.tracking import Display

DESCRIPTION = """\
Compares engineers by the policies that learn in their environments.

All runs start from one warm start. Each seed has one round 0 for all engineers,
or several first rounds (shared_rounds). From there each engineer designs the
other rounds, with as many instances and steps as the others. At the end every
policy answers the boards of the fixed suites, which no training has seen: 2 to
5 agents, all wait subsets.

Rerun the same command to resume. Start it on several machines that share the
disk to divide the work."""
EXAMPLES = """\
python -m rl.compare --config configs/compare/tiny.yaml --jobs 2
python -m rl.compare --out runs/two seeds=[0,1] overrides.rounds.count=2
python -m rl.compare --config configs/compare/lab.yaml --jobs 2"""
LAYOUT = """\
compare.yaml              every value that affects the result
start/                    the warm start, a run; in it seed<k>/, round 0 with
                          each seed, or all shared rounds
arms/<engineer>/seed<k>/  the other rounds, a run each; evaluation.json has
                          the answers to the held-out boards
report/                   paired differences, tables, pictures"""


def main(arguments: list[str] | None = None) -> int:
    """Run the unfinished part of a comparison; return the exit code, see `rl.command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = command.parse(_parser(), arguments)

    return command.guarded("rl.compare", arguments, lambda stop: _compare(options, stop))


def _compare(options: argparse.Namespace, stop: Stop) -> None:
    if options.worker:  # of --jobs: it works on a comparison that is under way
        comparison = reopen(options.out)
        with Display() as display:
            run_all(plan_runs(comparison, options.out), comparison.evaluation, display, stop)
        return
    if options.jobs < 1:
        raise ConfigError(f"--jobs {options.jobs}: must be at least 1")
    path = options.config or command.shipped("compare/tiny.yaml")
    out = options.out or Path("runs") / f"compare-{path.stem.removeprefix('compare-')}"
    comparison = open_folder(out, load(path, options.overrides))
    plans = plan_runs(comparison, out)
    with Display() as display:
        if options.jobs == 1:
            run_all(plans, comparison.evaluation, display, stop)
        else:
            run_workers(options.jobs, out, plans, display, stop)
        from rl.report import comparison as report  # matplotlib takes a second

        finished = report.read(out)
        display.say(f"\n{report.to_text(finished)}\n\nReport: {report.write(out, finished)}")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "rl.compare",
        DESCRIPTION,
        f"in DIR:\n{textwrap.indent(LAYOUT, '  ')}\n\nexamples:\n{textwrap.indent(EXAMPLES, '  ')}",
    )
    config = "YAML file of the comparison (default: the shipped compare/tiny.yaml)"
    command.add_path(parser, "--config", "FILE", config)
    command.add_path(parser, "--out", "DIR", "folder of the comparison (default: runs/compare-<name of FILE>)")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes on this machine that share the work (default: 1)"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings that override the file")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The command `python -m rl.comparison DIR`: one worker of those that `python -m rl.compare --jobs N` starts."""

import sys

from jaxlake.commands import command_parser, local_path
from rl import command
from rl.comparison import plan, reopen, run_all
from rl.run.signals import Stop
from rl.run.tracking import Display

DESCRIPTION = """\
One more worker on a comparison that python -m rl.compare has begun, here or on
another machine that shares the disk. Ends when nothing is left to do, and with
exit code 75 when it stands still: start it again then."""
EXAMPLES = """\
examples:
  python -m rl.comparison runs/compare-tiny"""


def main(arguments: list[str] | None = None) -> int:
    """Work on a comparison until nothing is left; return the exit code, see `rl.command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = command_parser("rl.comparison", DESCRIPTION, EXAMPLES)
    parser.add_argument("folder", type=local_path, metavar="DIR", help="the folder of the comparison")
    out = parser.parse_args(arguments).folder

    def work(stop: Stop) -> None:
        comparison = reopen(out)
        with Display(stall_seconds=comparison.run.tracking.stall_seconds, ends=True) as display:
            run_all(plan(comparison, out), comparison.evaluation, display, stop)

    return command.guarded("rl.comparison", arguments, work)


if __name__ == "__main__":
    sys.exit(main())

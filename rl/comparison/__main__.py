"""The command `python -m rl.comparison DIR`: one worker of those that `python -m rl.compare --jobs N` starts."""

import sys
from pathlib import Path

from rl import command
from rl.command import Stop
from rl.comparison import carry_out, plan, reopen
from rl.config import ConfigError
from rl.tracking import Display


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code, see `command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments

    def work(stop: Stop) -> None:
        if len(arguments) != 1:
            raise ConfigError("python -m rl.comparison wants one argument, the folder of a comparison")
        out = Path(arguments[0])
        comparison = reopen(out)
        with Display() as display:
            carry_out(plan(comparison, out), comparison.evaluation, display, stop)

    return command.guarded("rl.comparison", arguments, work)


if __name__ == "__main__":
    sys.exit(main())

"""The command `python -m rl.sft`: the supervised part of a run alone."""

import sys

from rl import command
from rl.config import Config, ConfigError
from rl.rounds import execute
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.train import show_results

DESCRIPTION = """\
Teaches a policy the plans of the exact solver and the answers of an
environment engineer: the warm start of a run, validated at its end. What it
learned is in <run>/final, for transformers and for other runs.

Without arguments: a small model that is shipped, a minute or two on two CPU
cores, results in runs/tiny. Stopped or killed, it goes on when the same
command is given again; python -m rl.train with the same options goes on with
the rounds."""
EXAMPLES = """\
python -m rl.sft
python -m rl.sft --run runs/a warm_start.steps=2000
python -m rl.train --run runs/a warm_start.steps=2000
python -m rl.train warm_start.steps=0 model.path=runs/a/final --run runs/b"""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code, see `command.guarded`."""

    def work(config: Config, directory: RunDirectory, display: Display, stop: Stop) -> None:
        if not config.warm_start.steps:
            raise ConfigError("warm_start.steps = 0: nothing to teach; python -m rl.train begins with the rounds")
        execute(config, directory, display, stop, stop_after=0)
        show_results(directory, display, policy=f"Policy: {directory.path / 'final'}\n")

    return command.run("rl.sft", DESCRIPTION, EXAMPLES, arguments, work)


if __name__ == "__main__":
    sys.exit(main())

"""The command `python -m rl.train`: makes or resumes a run, and shows its result."""

import argparse
import contextlib
import sys
import textwrap
from pathlib import Path

from jaxlake.commands import command_parser
from rl import command, distributed
from rl import config as config_
from rl.config import ConfigError
from rl.loop.rounds import execute
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display

DESCRIPTION = """\
Trains a policy on frozen lakes with several agents, in rounds: after each, the
policy reads the evidence of its own failures and designs the environment of the
next.

Without arguments the included small model plays turn by turn and designs, for
four minutes on two CPU cores, and writes to runs/turns. Rerun the same command
to resume."""
EXAMPLES = """\
python -m rl.train
python -m rl.train --run runs/seed1 seed=1 student.learn.learning_rate=1e-3
python -m rl.train --config configs/tiny.yaml
python -m rl.train --config configs/tiny.yaml --until warm_start student.warm_start.steps=2000
python -m rl.train --config configs/qwen3-4b.yaml student.model.path=models/Qwen3-4B"""


def main(arguments: list[str] | None = None) -> int:
    """Train, or resume the run in its directory; return the exit code, see `rl.command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = command.parse(parser(), arguments)
    path, taught_only = options.config or command.shipped("turns.yaml"), options.until == "warm_start"

    def work(stop: Stop) -> None:
        command.join(options, stop)
        if "engineers" in config_.read(path):
            raise ConfigError(f"{path}: holds a comparison, which python -m rl.compare takes; a run has one engineer")
        config = config_.load(path, options.overrides)
        if taught_only and not config.student.warm_start.steps:
            raise ConfigError("--until warm_start: student.warm_start.steps = 0 must be above 0; leave --until out")
        with (
            contextlib.closing(RunDirectory(options.run or Path("runs") / path.stem, config)) as directory,
            Display(not distributed.is_main()) as display,
        ):
            execute(config, directory, display, stop, stop_after=0 if taught_only else None)
            if distributed.is_main():
                from rl.report import page, run, tables  # matplotlib takes a second, and training needs none

                table, report = tables.table_text(run.read(directory.path)), page.write(directory.path)
                display.say(f"\n{table}\n\nReport: {report}")

    return command.guarded("rl.train", arguments, work)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    options = command_parser(
        "rl.train",
        DESCRIPTION,
        "keys and their defaults (those in FILE go before them, KEY=VALUE before both):\n\n"
        f"{_settings()}\n\nexamples:\n{textwrap.indent(EXAMPLES, '  ')}",
    )
    command.add_path(options, "--config", "FILE", "YAML file of the run (default: the shipped turns.yaml)")
    options.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings that override the file")
    command.add_path(options, "--run", "DIR", "directory of the run (default: runs/<name of FILE>)")
    options.add_argument(
        "--until",
        choices=["warm_start"],
        help="stop after the supervised start; the policy is in <run>/final, and the same command without this option "
        "continues with the rounds",
    )
    command.add_job_options(options)
    return options


def _settings() -> str:
    """Return all keys, section by section, in 80 columns: default, meaning, and the words to choose from."""
    blocks = []
    for name, section in config_.sections():
        lines = [textwrap.fill(f"{name}: {str(section.__doc__).splitlines()[0]}", 79)] if name else []
        for key, field in config_.settings(section).items():
            value, words = config_.as_override(field.default), ", ".join(config_.words(field.annotation))
            line = f"{name}.{key} = {value}  # {field.description}{f' ({words})' if words else ''}".removeprefix(".")
            lines.append(textwrap.fill(line, 79, initial_indent="  ", subsequent_indent="      "))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


if __name__ == "__main__":
    sys.exit(main())

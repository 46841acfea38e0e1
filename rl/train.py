"""The command `python -m rl.train`: makes or resumes a run, and shows what came of it."""

import sys

from rl import command, distributed, forecast
from rl.config import Config
from rl.rounds import execute
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display

DESCRIPTION = """\
Trains a policy to plan paths for several agents on frozen lakes, in rounds:
after each, the policy reads the evidence of its own failures and designs the
environment of the next.

Without arguments: a small model that is shipped, minutes on two CPU cores,
results in runs/tiny. A run that was stopped or killed goes on when the same
command is given again."""
EXAMPLES = """\
python -m rl.train
python -m rl.train --run runs/seed1 seed=1 grpo.learning_rate=2e-4
python -m rl.train --config configs/qwen3-4b.yaml model.path=models/Qwen3-4B"""


def main(arguments: list[str] | None = None) -> int:
    """Trains, or goes on with the run in its directory; returns the exit code, see `rl.command.guarded`."""

    def work(config: Config, directory: RunDirectory, display: Display, stop: Stop) -> None:
        others = forecast.configurations(config)
        execute(config, directory, display, stop)
        show_results(directory, display)
        if others and distributed.is_main() and (table := forecast.hours(directory.path, others)):
            display.say(f"\n{table.to_text()}")

    return command.run("rl.train", DESCRIPTION, EXAMPLES, arguments, work)


def show_results(directory: RunDirectory, display: Display, policy: str = "") -> None:
    """Shows the table of a run, the line `policy` and where its report is, which is written here; main process only."""
    if distributed.is_main():
        from rl.report import page, tables  # matplotlib takes a second, and training needs none

        table, path = tables.table_text(directory.path), page.write(directory.path)
        display.say(f"\n{table}\n\n{policy}Report: {path}")


if __name__ == "__main__":
    sys.exit(main())

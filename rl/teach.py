"""The command `python -m rl.teach`: teaches a language model to design, from what designs did."""

import argparse
import contextlib
import dataclasses
import sys
from pathlib import Path

from jaxlake.commands import command_parser, local_path
from rl import command, teaching
from rl import config as config_
from rl.config import Config, ConfigError
from rl.grpo.optimizer import make_optimizer
from rl.policy import Policy
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.saving import restore
from rl.run.signals import Stop
from rl.run.state import TrainState
from rl.run.tracking import Display

DESCRIPTION = """\
Teaches an environment engineer from measured gains: it sees, of states that
python -m rl.branch --config trained from, the designs that gained most
(warm_start.steps updates). The thought before a design stays a reading of the
table.

Rerun the same command to resume."""
EXAMPLES = """\
python -m rl.teach --branches runs/states
python -m rl.teach --branches runs/states --run runs/b warm_start.steps=400"""


def main(arguments: list[str] | None = None) -> int:
    """Teach; return the exit code, see `rl.command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = command.parse(_parser(), arguments)

    def work(stop: Stop) -> None:
        config = config_.load(options.config or command.shipped("teach.yaml"), options.overrides)
        if config.plays:
            raise ConfigError("student.kind = network writes no designs; a language model is taught")
        with contextlib.closing(RunDirectory(options.run, config)) as directory, Display() as display:
            _teach(config, directory, options.branches, display, stop)

    return command.guarded("rl.teach", arguments, work)


@dataclasses.dataclass
class _Engineer:
    """A language model that is taught to design: a policy without rounds."""

    policy: Policy
    state: TrainState

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder."""
        self.policy.save(folder, self.state.parameters)


def _teach(config: Config, directory: RunDirectory, branches: Path, display: Display, stop: Stop) -> None:
    with stop.interrupt_immediately():
        policy, parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
        display.say(policy.describe(parameters))
        states = teaching.read_states(branches, policy)
        optimizer = make_optimizer(config.warm_start, config.warm_start.steps)
        optimizers = dict.fromkeys(("warm_start", "finished"), optimizer)
        engineer = _Engineer(policy, restore(policy, parameters, optimizers, directory.checkpoints, display))
        del parameters
    with Recorder(directory, display, stop, engineer) as recorder:
        teaching.show_best(policy, engineer.state, recorder, optimizer, states)
        recorder.export("final")
        engineer.state.progress.stage = "finished"
        recorder.save()
    display.say(f"The engineer: {directory.path / 'final'}")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("rl.teach", DESCRIPTION, "")
    command.add_config_options(parser, EXAMPLES)
    parser.add_argument(
        "--branches", type=local_path, required=True, metavar="DIR", help="folder of python -m rl.branch --config"
    )
    parser.add_argument(
        "--run",
        type=local_path,
        default=Path("runs/teach"),
        metavar="DIR",
        help="directory of the run (default: runs/teach)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

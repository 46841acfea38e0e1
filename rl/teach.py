"""The command `python -m rl.teach`: teaches a language model to design, from what designs did."""

import argparse
import contextlib
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
from rl.run.tracking import Display, Meter, Profiler, Trackers

DESCRIPTION = """\
Teaches an environment engineer from measured gains. First it sees, of states
that python -m rl.branch --config trained from, the designs that gained most
(warm_start.steps updates). Then it writes designs of its own, a network is
trained on each from the state, and GRPO makes those likelier that gained more
than others in the same state (--steps). The thought before a design stays a
reading of the table.

Stopped or killed, it goes on when the same command is given again; with more
--steps also when it is done."""
EXAMPLES = """\
python -m rl.teach --branches runs/states
python -m rl.teach --branches runs/states --steps 0 --run runs/supervised
python -m rl.teach --branches runs/states --run runs/b grpo.samples=16"""


def main(arguments: list[str] | None = None) -> int:
    """Teach; return the exit code, see `rl.command.guarded`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = command.parse(_parser(), arguments)

    def work(stop: Stop) -> None:
        if options.steps < 0:
            raise ConfigError(f"--steps {options.steps}: must be at least 0")
        config = config_.load(options.config or command.shipped("teach.yaml"), options.overrides)
        if config.plays:
            raise ConfigError("student.kind = network writes no designs; a language model is taught")
        with contextlib.closing(RunDirectory(options.run, config)) as directory, Display() as display:
            _teach(config, directory, options.branches, options.steps, display, stop)

    return command.guarded("rl.teach", arguments, work)


def _teach(config: Config, directory: RunDirectory, branches: Path, steps: int, display: Display, stop: Stop) -> None:
    with stop.at_once():
        policy, parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
        display.say(policy.describe(parameters))
        states = teaching.read_states(branches, policy)
        shown = make_optimizer(config.warm_start, config.warm_start.steps)
        explored = make_optimizer(config.grpo, steps)
        optimizers = {"warm_start": shown, "rounds": explored}
        trackers = Trackers(config, directory.path, display.say)
        profiler = Profiler(config.tracking, directory.path)
        state = restore(policy, parameters, optimizers, directory.checkpoints, display)
        del parameters
    directory.create()
    directory.cut_logs(state.progress)
    with trackers, profiler:
        recorder = Recorder(directory, display, stop, trackers, Meter(), profiler)

        def save(folder: Path) -> None:
            policy.save(folder, state.parameters)

        if state.progress.stage == "warm_start":
            if config.warm_start.steps:
                teaching.show_best(policy, state, recorder, shown, states)
            state.begin_rounds(explored, policy)
            recorder.export(save, "shown")
            recorder.save(state)
        teaching.explore(policy, state, recorder, explored, states, steps)
        recorder.export(save, "final")
        recorder.save(state)
    display.say(f"The engineer: {directory.path / 'final'}")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("rl.teach", DESCRIPTION, "")
    command.add_config_options(parser, EXAMPLES)
    parser.add_argument(
        "--branches", type=local_path, required=True, metavar="DIR", help="folder of python -m rl.branch --config"
    )
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="steps of GRPO (default: 60)")
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

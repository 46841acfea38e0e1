"""The command `python -m rl.train`: makes or resumes a run, and shows what came of it."""

import sys
from typing import Literal

import numpy as np

from engineer.evidence import environment
from rl import command, distributed, sft
from rl.config import Config, ConfigError
from rl.grpo.optimizer import make_optimizer
from rl.policy import Policy
from rl.rounds import check_room, planned_updates, run_rounds
from rl.run.boards import mixed_boards
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.run import Run
from rl.run.signals import Stop
from rl.run.state import Standing, restore
from rl.run.tracking import Display, Meter, Profiler, Trackers

DESCRIPTION = """\
Trains a policy to plan paths for several agents on frozen lakes, in rounds:
after each, the policy reads the evidence of its own failures and designs the
environment of the next.

Without arguments: a small model from scratch, minutes on two CPU cores,
results in runs/tiny. A run that was stopped or killed goes on when the same
command is given again."""
EXAMPLES = """\
python -m rl.train
python -m rl.train --run runs/seed1 seed=1 grpo.learning_rate=2e-4
python -m rl.train --config configs/qwen3-4b.yaml model.path=models/Qwen3-4B"""


def main(arguments: list[str] | None = None) -> int:
    """Trains, or goes on with the run in its directory; returns the exit code, see `rl.command.guarded`."""

    def work(config: Config, directory: RunDirectory, display: Display, stop: Stop) -> None:
        execute(config, directory, display, stop)
        if distributed.is_main():
            from rl.report import page, tables  # matplotlib takes a second, and training needs none

            display.say(f"\n{tables.table_text(directory.path)}\n\nReport: {page.write(directory.path)}")

    return command.run("rl.train", DESCRIPTION, EXAMPLES, arguments, work)


def execute(
    config: Config,
    directory: RunDirectory,
    display: Display,
    stop: Stop,
    until: Literal["rounds", "finished"] | int = "finished",
) -> None:
    """Trains from wherever the directory stands until a stage begins, and leaves the policy in ``final/`` then.

    Args:
      until: "rounds" does the warm start alone, a number goes on until so many rounds are finished; what comes after
        it can still be done, by another call.

    Raises:
      ConfigError: for a mistake of the user's; nothing is written if it is found before the first step.
      RunError: if the run or its disk cannot go on.
      Interrupted: after Ctrl-C or SIGTERM, with everything saved.
    """
    saved = directory.checkpoints.progress()
    if saved is None and directory.has_rounds():
        raise ConfigError(
            f"{directory.path}: has steps of rounds but no checkpoint to go on from; choose another with --run, "
            "or delete this one"
        )
    if saved is not None and saved.stage == "finished":
        display.say(f"{directory.path} is finished; to train anew choose another directory with --run")
        return
    if saved is not None and saved.stage == until:
        display.say(f"{directory.path}: the warm start is done; python -m rl.train goes on with the rounds")
        return
    with stop.at_once():
        policy, parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
        display.say(policy.describe(parameters))
        check_room(policy)
        trackers = Trackers(config, directory.path, display.say)
        profiler = Profiler(config.tracking, directory.path)
        rounds = make_optimizer(config.grpo, planned_updates(config))
        optimizers = {
            "warm_start": make_optimizer(config.warm_start, config.warm_start.steps),
            "rounds": rounds,
            "finished": rounds,
        }
        standing = restore(policy, parameters, optimizers, directory, display)
        if saved is not None:
            display.say(f"Goes on in {directory.path}: {_where(standing)}")
        supervise = standing.progress.stage == "warm_start" and config.warm_start.steps > 0
        display.stage("boards", 1 + supervise)
        settings = config.validation
        key = make_key(directory.validation_seed, Purpose.VALIDATION_SET)
        boards = mixed_boards(config, settings.holes, settings.wait, key, settings.instances)
        validation = policy.prompts(boards.instances)
        display.advance("validation")
        if supervise:
            plans = sft.plan_examples(policy, boards.instances, display)
            display.advance("warm start")

    directory.create()
    directory.cut_logs(standing.progress)
    with trackers, profiler:
        run = Run(
            config=config,
            directory=directory,
            display=display,
            policy=policy,
            parameters=standing.parameters,
            optimizer_state=standing.optimizer_state,
            reference=standing.reference,
            progress=standing.progress,
            pending=standing.pending,
            validation=validation,
            optima=np.asarray(boards.solutions.cost),
            stop=stop,
            trackers=trackers,
            meter=Meter(),
            profiler=profiler,
            environment=environment(boards),
        )
        if run.progress.stage == "warm_start":
            if run.progress.step == 0:
                run.validate("before", occasion=0)
            if supervise:
                sft.warm_start(run, optimizers["warm_start"], plans)
                run.note_validation("warm_start", run.validate("warm_start", occasion=1))
            if until == "rounds":
                run.export("final")
            run.begin_rounds(rounds)
        if until != "rounds":
            run_rounds(run, rounds, config.rounds.count if until == "finished" else until)
            run.export("final")
        if until == "finished":
            run.progress.stage = "finished"
            run.save()


def _where(standing: Standing) -> str:
    progress = standing.progress
    stage = "warm start" if progress.stage == "warm_start" else f"round {progress.round}"
    within = f" and update {progress.update} of the next" if standing.pending else ""
    return f"{stage}, after step {progress.step}{within}"


if __name__ == "__main__":
    sys.exit(main())

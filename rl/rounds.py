"""The loop of rounds: design an environment, train in it, see the failures, design the next (paper, Algorithm 1)."""

from typing import Literal

from engineer import PastRound, Proposal, RandomEngineer
from engineer.proposal import distance, to_answer
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from rl import distributed, engineering, students
from rl.config import Config, ConfigError
from rl.run.checkpoint import fingerprint
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.progress import Progress
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.tracking import Display, Meter, Profiler, Trackers
from rl.students import Student


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
      Interrupted: after a signal, with everything saved.
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
        student = students.create(config)
        display.say(student.describe())
        engineering.check(config)
        student.check()
        engineering.check_server(config, display.say)
        trackers = Trackers(config, directory.path, display.say)
        profiler = Profiler(config.tracking, directory.path)
        student.restore(directory.checkpoints, display)
        if saved is not None:
            display.say(f"Goes on in {directory.path}: {student.state}")
            for change in directory.changes:
                display.say(change)
        progress = student.state.progress
        student.prepare(directory.validation_seed, display)

    directory.create()
    directory.cut_logs(progress)
    with trackers, profiler:
        recorder = Recorder(directory, display, stop, trackers, Meter(), profiler)
        if progress.stage == "warm_start":
            # Not what a warm start changes: untaught, each answer goes on to its last token, 25 s of the tiny run.
            if progress.step == 0 and not config.warm_start.steps:
                student.validate(recorder, "before", occasion=0)
            student.warm_start(recorder)
            if until == "rounds":
                recorder.export(student.save, "final")
            recorder.save(student.state)
        if until != "rounds":
            run_rounds(student, recorder, config.rounds.count if until == "finished" else until)
            recorder.export(student.save, "final")
        if until == "finished":
            progress.stage = "finished"
            recorder.save(student.state)


def run_rounds(student: Student, recorder: Recorder, until: int) -> None:
    """Algorithm 1, from wherever the run stands: what is trained on next is designed for the student as it is.

    Args:
      until: so many rounds are finished in the end.
    """
    state, progress = student.state, student.state.progress
    for k in range(progress.round, until):
        if progress.lake is None:
            proposal = design(student, recorder, k)
            progress.begin_round(proposal.projected.to_dict(), proposal.thinking)
        assert progress.lake is not None
        requested = LakeConfig.from_dict(progress.lake)
        boards = build(student, recorder, requested, k)
        student.train(recorder, boards, k)
        training = student.training_evidence(boards, requested)
        evidence = student.validate(recorder, f"rounds/{k}", occasion=2 + k, training=training)
        recorder.keep_best(state, student.save, f"rounds/{k}", evidence)
        progress.end_round(boards.realised(), evidence.to_json())
        recorder.save(state)
        recorder.check_stop(state)


def design(student: Student, recorder: Recorder, k: int) -> Proposal:
    """Round k's configuration: a random draw for round 0, then what the engineer answers to the evidence.

    Where nothing that a model answers holds a configuration, the previous round's stays in force, and the run goes on.

    Raises:
      ConfigError: if the engineer's server refuses for good, or a pilot finds no solvable board.
      Interrupted: with everything saved as it was before.
    """
    config, directory, progress = student.config, recorder.directory, student.state.progress
    key = make_key(config.seed, Purpose.DESIGN, k)
    history = past_rounds(progress)
    if k == 0:
        proposal = RandomEngineer(config.lake.kinds).propose(None, history, key)
    else:
        proposal = engineering.make(student, recorder, k).propose(history[-1].evidence, history, key)
        if not distributed.is_same(proposal.raw):
            raise RuntimeError(f"round {k}: the engineer's proposal is not the same on all processes")
        announce(recorder.display, k, proposal)
    directory.write(f"rounds/{k}/config.json", proposal.projected.to_dict())
    author = fingerprint(student.author(proposal.engineer))
    directory.write(f"rounds/{k}/proposal.json", proposal.to_json() | {"parameters": author})
    return proposal


def past_rounds(progress: Progress) -> list[PastRound]:
    """Return the finished rounds of a run as an engineer reads them."""
    return [PastRound.from_json(past) for past in progress.history]


def announce(display: Display, k: int, proposal: Proposal) -> None:
    """Shows what the engineer designed, and what became of it."""
    who = "the policy" if proposal.engineer == "checkpoint" else proposal.engineer
    projected = "(nothing)" if proposal.errors else to_answer(proposal.projected)
    display.say(f"round {k}: {who} designs\n{proposal.raw or projected}")
    if proposal.fallback:
        display.say(
            f"round {k}: no configuration in {proposal.attempts} attempts ({proposal.errors[-1]}); "
            f"round {k - 1}'s stays in force"
        )
    if proposal.gate and proposal.gate["verdict"] == "refused":
        display.say(
            f"round {k}: refused, as {proposal.gate['without_signal']:.0%} of the pilot's boards are answered all "
            f"validly or all invalidly (engineer.gate.bound = {proposal.gate['bound']:g}); "
            f"{proposal.gate['action']} by round {k - 1}'s"
        )


def build(student: Student, recorder: Recorder, lake: LakeConfig, k: int) -> Dataset:
    """Round k's instances; what could be realised of `lake` goes beside the proposal.

    Raises:
      ConfigError: if no solvable board is found.
    """
    recorder.display.stage(f"round {k}: boards", 1)
    with recorder.interruptible(student.state):
        data = student.build(lake, k)
    realised = data.realised()
    outcome = {"realised": realised, "lowered": data.shortfalls()}
    outcome["distances"] = {"projected_realised": distance(lake, realised)}
    recorder.directory.amend(f"rounds/{k}/proposal.json", outcome)
    return data

"""The loop of rounds: design an environment, train in it, see the failures, design the next (paper, Algorithm 1)."""

from engineer import Engineer, PastRound, Proposal
from engineer.proposal import to_answer
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from rl import distributed, students
from rl.config import Config, ConfigError, refuse_difference
from rl.judge.validation import validate
from rl.loop.engineer_factory import check, make_engineer, pin_model
from rl.model.policy import pin
from rl.model.sharding import fingerprint
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import Student, Writer


def execute(
    config: Config, directory: RunDirectory, display: Display, stop: Stop, stop_after: int | None = None
) -> None:
    """Train from the directory's saved state to the end, and leave the policy in ``final/``.

    Args:
      stop_after: number of rounds to run. 0 runs only the warm start; None runs all rounds and marks the run finished.

    Raises:
      ConfigError: for a mistake of the user's; nothing is written if it is found before the first step.
      RunError: if the run or its disk fails.
      Interrupted: after a signal, with everything saved.
    """
    saved, path = directory.checkpoints.latest(), directory.path
    if saved is None and (path / "rounds").exists():
        raise ConfigError(
            f"{path}: has rounds but no checkpoint to resume from; choose another with --run, or delete this one"
        )
    if saved is not None and saved.progress.stage == "finished":
        display.say(f"{path} is finished; to train anew choose another directory with --run")
        return
    if saved is not None and saved.progress.stage == "rounds" and stop_after == 0:
        display.say(f"{path}: the warm start is done; the same command without --until continues")
        return
    with stop.interrupt_immediately():
        if saved is not None:
            pinned = {
                "student": pin(config.student, saved.source),
                "engineer": pin_model(config.engineer, saved.source),
            }
            config = config.model_copy(update=pinned)
        sources = check(config)
        if saved is not None:
            was = {name: saved.source.get(name, digest) for name, digest in sources.items()}
            refuse_difference(path, was, sources, "restore what it was, or choose another directory with --run")
        student = students.create(config)
        display.say(student.description)
        recorder = Recorder(directory, display, stop, student, sources)
        engineer = make_engineer(student, recorder)
        student.restore(directory, display)
        if saved is not None:
            display.say(f"Resumes {path}: {student.state.progress}")

    progress = student.state.progress
    with recorder:
        if progress.stage == "warm_start":
            # No validation of an untaught policy: each answer continues to its last token, 25 s of the tiny run.
            if progress.step == 0 and not config.student.warm_start.steps:
                validate(student, recorder, "before", occasion=0)
            if isinstance(student, Writer):
                student.warm_start(recorder)
            progress.stage, progress.step = "rounds", 0
            if stop_after == 0:
                recorder.export("final")
            recorder.save()
        if stop_after != 0:
            run_rounds(student, engineer, recorder, stop_after or config.rounds.count)
            recorder.export("final")
        if stop_after is None:
            progress.stage = "finished"
            recorder.save()


def run_rounds(student: Student, engineer: Engineer, recorder: Recorder, count: int) -> None:
    """Algorithm 1, from the run's saved state: each environment is designed for the current student.

    Args:
      count: rounds that are finished in the end.
    """
    progress = student.state.progress
    for k in range(progress.round, count):
        if progress.lake is None:
            proposal = design(student, engineer, recorder)
            progress.begin_round(proposal.projected.to_dict(), proposal.thinking)
        assert progress.lake is not None
        requested = LakeConfig.from_dict(progress.lake)
        boards = build(student, recorder, requested)
        training = student.train(recorder, boards, requested)
        evidence = validate(student, recorder, f"rounds/{k}", occasion=2 + k, training=training)
        recorder.keep_best(f"rounds/{k}", evidence)
        progress.end_round(boards.realised(), evidence.to_json())
        recorder.save()
        recorder.check_stop()


def design(student: Student, engineer: Engineer, recorder: Recorder) -> Proposal:
    """Return the next round's configuration: a random draw for round 0, then what the engineer answers to the evidence.

    Where no answer of a model contains a configuration, the previous round's stays in force, and the run continues.

    Raises:
      ConfigError: if the engineer's server refuses for good.
      Interrupted: with everything saved as it was before.
    """
    config, progress = student.config, student.state.progress
    history, k = [PastRound.from_json(past) for past in progress.history], progress.round
    key = make_key(config.seed, Purpose.DESIGN, k)
    author = student.state.parameters
    if k and isinstance(student, Writer):
        author = student.designer_parameters(config.engineer.kind)
    author = fingerprint(author)  # before an engineer that learns changes them
    if k == 0:
        proposal = Proposal(engineer="random", projected=LakeConfig.random(config.lake.kinds, key))
    else:
        proposal = engineer.propose(history[-1].evidence, history, key)
        if not distributed.is_same(proposal.raw):
            raise RuntimeError(f"round {k}: the engineer's proposal is not the same on all processes")
        announce(recorder.display, k, proposal)
    recorder.directory.write(f"rounds/{k}/config.json", proposal.projected.to_dict())
    recorder.directory.write(f"rounds/{k}/proposal.json", proposal.to_json() | {"parameters": author})
    return proposal


def announce(display: Display, k: int, proposal: Proposal) -> None:
    """Show what the engineer designed, and what became of it."""
    who = "the policy" if proposal.engineer == "checkpoint" else proposal.engineer
    projected = "(nothing)" if proposal.errors else to_answer(proposal.projected)
    display.say(f"round {k}: {who} designs\n{proposal.raw or projected}")
    if proposal.fallback:
        display.say(
            f"round {k}: no configuration in {proposal.attempts} attempts ({proposal.errors[-1]}); "
            f"round {k - 1}'s stays in force"
        )


def build(student: Student, recorder: Recorder, lake: LakeConfig) -> Dataset:
    """Return the round's boards; what could be realised of the configuration goes beside the proposal."""
    k = student.state.progress.round
    recorder.display.stage(f"round {k}: boards", 1)
    with recorder.save_on_interrupt():
        boards = student.build(lake)
    outcome = {"realised": boards.realised(), "lowered": boards.shortfalls()}
    recorder.directory.amend(f"rounds/{k}/proposal.json", outcome)
    return boards

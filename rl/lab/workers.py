"""The work on a comparison: its runs made in one process, or by several that meet in its folder alone."""

import contextlib
import glob
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rl.config import RunError
from rl.lab.comparison import EvaluationSection
from rl.lab.held_out import evaluate
from rl.lab.runs import RunPlan, fork
from rl.loop.rounds import execute
from rl.run.directory import InUse, RunDirectory
from rl.run.signals import Interrupted, Stop
from rl.run.tracking import Display

PATIENCE = 1.0
"""Seconds between two looks at what other processes do."""


def run_all(plans: Sequence[RunPlan], settings: EvaluationSection, display: Display, stop: Stop) -> None:
    """Make every run that no other process makes, until all are done; raises as `rl.loop.rounds.execute`."""
    while left := [plan for plan in plans if not plan.is_done]:
        ready = (plan for plan in left if plan.origin is None or plan.origin.is_done)
        if not any(attempt(plan, settings, display, stop) for plan in ready):
            with stop.interrupt_immediately():
                time.sleep(PATIENCE)


def attempt(plan: RunPlan, settings: EvaluationSection, display: Display, stop: Stop) -> bool:
    """Make a run, or resume it; False if another process works on it."""
    try:
        if plan.origin and not plan.path.exists():
            with stop.interrupt_immediately():
                fork(plan)
        with contextlib.closing(RunDirectory(plan.path, plan.config)) as directory:
            directory.claim()
            if not plan.is_done:
                display.say(f"\n{plan.path}")
                execute(plan.config, directory, display, stop, plan.stop_after)
                with stop.interrupt_immediately():
                    evaluate(plan, settings, display, stop)
    except InUse:
        return False
    return True


def run_workers(jobs: int, out: Path, plans: Sequence[RunPlan], display: Display, stop: Stop) -> None:
    """Start worker processes and wait until the runs are done; workers share the GPUs evenly.

    A signal reaches all of them, once. (They are no part of the terminal's group, or Ctrl-C would reach them twice.)
    RunError if something is left to do; where a worker fails, the others go on without it.
    """
    logs = [out / "logs" / f"worker{number}.log" for number in range(jobs)]
    display.say(f"{jobs} workers; their logs are in {out / 'logs'}")
    workers = [_start(out, log, number, jobs) for number, log in enumerate(logs)]
    display.stage("runs", len(plans), done=sum(plan.is_done for plan in plans))
    codes: list[int | None] = [None] * jobs
    sent = 0
    try:
        while None in codes:
            if stop.number != sent:
                sent = stop.number
                _send(workers, sent)
            time.sleep(0.5)
            codes = [worker.poll() for worker in workers]
            if done := sum(plan.is_done for plan in plans) - display.done:
                display.advance(steps=done)
    except BaseException as error:
        _send(workers, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
        raise
    if stop.number:
        raise Interrupted(stop.number)
    failures = [
        f"a worker failed: {_last_words(worker, log)} ({log})"
        for worker, log in zip(workers, logs, strict=True)
        if worker.returncode
    ]
    if not all(plan.is_done for plan in plans):
        raise RunError(failures[0] if failures else "the workers were stopped; rerun the same command to resume")
    for failure in failures:  # of which the others have made up
        display.say(failure)


def _start(out: Path, log: Path, number: int, jobs: int) -> subprocess.Popen:
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "rl.compare", "--worker", "--out", str(out)],
            env=os.environ | device(number, jobs),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _last_words(worker: subprocess.Popen, log: Path) -> str:
    if worker.returncode < 0:
        return f"ended by {signal.Signals(-worker.returncode).name}"
    return (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"])[-1]


def _send(workers: Sequence[subprocess.Popen], number: int) -> None:
    for worker in workers:
        if worker.poll() is None:
            worker.send_signal(number)


def device(number: int, jobs: int) -> dict[str, str]:
    """Return the environment variables of a worker: its own GPU, and how much of the memory it may take."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    installed = sorted(path.removeprefix("/dev/nvidia") for path in glob.glob("/dev/nvidia[0-9]*"))
    gpus = installed if given is None else [gpu for gpu in given.split(",") if gpu]
    if not gpus:
        return {}
    sharing = -(-jobs // len(gpus))
    own = {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]}
    return own if sharing == 1 else own | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / sharing:.3f}"}

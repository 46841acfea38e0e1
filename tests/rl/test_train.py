"""The command as a user gives it, at a size that takes seconds: whole, stopped, in two processes, and misused."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disturb import load_benchmark
from pairs import free_port

from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.train import main

pytestmark = pytest.mark.usefixtures("quick_compilation")

kill_anywhere = load_benchmark("kill_anywhere")


@pytest.fixture(scope="session")
def workspace(tmp_path_factory) -> Path:
    """A folder with the micro configuration, and a compilation cache that the runs share."""
    folder = tmp_path_factory.mktemp("train")
    kill_anywhere.write_micro(folder, "exact")
    return folder


def arguments(workspace: Path, run: str) -> list[str]:
    return ["--config", str(workspace / "micro.yaml"), "--run", str(workspace / run)]


def start(workspace: Path, run: str, *job: str, devices: int = 1) -> subprocess.Popen:
    """The command in a process of its own; `job` says which one it is of several."""
    environment = os.environ | {
        # Nearly all the time of such a run is compilation: 42 s of CPU, or 23 without XLA's optimizations.
        "XLA_FLAGS": f"--xla_backend_optimization_level=0 --xla_force_host_platform_device_count={devices}",
        "NPROC": str(4 * devices),  # see conftest.py
        "JAX_COMPILATION_CACHE_DIR": str(workspace / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-m", "rl.train", *arguments(workspace, run), *job]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> str:
    """What it printed, without the greetings of the library that carries collectives between CPUs."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("[Gloo]"))


@pytest.fixture(scope="session")
def unbroken(workspace) -> str:
    """What the command printed for a run that nobody disturbed, in the folder `unbroken`."""
    whole = kill_anywhere.go(workspace, "unbroken", workspace / "unbroken.jsonl")
    assert whole.code == 0, whole.output
    return whole.output


@pytest.mark.heavy
def test_a_run_goes_through_and_leaves_what_it_promises(workspace, unbroken):
    run = workspace / "unbroken"
    assert "Report: " in unbroken
    assert "R2" in unbroken or "round 2" in unbroken
    steps = rows(workspace, "unbroken")
    assert [(row["phase"], row["round"], row["step"]) for row in steps] == [
        *(("warm_start", 0, step) for step in range(1, 7)),
        *(("round", k, step) for k in range(3) for step in range(1, 5)),
    ]
    assert all(row["update_skipped"] == 0 for row in steps)
    for k in range(3):
        made = {path.name for path in (run / "rounds" / str(k)).iterdir()}
        assert {"config.json", "proposal.json", "evidence.json", "samples.json"} <= made
        lake = LakeConfig.from_dict(json.loads((run / "rounds" / str(k) / "config.json").read_text()))
        assert lake.kinds == (Kind.of(3), Kind.of(4))
    assert (run / "report" / "report.html").exists()
    assert not list(run.rglob("*.partial"))
    best = json.loads((run / "best" / "validation.json").read_text())
    places = {"warm_start": run / "warm_start"} | {k: run / "rounds" / str(k) for k in range(3)}
    shares = {k: json.loads((place / "evidence.json").read_text())["sampled_valid"] for k, place in places.items()}
    assert shares[best["round"]] == best["sampled_valid"] == max(shares.values())
    assert (run / "best" / "model.safetensors").exists()
    assert len(list((run / "checkpoints").iterdir())) == 2
    proposals = [json.loads((run / "rounds" / str(k) / "proposal.json").read_text()) for k in range(3)]
    assert proposals[0]["engineer"] == "random" and proposals[0]["raw"] == ""
    assert all(p["engineer"] == "checkpoint" and not p["fallback"] for p in proposals[1:])
    assert len({p["parameters"] for p in proposals}) == 3  # those of the moment


@pytest.mark.heavy
def test_a_signal_anywhere_saves_and_stops_within_ten_seconds(workspace, unbroken):
    """Ctrl-C exits 130, SIGTERM 0; resumed, the run ends as the unbroken one."""
    trace, log = kill_anywhere.read(workspace / "unbroken.jsonl"), workspace / "stopped.jsonl"
    # Each where the process has compiled what it does: a compilation is waited for, and takes as long as it takes.
    for kind, rows in (("warm start", 3), ("rollout", 7), ("validation", 10)):
        number = signal.SIGINT if kind == "warm start" else signal.SIGTERM
        target = next(moment for moment in trace if moment.kind == kind and moment.rows >= rows)
        target = dataclasses.replace(target, seconds=0.0)
        stopped = kill_anywhere.go(workspace, "stopped", log, target, number)
        assert stopped.code == (130 if number == signal.SIGINT else 0), stopped.output
        assert "Stopped and saved. To resume: python -m rl.train --config" in stopped.output, stopped.output
        assert "Traceback" not in stopped.output
        print(f"{signal.Signals(number).name} in {kind}: {stopped.seconds:.1f} s, after {stopped.said}")
        assert stopped.seconds < 10 * max(1.0, os.getloadavg()[0] / os.cpu_count())  # other tests take their part
    assert kill_anywhere.go(workspace, "stopped", log).code == 0
    assert kill_anywhere.differences(workspace / "unbroken", workspace / "stopped") == []


def rows(workspace: Path, run: str) -> list[dict]:
    return [json.loads(line) for line in (workspace / run / "metrics.jsonl").read_text().splitlines()]


def assert_close(ours: list[dict], theirs: list[dict]) -> None:
    """The same steps with the same numbers, but for the order in which they were added up.

    Adam's first steps make a whole step of a rounding error in a gradient of nearly 0, which the largest ratio shows.
    """
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            rel = 2e-2 if name.endswith("_max") else 1e-4
            close = mine[name] == other[name] or mine[name] == pytest.approx(other[name], rel=rel, abs=1e-4)
            assert close, (name, mine, other)


@pytest.mark.heavy
def test_two_processes_go_on_with_what_one_began_and_a_signal_to_either_stops_both(workspace, unbroken):
    finish(start(workspace, "pair", "--until", "warm_start"))
    job = ("--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2", "--process")
    processes = [start(workspace, "pair", *job, str(me), devices=4) for me in range(2)]
    deadline = time.monotonic() + 500
    while len(rows(workspace, "pair")) == 6 and processes[0].poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGTERM)
    first, second = (finish(process) for process in processes)
    assert "8 x cpu" in first and "Resumes" in first and "round 0, after step 0" in first
    assert "Stopped and saved. To resume: python -m rl.train --config" in first
    assert second.strip() == ""
    done = rows(workspace, "pair")
    assert 6 < len(done) < 18
    assert_close(done, rows(workspace, "unbroken")[: len(done)])


@pytest.mark.heavy
def test_a_run_whose_checkpoints_were_deleted_does_not_begin_anew(workspace, unbroken, capsys):
    shutil.copytree(workspace / "unbroken", workspace / "tidied", ignore=shutil.ignore_patterns("checkpoints"))
    before = (workspace / "tidied" / "metrics.jsonl").read_bytes()
    assert main(arguments(workspace, "tidied")) == 2
    assert "no checkpoint to resume from" in capsys.readouterr().err
    assert (workspace / "tidied" / "metrics.jsonl").read_bytes() == before

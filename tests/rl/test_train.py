"""The command as a user gives it, at a size that takes seconds: whole, and stopped in two processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disturb import load_script
from pairs import TWO_PROCESSES, free_port

from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

pytestmark = pytest.mark.heavy

kill_anywhere = load_script("benchmarks/kill_anywhere.py")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    """A folder with the micro configuration and a run that nobody disturbed; its cache is that of all runs."""
    folder = tmp_path_factory.mktemp("train")
    kill_anywhere.write_micro(folder, "exact")
    whole = kill_anywhere.go(folder, "unbroken", folder / "unbroken.jsonl")
    assert whole.code == 0 and "Report: " in whole.output, whole.output
    return folder


def rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_goes_through_and_leaves_what_it_promises(workspace):
    run = workspace / "unbroken"
    steps = rows(run)
    assert [(row["phase"], row["round"], row["step"]) for row in steps] == [
        *(("warm_start", 0, step) for step in range(1, 7)),
        *(("round", k, step) for k in range(3) for step in range(1, 5)),
    ]
    assert all(row["update_skipped"] == 0 for row in steps)
    rounds = [run / "rounds" / str(k) for k in range(3)]
    for folder in rounds:
        made = {path.name for path in folder.iterdir()}
        assert {"config.json", "proposal.json", "evidence.json", "samples.json"} <= made
        lake = LakeConfig.from_dict(json.loads((folder / "config.json").read_text()))
        assert lake.kinds == (Kind.of(3), Kind.of(4))
    assert (run / "report" / "report.html").exists() and not list(run.rglob("*.partial"))
    best = json.loads((run / "best" / "validation.json").read_text())
    places = {"warm_start": run / "warm_start"} | dict(enumerate(rounds))
    shares = {k: json.loads((place / "evidence.json").read_text())["sampled_valid"] for k, place in places.items()}
    assert shares[best["round"]] == best["sampled_valid"] == max(shares.values())
    assert (run / "best" / "model.safetensors").exists()
    assert len(list((run / "checkpoints").iterdir())) == 2
    first, *designed = (json.loads((folder / "proposal.json").read_text()) for folder in rounds)
    assert first["engineer"] == "random" and first["raw"] == ""
    assert all(p["engineer"] == "checkpoint" and not p["fallback"] for p in designed)
    assert len({p["parameters"] for p in (first, *designed)}) == 3  # those of the moment


def start(workspace: Path, *options: str, devices: int = 4) -> subprocess.Popen:
    """The command on the run `pair`, in a process of its own; nearly all of its time is compilation."""
    environment = (
        os.environ
        | TWO_PROCESSES
        | {
            "XLA_FLAGS": f"--xla_backend_optimization_level=0 --xla_force_host_platform_device_count={devices}",
            "JAX_COMPILATION_CACHE_DIR": str(workspace / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
    )
    paths = ["--config", str(workspace / "micro.yaml"), "--run", str(workspace / "pair")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-m", "rl.train", *paths, *options], env=environment, **pipes)


def finish(process: subprocess.Popen) -> str:
    """What it printed, without the greetings of the library that carries collectives between CPUs."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("[Gloo]"))


def test_two_processes_go_on_with_what_one_began_and_a_signal_to_either_stops_both(workspace):
    """With the same numbers, but for the order in which they were added up.

    Adam's first steps make a whole step of a rounding error in a gradient of nearly 0, which the largest ratio shows.
    """
    run = workspace / "pair"
    finish(start(workspace, "--until", "warm_start", devices=1))
    job = ("--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2", "--process")
    processes = [start(workspace, *job, str(me)) for me in range(2)]
    deadline = time.monotonic() + 500
    while len(rows(run)) == 6 and processes[0].poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGTERM)
    first, second = map(finish, processes)
    assert "8 x cpu" in first and "Resumes" in first and "round 0, after step 0" in first
    assert "Stopped and saved. To resume: python -m rl.train --config" in first
    assert second.strip() == ""
    done = rows(run)
    assert 6 < len(done) < 18
    for ours, alone in zip(done, rows(workspace / "unbroken"), strict=False):
        assert ours.keys() == alone.keys()
        for name, value in alone.items():
            rel = 2e-2 if name.endswith("_max") else 1e-4
            close = ours[name] == value or ours[name] == pytest.approx(value, rel=rel, abs=1e-4)
            assert close, (name, ours, alone)

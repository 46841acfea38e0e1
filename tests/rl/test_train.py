"""The command as a user gives it, at a size that takes seconds: whole, killed, stopped, damaged, and misused."""

import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from pairs import free_port

from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.command import guarded
from rl.run.signals import Interrupted, Stop
from rl.train import main

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROOT = Path(__file__).parents[2]


def load_benchmark(name: str) -> ModuleType:
    """A script of benchmarks/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kill_anywhere = load_benchmark("kill_anywhere")


@pytest.fixture(scope="session")
def workspace(tmp_path_factory) -> Path:
    """A folder with the micro configuration, and a compilation cache that the runs share."""
    folder = tmp_path_factory.mktemp("train")
    kill_anywhere.write_micro(folder, "exact")
    return folder


def command(workspace: Path, run: str, *overrides: str) -> list[str]:
    return [
        *(sys.executable, "-m", "rl.train"),
        *("--config", str(workspace / "micro.yaml"), "--run", str(workspace / run), *overrides),
    ]


def start(workspace: Path, run: str, *job: str, devices: int = 1) -> subprocess.Popen:
    """The command in a process of its own; `job` says which one it is of several."""
    environment = os.environ | {
        # Nearly all the time of such a run is compilation: 42 s of CPU, or 23 without XLA's optimizations.
        "XLA_FLAGS": f"--xla_backend_optimization_level=0 --xla_force_host_platform_device_count={devices}",
        "NPROC": str(4 * devices),  # see conftest.py
        "JAX_COMPILATION_CACHE_DIR": str(workspace / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        command(workspace, run, *job), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def start_pair(workspace: Path, run: str) -> list[subprocess.Popen]:
    """The command in two processes with four devices each."""
    job = ("--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2", "--process")
    return [start(workspace, run, *job, str(me), devices=4) for me in range(2)]


def finish(process: subprocess.Popen, code: int = 0) -> str:
    """What it printed, without the greetings of the library that carries collectives between CPUs."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("[Gloo]"))


def wait_for_step(workspace: Path, run: str, round: int, step: int, process: subprocess.Popen) -> None:
    """Until the metrics file holds that step of that round."""
    place = f'"phase": "round", "round": {round}, "step": {step},'
    metrics = workspace / run / "metrics.jsonl"
    deadline = time.monotonic() + 500
    while not (metrics.exists() and place in metrics.read_text()):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
def test_a_run_killed_three_times_ends_bit_for_bit_as_the_unbroken_one(workspace, unbroken):
    """Twenty times, of all kinds: benchmarks/kill_anywhere.py."""
    kinds = ("update", "middle of a save", "engineer decoding")
    starts = kill_anywhere.kill(workspace, "unbroken", "killed", kinds, count=3, seed=1)
    hit = [start.moment.kind for start in starts[:-1]]
    assert set(hit) == set(kinds) and starts[-1].code == 0, hit
    assert all("Traceback" not in start.output for start in starts)
    assert kill_anywhere.differences(workspace / "unbroken", workspace / "killed") == []


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


@pytest.mark.heavy
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(workspace, unbroken):
    """The last checkpoint, of the finished run, loses a file: the run ends again, from the one before."""
    run = workspace / "damaged"
    shutil.copytree(workspace / "unbroken", run)
    last = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    (last / "progress" / "metadata").unlink()
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"phase": "round", "round": 9}\n')
    output = finish(start(workspace, "damaged"))
    told = [line for line in output.splitlines() if "cannot be read (" in line]
    assert told and all(f"checkpoints/{last.name}: cannot be read ([Errno 2] No such file" in line for line in told)
    assert kill_anywhere.differences(workspace / "unbroken", run) == []


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
    finish(start(workspace, "pair_stopped", "--until", "warm_start"))
    processes = start_pair(workspace, "pair_stopped")
    wait_for_step(workspace, "pair_stopped", round=0, step=1, process=processes[0])
    processes[1].send_signal(signal.SIGTERM)
    first, second = (finish(process) for process in processes)
    assert "8 x cpu" in first and "Resumes" in first and "round 0, after step 0" in first
    assert "Stopped and saved. To resume: python -m rl.train --config" in first
    assert second.strip() == ""
    done = rows(workspace, "pair_stopped")
    assert 6 < len(done) < 18
    assert_close(done, rows(workspace, "unbroken")[: len(done)])


def arguments(workspace: Path, run: str, *overrides: str) -> list[str]:
    return command(workspace, run, *overrides)[3:]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.learn.learning_ratee=1", "nearest is student.learn.learning_rate"),
        pytest.param(
            "student.text.max_prompt_tokens=12",
            "student.text.max_prompt_tokens = 12 must be at least",
            marks=pytest.mark.heavy,
        ),
        ("mesh.fsdp=64", "must be at most the 8 devices"),
        ("validation.samples=5", "student.sampler.rows = 32: must be at least 40, as the 5 answers"),
    ],
)
def test_a_mistake_costs_one_line_and_writes_nothing(workspace, capsys, override, message):
    assert main(arguments(workspace, "mistake", override)) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (workspace / "mistake").exists()


@pytest.mark.heavy
def test_a_run_whose_checkpoints_were_deleted_does_not_begin_anew(workspace, unbroken, capsys):
    shutil.copytree(workspace / "unbroken", workspace / "tidied", ignore=shutil.ignore_patterns("checkpoints"))
    before = (workspace / "tidied" / "metrics.jsonl").read_bytes()
    assert main(arguments(workspace, "tidied")) == 2
    assert "no checkpoint to resume from" in capsys.readouterr().err
    assert (workspace / "tidied" / "metrics.jsonl").read_bytes() == before


def test_a_folder_that_is_no_run_is_left_alone(workspace, capsys):
    folder = workspace / "holiday"
    folder.mkdir()
    (folder / "photo.txt").write_text("beach")
    assert main(arguments(workspace, "holiday")) == 2
    assert "not empty and no run" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["photo.txt"]


def test_a_second_ctrl_c_stops_at_once_and_a_second_sigterm_does_not():
    with Stop().listening() as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_closed_terminal_stops_what_nohup_does_not_protect():
    def work(stop: Stop) -> None:
        with stop.interrupt_immediately():
            signal.raise_signal(signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest itself may run under nohup
    try:
        assert guarded("rl.train", [], work) == 129
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert guarded("rl.train", [], work) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_where_nothing_is_to_be_saved_a_signal_ends_the_work_at_once():
    with Stop().listening() as stop:
        with pytest.raises(Interrupted), stop.interrupt_immediately():
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("went on")
        with pytest.raises(Interrupted), stop.interrupt_immediately():
            pytest.fail("began, though a signal had come before")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OSError(28, "No space left on device", "runs/x/metrics.jsonl"), 1, "runs/x/metrics.jsonl: No space left on"),
        (PermissionError(13, "Permission denied", "runs/x/lock"), 2, "runs/x/lock: Permission denied"),
    ],
)
def test_a_disk_that_refuses_costs_one_line(capsys, error, code, line):
    def work(stop: Stop) -> None:
        raise error

    assert guarded("rl.train", [], work) == code
    told = capsys.readouterr().err
    assert told.startswith(f"error: {line}") and told.count("\n") == 1

"""A newcomer's mistakes at the command line, and signals: each is told in one line that says what to do."""

import contextlib
import io
import signal
import sys
from pathlib import Path

import pytest

import rl
from rl import command, compare, evaluate, plan, train
from rl.command import guarded
from rl.run.signals import Stop


def test_a_missing_extra_is_one_line_before_any_module_is_imported(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["-m"])  # while Python looks for the module
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "rl.train"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "flax" else name)
    package = compile(Path(rl.__file__).read_text(), rl.__file__, "exec")
    with pytest.raises(SystemExit) as exit:
        exec(package, {"__name__": "rl"})
    assert exit.value.code == 2
    assert capsys.readouterr().err == "error: flax is not installed; training needs pip install 'jaxlake[train]'\n"
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "rl"])  # which lists the commands
    exec(package, {"__name__": "rl"})
    assert capsys.readouterr().err == ""


JOB = "--processes", "2", "--coordinator"
COMPARISON, RUN = (str(command.shipped(name)) for name in ("compare/tiny.yaml", "tiny.yaml"))


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (train.main, ["--config", COMPARISON], "holds a comparison, which python -m rl.compare takes"),
        (compare.main, ["--config", RUN], "the file of a run is for python -m rl.train"),
        (train.main, ["student.learn.learning_ratee=1"], "nearest is student.learn.learning_rate"),
        (train.main, ["mesh.fsdp=64"], "must be at most the 8 devices"),
        (plan.main, ["--config", RUN, "mesh.fsdp=9"], "must be at most the 8 devices"),
        (
            train.main,
            ["--config", RUN, "--until", "warm_start", "student.warm_start.steps=0"],
            "steps = 0 must be above 0",
        ),
        (train.main, ["--coordinator", "host:1234"], "give all three or none"),
        (train.main, [*JOB, "host:1234", "--process", "2"], "--process 2: must be from 0 to 1"),
        (train.main, [*JOB, "host", "--process", "0"], "--coordinator host: must be HOST:PORT"),
        (train.main, ["--config", RUN, "student.sampler.rows=8"], "student.sampler.rows = 8: must be at least"),
        (train.main, ["--run", "holiday"], "not empty and no run"),
        (train.main, ["--run", "gs://bucket/x"], "gs://bucket/x must be a path on this machine; mount"),
        (compare.main, ["--out", "gs://bucket/x"], "gs://bucket/x must be a path on this machine; mount"),
        (evaluate.main, ["--run", "gs://bucket/x"], "gs://bucket/x must be a path on this machine; mount"),
    ],
)
def test_a_mistake_costs_one_line_and_writes_nothing(main, arguments, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday/photo.txt").write_text("beach")
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as exit:  # of argparse
        code = exit.code
    error = capsys.readouterr().err
    assert code == 2 and message in error and error.splitlines()[-1].count(message) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["holiday", "photo.txt"]


def test_letters_that_a_terminal_lacks_are_escaped(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written := io.BytesIO(), "ascii"))
    assert guarded("rl.train", [], lambda stop: print("\N{SNOWMAN}")) == 0
    assert written.getvalue() == b"\\u2603\n"


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("no cuda\nand more")])  # what JAX raises, by platform
def test_devices_that_are_not_here_are_one_line(error, monkeypatch, tmp_path, capsys):
    def devices():
        raise error

    monkeypatch.setattr(command.jax, "devices", devices)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    assert train.main(["--run", str(tmp_path / "run")]) == 2
    assert "JAX_PLATFORMS = cuda: JAX cannot use it here" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("numbers", "code", "line"),
    [
        ("TERM", 0, "Stopped and saved"),
        ("INT", 130, "Stopped and saved"),
        ("HUP", 129, "Stopped and saved"),
        ("TERM TERM", 0, "Stopped and saved"),
        ("TERM INT", 130, "Stopped at once"),
    ],
)
def test_a_signal_stops_and_a_second_ctrl_c_at_once(capsys, numbers, code, line):
    """Before work that has nothing to save, or within it."""

    def work(stop: Stop) -> None:
        *noted, last = [signal.Signals[f"SIG{name}"] for name in numbers.split()]
        for number in noted:
            signal.raise_signal(number)
        with stop.interrupt_immediately() if not noted else contextlib.nullcontext():
            signal.raise_signal(last)
        with stop.interrupt_immediately():
            pytest.fail("went on")

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest itself may run under nohup
    try:
        assert guarded("rl.train", ["a b"], work) == code
        assert capsys.readouterr().out.startswith(line)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert guarded("rl.train", [], lambda stop: signal.raise_signal(signal.SIGHUP)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


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

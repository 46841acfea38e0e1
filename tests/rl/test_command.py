"""A newcomer's mistakes at the command line: each is told in one line that says what to do."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

import rl
from rl import command, compare, evaluate, train
from rl.config import Config, ConfigError
from rl.run.directory import RunDirectory


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


def test_a_file_of_the_other_command_is_named(capsys):
    comparison, run = (str(command.shipped(name)) for name in ("compare/tiny.yaml", "tiny.yaml"))
    assert train.main(["--config", comparison]) == 2
    assert "holds a comparison, which python -m rl.compare takes" in capsys.readouterr().err
    assert compare.main(["--config", run]) == 2
    assert "the file of a run is for python -m rl.train" in capsys.readouterr().err


def test_a_directory_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    RunDirectory(tmp_path / "run", Config()).close()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=rf"run: nothing can be written in {tmp_path}; choose another with --run"):
        RunDirectory(tmp_path / "run", Config())


@pytest.mark.parametrize("main", [train.main, compare.main, evaluate.main])
def test_a_bucket_is_no_folder_here(main, capsys):
    option = "--out" if main is compare.main else "--run"
    assert_refused(main, [option, "gs://bucket/x"], "gs://bucket/x must be a path on this machine; mount", capsys)


TELL = """
import sys
from pathlib import Path
from rl.command import guarded
from rl.run.tracking import Display

def work(stop):
    with Display() as display:
        for number in range(3):
            display.say(f"{number} \\N{SNOWMAN}")
            sys.stdin.readline()
    Path(sys.argv[1]).touch()

sys.exit(guarded("rl.train", [], work))
"""


def test_work_goes_on_where_nobody_reads_and_where_letters_are_lacking(tmp_path):
    ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", TELL, str(tmp_path / "done")]
    with subprocess.Popen(command, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=os.environ | ascii) as process:
        assert process.stdout.readline() == b"0 \\u2603\n"
        process.stdout.close()
        _, told = process.communicate(b"\n\n\n")
    assert told == b"the output was closed: the work continues without it; SIGTERM stops and saves it\n"
    assert process.returncode == 0 and (tmp_path / "done").exists()


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("no cuda\nand more")])  # what JAX raises, by platform
def test_devices_that_are_not_here_are_one_line(error, monkeypatch, tmp_path, capsys):
    def devices():
        raise error

    monkeypatch.setattr(command.jax, "devices", devices)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    assert train.main(["--run", str(tmp_path / "run")]) == 2
    assert "JAX_PLATFORMS = cuda: JAX cannot use it here" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def assert_refused(main, arguments, words, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2 and words in capsys.readouterr().err

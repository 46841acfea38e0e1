"""A newcomer's mistakes at the command line: each is told in one line that says what to do."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

import rl
from rl import command, compare, evaluate, train


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


@pytest.mark.parametrize("main", [train.main, compare.main, evaluate.main])
def test_a_bucket_is_no_folder_here(main, capsys):
    option = "--out" if main is compare.main else "--run"
    assert_refused(main, [option, "gs://bucket/x"], "gs://bucket/x must be a path on this machine; mount", capsys)


def test_letters_that_a_terminal_lacks_are_escaped():
    program = "from rl.command import guarded; guarded('rl.train', [], lambda stop: print('\\N{SNOWMAN}'))"
    ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | ascii, stdout=PIPE, check=True)
    assert done.stdout == b"\\u2603\n"


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

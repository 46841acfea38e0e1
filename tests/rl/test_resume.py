"""A run that is killed, stopped or loses a file ends, byte for byte, as one that nothing disturbed."""

import functools
import shutil

import pytest
from disturb import Killed, at_call, kill, load_script, stop
from lab import content

from rl.loop import rounds
from rl.run.checkpoint import Checkpoints
from rl.run.signals import Stop
from rl.train import main

pytestmark = [
    pytest.mark.heavy,
    # Of Orbax's coroutines, when a file is cut off.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

write_micro = load_script("benchmarks/kill_anywhere.py").write_micro


@pytest.mark.parametrize("student", ["policy", "language", "network"])
def test_a_run_disturbed_anywhere_ends_as_one_that_nothing_disturbed(tmp_path, student, capsys):
    """In all its parts, and in a round's validation, in turn killed and stopped; at last a file is cut off.

    Processes that are killed in the midst of a write: benchmarks/kill_anywhere.py.
    """
    write_micro(tmp_path, "exact", student)

    def train(run: str) -> int:
        return main(["--config", str(tmp_path / "micro.yaml"), "--run", str(tmp_path / run)])

    with at_call(Stop, "agreed", 0, stop) as calls:
        assert train("whole") == 0
    anywhere = functools.partial(at_call, Stop, "agreed", max(2, len(calls) // 7))
    after_round = functools.partial(
        at_call, rounds, "validate", 1, counts=lambda student, recorder, name, **_: name.startswith("rounds/")
    )
    moments = anywhere, after_round, anywhere, anywhere, anywhere
    for moment, disturb in zip(moments, (kill, stop, stop, kill, stop), strict=True):
        with moment(disturb=disturb):
            if disturb is kill:
                with pytest.raises(Killed):
                    train("disturbed")
            else:
                assert train("disturbed") == 0
                assert "Stopped and saved. To resume: python -m rl.train --config" in capsys.readouterr().out
    run = tmp_path / "disturbed"
    newest = run / "checkpoints" / str(Checkpoints(run / "checkpoints", 2).steps[-1])
    file = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:1000])
    assert train("disturbed") == 0
    assert f"{newest}: cannot be read (" in capsys.readouterr().out
    shutil.rmtree(run / f"unreadable-{newest.name}")
    assert content(run) == content(tmp_path / "whole")

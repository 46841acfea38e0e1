"""Checkpoints and the run's folder: nothing is lost, damage is found, a full disk and a second process are told."""

import contextlib
import errno
import json
import math
import os
import random
import resource
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.config import Config, ConfigError, RunError, load
from rl.loop.rounds import execute
from rl.run.checkpoint import Checkpoints, Snapshot
from rl.run.directory import RunDirectory
from rl.run.progress import Progress
from rl.run.signals import Stop
from rl.run.tracking import Display


def state(number: int, size: int = 48) -> Snapshot:
    """Something of each sort that a run saves; every number another one."""
    rng = np.random.default_rng(number)
    weights = {"w": jnp.asarray(rng.normal(size=(64, size)), jnp.float32), "b": jnp.arange(9.0, dtype="bfloat16") / 7}
    moments = {"count": jnp.asarray(number, jnp.int32), "mu": jnp.asarray(rng.normal(size=(64, size)), jnp.float32)}
    moments |= {"finite": jnp.asarray(number % 2 == 0), "key": jax.random.key(number)}  # of a user's own optimizer
    progress = Progress(stage="rounds", step=number, history=[{"round": 0, "share": 1 / 3}])
    return Snapshot(progress, {"parameters": weights, "optimizer": moments})


def like(saved: Snapshot) -> dict:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0).arrays)


def bits(x: jax.Array) -> bytes:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x).tobytes()


def same_bits(one: Snapshot, other: Snapshot) -> bool:
    """Whether every array, number and word of both is the same; the progress but for what saving adds."""
    pairs = zip(jax.tree.leaves(one.arrays), jax.tree.leaves(other.arrays), strict=True)
    return (
        all(x.dtype == y.dtype and bits(x) == bits(y) for x, y in pairs)
        and one.progress.step == other.progress.step
        and one.progress.history == other.progress.history
    )


def saved(run: Path, count: int = 3, keep: int = 2) -> Checkpoints:
    """A folder of checkpoints that holds the last of `count`."""
    checkpoints = Checkpoints(run / "checkpoints", keep)
    for number in range(1, count + 1):
        checkpoints.save(state(number))
    checkpoints.close()
    return checkpoints


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A folder with the checkpoints 2 and 3, to be copied."""
    folder = tmp_path_factory.mktemp("checkpoints") / "run"
    saved(folder)
    return folder


@pytest.fixture
def directory(tmp_path):
    """The folder of a run that has begun."""
    with contextlib.closing(RunDirectory(tmp_path / "run", Config())) as directory:
        directory.create()
        yield directory


def test_what_was_saved_comes_back_bit_for_bit_and_the_latest_stay(tmp_path):
    nothing = Checkpoints(tmp_path / "checkpoints", 2)
    assert nothing.latest() is None and nothing.restore(like, pytest.fail) is None
    assert not (tmp_path / "checkpoints").exists()
    assert saved(tmp_path).steps == [2, 3]
    # Also of a process that knows only what it reads.
    again = Checkpoints(tmp_path / "checkpoints", 2)
    again.save(restored := again.restore(like, pytest.fail))
    again.close()
    assert same_bits(restored, state(3)) and again.steps == [3, 4]


@pytest.mark.heavy
def test_a_torn_or_lost_file_is_harmless_or_costs_one_checkpoint(run, tmp_path, capfd):
    """Orbax notices what is cut off or gone; a bit that a disk flips within the numbers of an array it does not."""
    rng, used = random.Random(0), []
    for file in sorted(path.relative_to(run) for path in (run / "checkpoints" / "3").rglob("*") if path.is_file()):
        for how in ("cut off", "gone", "empty"):
            copy = shutil.copytree(run, tmp_path / f"{len(used)}")
            data = (copy / file).read_bytes()
            (copy / file).unlink()
            if how != "gone":
                (copy / file).write_bytes(data[: rng.randrange(len(data)) if how == "cut off" else 0])
            checkpoints, said = Checkpoints(copy / "checkpoints", 2), []
            restored = checkpoints.restore(like, said.append)
            assert same_bits(restored, state(restored.progress.step)), (file, how)
            skipped = "checkpoints/3: cannot be read ("
            assert said == [] if restored.progress.step == 3 else skipped in said[0] and len(said) == 1, (file, how)
            assert "\n" not in "".join(said) and checkpoints.steps[-1] == restored.progress.step
            assert (copy / "unreadable-3").exists() == bool(said)
            used.append(restored.progress.step)
    assert min(used.count(2), used.count(3)) > 5
    assert capfd.readouterr() == ("", "")


def test_if_none_can_be_read_one_line_says_so_and_all_stay(run, tmp_path):
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    for number in (2, 3):
        shutil.rmtree(tmp_path / "checkpoints" / str(number) / "arrays")
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2)
    with pytest.raises(RunError, match=r"checkpoints/3: cannot be read \(.*\), nor can one before it; choose another"):
        checkpoints.restore(like, [].append)
    assert checkpoints.steps == [2, 3]


@pytest.mark.parametrize("change", ["engineer.api.max_tokens=20000", "student.learn.micro_batch=4"])
def test_what_changes_no_number_or_the_order_of_sums_alone_may_change_while_a_run_stands(directory, change):
    path = directory.path
    directory.close()
    changed = load(path / "config.yaml", [change])
    with contextlib.closing(RunDirectory(path, changed)) as again:
        again.create()
    assert load(path / "config.yaml") == changed != Config()
    other = load(path / "config.yaml", ["engineer.temperature=0.5"])
    with pytest.raises(ConfigError, match="run: engineer.temperature was 0.6, is now 0.5; choose another directory"):
        RunDirectory(path, other)


@pytest.mark.parametrize("name", ["format", "rules", "generator", "evidence"])
def test_a_run_of_another_form_or_other_rules_boards_or_evidence_is_refused_and_untouched(directory, name):
    directory.close()
    version = directory.path / "version.json"
    made = json.loads(version.read_text())
    version.write_text(json.dumps(made | {name: 99}))
    before = {path: path.stat().st_mtime_ns for path in directory.path.rglob("*")}
    with pytest.raises(ConfigError, match=rf"run: {name} was 99, is now {made[name]}; finish the run with jaxlake 0"):
        RunDirectory(directory.path, Config())
    assert {path: path.stat().st_mtime_ns for path in directory.path.rglob("*")} == before


def test_a_disk_that_takes_no_more_ends_in_one_line_and_the_last_checkpoint_stays(tmp_path):
    checkpoints = saved(tmp_path, count=2, keep=9)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(RunError, match=r"cannot write a checkpoint \(File too large\); the last good one is 2$"):
            checkpoints.save(state(3, size=10_000))
            checkpoints.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    again = Checkpoints(tmp_path / "checkpoints", 9)
    assert same_bits(again.restore(like, pytest.fail), state(2))
    again.save(state(3))  # with room again it continues
    again.close()
    assert again.steps == [1, 2, 3]


def test_numbers_that_json_does_not_have_become_null(directory):
    directory.append("metrics.jsonl", {"loss": math.nan, "valid": 0.5})
    directory.write("evidence.json", {"mean": math.inf})
    directory.amend("evidence.json", {"more": [math.nan, (1.0,), "nan"]})
    assert (directory.path / "metrics.jsonl").read_text() == '{"loss": null, "valid": 0.5}\n'
    evidence = json.loads((directory.path / "evidence.json").read_text())
    assert evidence == {"mean": None, "more": [None, [1.0], "nan"]}


def test_a_folder_is_replaced_whole_or_not_at_all(directory):
    for words in ("first", "second"):
        with directory.replaced("best") as folder:
            folder.mkdir()
            (folder / "model").write_text(words)
    with pytest.raises(OSError, match="full"), directory.replaced("best") as folder:
        folder.mkdir()
        (folder / "model").write_text("thi")
        raise OSError("full")
    assert (directory.path / "best" / "model").read_text() == "second"
    with directory.replaced("best") as folder:  # what was left behind is not in the way
        folder.mkdir()
    assert not list(directory.path.glob("best*/*")) and not list(directory.path.glob("best.*"))


def test_a_run_whose_checkpoints_were_deleted_does_not_begin_anew(directory):
    (directory.path / "rounds").mkdir()
    with pytest.raises(ConfigError, match="has rounds but no checkpoint to resume from"):
        execute(Config(), directory, Display(quiet=True), Stop())


def test_a_file_system_without_locks_is_one_line_and_no_error(tmp_path, monkeypatch, capsys):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, "not here")

    monkeypatch.setattr("fcntl.flock", flock)
    with contextlib.closing(RunDirectory(tmp_path / "run", Config())) as directory:
        directory.create()
    told = capsys.readouterr().err
    assert told == f"{tmp_path}/run: no lock (not here); let no second process write there\n"


def test_of_two_that_begin_the_same_run_one_is_refused(tmp_path):
    first, second = (RunDirectory(tmp_path / "run", Config()) for _ in range(2))
    first.create()
    taken = rf"run: in use by process {os.getpid()} on \S+; wait for it or choose [^\n]*$"
    with pytest.raises(ConfigError, match=taken):
        second.create()
    first.close()
    with pytest.raises(ConfigError, match="was begun by another process"):
        second.create()

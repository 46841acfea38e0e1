"""What is written down about a run can be read back by those it is written for, also when the run was broken off."""

import contextlib
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

from rl.config import Config, ConfigError, TrackingSection
from rl.run import tracking
from rl.run.tracking import Display, Meter, Trackers


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield
    wandb.teardown()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    return tmp_path / "tiny"


@contextlib.contextmanager
def tracked(run: Path, said: list[str] | None = None, **settings) -> Iterator[Trackers]:
    """Trackers of a run that ends well, or with the error that is raised."""
    say, failed = (said if said is not None else []).append, True
    trackers = Trackers(Config(tracking=TrackingSection(**settings)), run, say)
    try:
        yield trackers
        failed = False
    finally:
        trackers.close(failed)


def write(to: Trackers, steps: range, session: int = 0) -> None:
    """The rows of a run whose warm start has two steps; the session tells who wrote a row."""
    for step in steps:
        phase = "warm_start" if step <= 2 else "round"
        place = {"phase": phase, "round": 0, "step": step if step <= 2 else step - 2}
        to.write(place, step, {"reward": step / 10, "session": session}, {"rollout": 0.5})


def curve(run: Path, tag: str) -> list[tuple[int, float]]:
    """A curve as TensorBoard shows it."""
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]


def wandb_sessions(run: Path) -> list[list[Record]]:
    """Every record of every session, in the order of the sessions, from W&B's own files (LevelDB's log format)."""
    wandb.teardown()  # as at the end of a process: its service writes what it still holds
    sessions = []
    for path in sorted((run / "wandb").glob("offline-run-*/run-*.wandb")):
        data, at, parts, records = path.read_bytes(), 7, b"", []
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:  # the rest of a block
                at += 32768 - at % 32768
                continue
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            parts += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # whole, or the last of its parts
                records.append(Record.FromString(parts))
                parts = b""
        sessions.append(records)
    return sessions


def wandb_rows(records: list[Record]) -> list[dict[str, float]]:
    return [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]


def test_tensorboard_shows_one_curve_over_the_whole_run_and_each_step_once_though_a_crash_made_it_be_done_twice(run):
    crashed = Trackers(Config(tracking=TrackingSection(tensorboard=True)), run, print)
    write(crashed, range(1, 7))  # never closed
    time.sleep(1.5)  # after a second at most it is on disk
    with tracked(run, tensorboard=True) as resumed:
        write(resumed, range(4, 9), session=1)  # the last checkpoint was after step 3
    assert curve(run, "round/session") == [(3, 0), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]
    assert curve(run, "warm_start/reward") == [(1, 0.1), (2, 0.2)]
    assert curve(run, "timings/rollout") == [(step, 0.5) for step in range(1, 9)]


def test_wandb_offline_goes_on_in_the_same_run_without_network(run, capfd, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "lakes")
    with pytest.raises(RuntimeError), tracked(run, wandb="offline") as failing:
        write(failing, range(1, 7))
        raise RuntimeError
    with tracked(run, wandb="offline") as resumed:
        write(resumed, range(4, 9), session=1)  # the last checkpoint was after step 3
    first, second = wandb_sessions(run)
    assert [row["_step"] for row in wandb_rows(first)] == [1, 2, 3, 4, 5, 6]
    assert [row["_step"] for row in wandb_rows(second)] == [4, 5, 6, 7, 8]
    assert [row.get("round/reward") for row in wandb_rows(first)][:3] == [None, None, 0.3]
    opened = [record.run for record in first + second if record.WhichOneof("record_type") == "run"]
    assert len({one.run_id for one in opened}) == 1
    assert (opened[0].project, opened[0].display_name) == ("lakes", "tiny")
    settings = {item.key: json.loads(item.value_json) for item in opened[0].config.update}
    assert settings["student"] == Config().model_dump(mode="json")["student"]
    ends = [record.exit.exit_code for record in first + second if record.WhichOneof("record_type") == "exit"]
    assert ends == [1, 0]
    assert capfd.readouterr() == ("", "")


def test_wandb_that_fails_in_the_middle_is_told_once_and_the_run_goes_on(run, monkeypatch):
    said = []
    with tracked(run, said, tensorboard=True, wandb="offline") as kept:
        write(kept, range(1, 3))

        def lost(*_, **__):
            raise ConnectionResetError("Connection lost")

        monkeypatch.setattr(wandb.Run, "log", lost)
        write(kept, range(3, 6))
    assert len(said) == 1
    assert "W&B failed (ConnectionResetError: Connection lost); the run continues" in said[0]
    assert [step for step, _ in curve(run, "round/reward")] == [3, 4, 5]


def test_wandb_online_without_a_login_is_refused_before_the_first_step(run):
    with pytest.raises(ConfigError, match="^tracking.wandb = online: not logged in; run `wandb login`"):
        Trackers(Config(tracking=TrackingSection(wandb="online")), run, print)


def test_a_run_goes_on_without_wandb_that_cannot_be_reached(run, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", 40 * "0")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(tracking, "WANDB_TIMEOUT", 1)
    said = []
    with tracked(run, said, wandb="online") as kept:
        write(kept, range(1, 3))
    [line] = said
    assert line.startswith("W&B failed (") and "\n" not in line


def test_meter_counts_a_compilation_for_a_new_shape_and_none_for_a_known_one():
    doubled, meter = jax.jit(lambda x: 2 * x), Meter()
    three, four = jnp.ones(3), jnp.ones(4)
    meter.read()
    doubled(three)
    assert meter.read()["compilations"] == 1
    doubled(three)
    assert meter.read()["compilations"] == 0
    doubled(four)
    assert meter.read()["compilations"] == 1


def test_off_a_terminal_lines_are_plain_and_without_control_characters(capsys):
    with Display() as display:
        display.stage("boards", 2)
        display.advance("one")
        display.say("a line that stays\x07")  # as a model may write it
        display.advance("two")
    assert capsys.readouterr().out == "a line that stays\ufffd\nboards  2/2  two  0 s left\n"

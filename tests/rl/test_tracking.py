"""What is written down about a run can be read back by those it is written for, also when the run was broken off."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl.config import Config, ConfigError, TrackingSection
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
    opened, steps, ends, log, finish = [], [], [], wandb.Run.log, wandb.Run.finish

    def noted(session, values, step):
        opened.append((session.id, session.project, session.name, session.config["student"]))
        steps.append(step)
        log(session, values, step=step)

    monkeypatch.setenv("WANDB_PROJECT", "lakes")
    monkeypatch.setattr(wandb.Run, "log", noted)
    monkeypatch.setattr(wandb.Run, "finish", lambda own, exit_code: ends.append(exit_code) or finish(own, exit_code))
    with pytest.raises(RuntimeError), tracked(run, wandb="offline") as failing:
        write(failing, range(1, 3))
        raise RuntimeError
    with tracked(run, wandb="offline") as resumed:
        write(resumed, range(2, 4))  # the last checkpoint was after step 1
    assert (steps, ends) == ([1, 2, 2, 3], [1, 0])
    name = (run / "wandb/id").read_text()
    assert opened == [(name, "lakes", "tiny", Config().model_dump(mode="json")["student"])] * 4
    wandb.teardown()  # which ends the service that writes the files, up to a second after a run has finished
    sessions = [path.read_bytes() for path in (run / "wandb").glob(f"offline-run-*/run-{name}.wandb")]
    assert sorted(b"round/reward" in data for data in sessions) == [False, True]
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


def test_meter_counts_a_compilation_for_a_new_shape_and_none_for_a_known_one():
    doubled, meter = jax.jit(lambda x: 2 * x), Meter()
    three, four = jnp.ones(3), jnp.ones(4)
    meter.read()
    counts = [(doubled(x), meter.read()["compilations"])[1] for x in (three, three, four)]
    assert counts == [1, 0, 1]


def test_off_a_terminal_lines_are_plain_and_without_control_characters(capsys):
    with Display() as display:
        display.stage("boards", 2)
        display.advance("one")
        display.say("a line that stays\x07")  # as a model may write it
        display.advance("two")
    assert capsys.readouterr().out == "a line that stays\ufffd\nboards  2/2  two  0 s left\n"

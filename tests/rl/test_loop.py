"""Algorithm 1 over a student of a dozen lines: what is done in which order, and what decides on a run stays."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from disturb import at_call, stop
from lab import LAB, content

from engineer import RuleEngineer
from engineer.evidence import TrainingEvidence, evidence_from_verdicts
from jaxlake.kinds import Kind
from rl.config import Config, ConfigError
from rl.loop import engineer_factory, rounds
from rl.model.policy import SHIPPED_MODEL
from rl.run.checkpoint import Snapshot
from rl.run.directory import RunDirectory
from rl.run.progress import Progress
from rl.run.recorder import Recorder
from rl.run.signals import Interrupted, Stop
from rl.run.tracking import Display


@dataclasses.dataclass
class Count:
    """What a `Counter` has learned: a number."""

    number: jnp.ndarray
    progress: Progress

    @property
    def parameters(self):
        return {"number": self.number}

    def snapshot(self) -> Snapshot:
        return Snapshot(self.progress, {"parameters": self.parameters})


class Counter:
    """A student that learns to count: its round is two steps, with the round's number added in each."""

    description = training_summary = "a counter"

    def __init__(self, config: Config):
        self.config = config

    def restore(self, directory, display):
        saved = directory.checkpoints.restore(lambda _: {"parameters": {"number": jnp.zeros(())}}, display.say)
        state = Snapshot(Progress(), {"parameters": {"number": jnp.zeros(())}}) if saved is None else saved
        self.state = Count(state.arrays["parameters"]["number"], state.progress)

    def build(self, lake):
        return Boards(lake)

    def train(self, recorder, boards, requested):
        assert boards.lake == requested
        for _ in range(self.state.progress.step, 2):
            self.state.number += 1 + self.state.progress.round
            recorder.step_done({"phase": "round", "number": self.state.number}, {}, "", save_every=1)
        return TrainingEvidence((), ())

    def save(self, folder):
        folder.mkdir()
        (folder / "number").write_text(str(float(self.state.number)))


@dataclasses.dataclass
class Boards:
    """As many boards as were asked for."""

    lake: object

    def realised(self):
        return self.lake.to_dict()

    def shortfalls(self):
        return {}


def validate(student, recorder, name, occasion, training=None):
    """A validation by which round 1 is the best: the shares are 0.1, 0.3 and 0.2."""
    recorder.check_stop()
    share = {"before": 0.0, "rounds/0": 0.1, "rounds/1": 0.3, "rounds/2": 0.2}[name]
    kinds, none, lengths = np.array([Kind.of(3), Kind.of(4)], object), np.zeros(2, bool), np.array([5, 6])
    evidence = dataclasses.replace(
        evidence_from_verdicts(
            kinds=kinds,
            checks=np.zeros((2, 8), bool),
            optimal=none,
            tokens=lengths,
            truncated=none,
            sampled_valid=np.full(2, share),
            samples_per_prompt=2,
        ),
        training=training,
    )
    recorder.directory.write(f"{name}/evidence.json", evidence.to_json() | {"occasion": occasion})
    return evidence


@pytest.fixture(autouse=True)
def counter(monkeypatch):
    monkeypatch.setattr(rounds.students, "create", Counter)
    monkeypatch.setattr(rounds, "validate", validate)


def execute(folder: Path, stop_after: int | None = None, **engineer) -> list[str]:
    """Do as the command does; return what a terminal shows."""
    lines, config, wish = [], Config(**LAB | {"engineer": engineer or {"kind": "uniform"}}), Stop()
    directory, display = RunDirectory(folder, config), Display(quiet=True)
    display.say = lines.append
    try:
        with wish.listening():
            rounds.execute(config, directory, display, wish, stop_after)
    finally:
        directory.close()
    return lines


def rows(folder: Path) -> list[tuple]:
    logged = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(row["round"], row["step"], row["number"]) for row in logged]


def test_rounds_are_designed_trained_and_validated_in_turn_and_a_whole_run_is_finished(tmp_path):
    run = tmp_path / "run"
    execute(run, stop_after=1)
    assert rows(run) == [(0, 1, 1), (0, 2, 2)]
    assert (run / "final/number").read_text() == "2.0" and not (run / "rounds/1").exists()
    lines = execute(run)
    assert lines[1] == f"Resumes {run}: round 1, after step 0"
    assert rows(run) == [(0, 1, 1), (0, 2, 2), (1, 1, 4), (1, 2, 6), (2, 1, 9), (2, 2, 12)]
    designers = [json.loads((run / f"rounds/{k}/proposal.json").read_text())["engineer"] for k in range(3)]
    assert designers == ["random", "uniform", "uniform"]
    occasions = [json.loads((run / f"{name}/evidence.json").read_text())["occasion"] for name in NAMES]
    assert occasions == [0, 2, 3, 4]
    assert ((run / "best/number").read_text(), (run / "final/number").read_text()) == ("6.0", "12.0")
    assert execute(run) == [f"{run} is finished; to train anew choose another directory with --run"]
    execute(tmp_path / "unbroken")
    assert content(run) == content(tmp_path / "unbroken")


NAMES = ("before", "rounds/0", "rounds/1", "rounds/2")


def test_an_engineer_reads_the_evidence_of_the_round_before(tmp_path, monkeypatch):
    shares, propose = [], RuleEngineer.propose

    def read(self, evidence, history, key):
        shares.append(evidence.sampled_valid)
        return propose(self, evidence, history, key)

    monkeypatch.setattr(RuleEngineer, "propose", read)
    execute(run := tmp_path / "run")
    written = [json.loads((run / f"rounds/{k}/evidence.json").read_text()) for k in range(2)]
    assert shares == [evidence["sampled_valid"] for evidence in written] and len(set(shares)) == 2


def test_a_run_stopped_again_and_again_ends_as_one_that_was_not(tmp_path):
    execute(tmp_path / "unbroken")
    places = 0
    while not (tmp_path / "stopped/final").exists():
        try:
            with at_call(Recorder, "check_stop", 2, stop):
                execute(tmp_path / "stopped")
        except (Interrupted, AssertionError):  # or there was one place only
            places += 1
    assert places >= 6
    execute(tmp_path / "stopped")
    assert content(tmp_path / "stopped") == content(tmp_path / "unbroken")


def own_rule(folder: Path) -> dict:
    (folder / "rule_of_mine.py").write_text("from engineer import RULES\n\n\nrule = RULES['uniform']\n")
    return {"kind": "rule_of_mine:rule"}


def template(folder: Path) -> dict:
    shutil.copy(Path(engineer_factory.__file__).parents[2] / "engineer/terse.md", folder / "words.md")
    return {"kind": "uniform", "template": str(folder / "words.md")}


def model(folder: Path) -> dict:
    shutil.copytree(SHIPPED_MODEL, folder / "model")
    return {"kind": "model", "model": str(folder / "model"), "max_prompt_tokens": 176}


CHANGES = {
    own_rule: ("rule_of_mine.py", b"uniform", b"ladder"),
    template: ("words.md", b"\n", b" \n"),
    model: ("model/config.json", b'"rope_theta": 10000', b'"rope_theta": 20000'),
}


@pytest.mark.parametrize("make", CHANGES)
def test_what_a_run_depends_on_behind_its_settings_stays(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    engineer, (name, old, new) = make(tmp_path), CHANGES[make]
    execute(tmp_path / "run", stop_after=1, **engineer)
    execute(tmp_path / "run", stop_after=1, **engineer)  # as it was
    before, file = content(tmp_path / "run"), tmp_path / name
    assert old in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(old, new))
    sys.modules.pop("rule_of_mine", None)  # as in another process
    engineer_factory.load_model.cache_clear()
    with pytest.raises(ConfigError, match=r"run: engineer.\w+ = \S+ was [0-9a-f]{16}, is now [0-9a-f]{16}; restore"):
        execute(tmp_path / "run", **engineer)
    assert content(tmp_path / "run") == before

"""The contract of every student: what it does in a round, and that its state comes back from a checkpoint."""

import contextlib
import json

import jax
import numpy as np
import pytest
from lab import LAB
from shapes import SMALL_JSON
from stage import SETTINGS, WRITER

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from jaxlake.generate.candidates import fingerprints
from rl.config import Config
from rl.judge.validation import validate
from rl.run.directory import RunDirectory
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import PlayerStudent, Writer, create

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("quick_compilation")]


@pytest.fixture(params=["language", "network"])  # a language player: test_resume.py
def config(request, tmp_path) -> Config:
    if request.param == "network":
        return Config(**LAB)
    (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    student = WRITER | {"model": {"shape": str(tmp_path / "shape.json")}, "warm_start": {"steps": 0}}
    return Config(**SETTINGS | {"student": student} | {"validation": {"instances": 12, "samples": 2}})


def leaves(student) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(student.state.parameters)]


def test_a_student_learns_shows_what_it_can_do_and_comes_back(tmp_path, config):
    student, lake = create(config), LakeConfig.uniform(config.lake.kinds, 0.2, 0.2)
    assert isinstance(student, Writer) != (config.student.kind == "network")
    assert isinstance(student, PlayerStudent) == (config.student.kind == "network")
    assert "\n" not in student.description and student.training_summary.endswith(".")
    with contextlib.closing(RunDirectory(tmp_path / "run", config)) as directory, Display(quiet=True) as display:
        student.restore(directory, display)
        student.state.progress.stage = "rounds"
        with Recorder(directory, display, Stop(), student) as recorder:
            if isinstance(student, Writer):
                student.warm_start(recorder)  # of no steps
            boards = student.build(lake)
            assert {*boards.kinds} == {*config.lake.kinds} and len(boards.kinds) == config.rounds.instances
            assert not {*fingerprints(student.validation.instances)} & {*fingerprints(boards.instances)}
            training = student.train(recorder, boards, lake)
            assert {row.kind for row in training.by_kind} <= {*config.lake.kinds}
            evidence = validate(student, recorder, "rounds/0", 2, training)
            recorder.save()
        written = json.loads((tmp_path / "run/rounds/0/evidence.json").read_text())
        assert Evidence.from_json(written) == evidence and evidence.training == training
        assert {row.kind for row in evidence.by_kind} == {*config.target_kinds}
        for row in (*evidence.by_kind, *training.by_kind):
            assert sum(row.first_failures.values()) == row.n - row.valid
        student.save(tmp_path / "saved")
        assert any((tmp_path / "saved").iterdir())
        directory.checkpoints.close()
        again = create(config)
        again.restore(directory, display)
    assert again.state.progress.step == student.state.progress.step
    for x, y in zip(leaves(again), leaves(student), strict=True):
        np.testing.assert_array_equal(x, y)

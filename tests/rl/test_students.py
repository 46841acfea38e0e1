"""The contract of a student, whichever it is: what the rounds ask of the language policy and of the network alike."""

import json

import jax
import numpy as np
import pytest
from lab import LAB
from shapes import SMALL_JSON
from stage import SETTINGS, Said

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from rl import students
from rl.config import Config
from rl.run.checkpoint import fingerprint
from rl.run.directory import RunDirectory
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.students.base import PILOT_BOARDS

WITHOUT_DATA = LakeConfig(("3", "4"), (0.0, 1.0), (0.2, 0.25), (0.0, 0.0))


def shown(boards) -> set[bytes]:
    """Boards as they can be compared, whatever they are padded with."""
    return {b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(boards[i])) for i in range(len(boards.size))}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["language", "network"])
def test_a_student_is_restored_trained_validated_and_saved(kind, tmp_path):
    (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    language = SETTINGS | {"model": {"shape": str(tmp_path / "shape.json")}, "warm_start": {"steps": 0}}
    language |= {"rounds": {"count": 1, "instances": 8}, "validation": {"kinds": (4,), "instances": 8, "samples": 2}}
    config = Config(**(language if kind == "language" else LAB))
    directory, display = RunDirectory(tmp_path / "run", config), Said()
    student = students.create(config)
    assert "\n" not in student.description + student.training_summary and "boards a round" in student.training_summary
    student.restore(directory, display)
    student.state.progress.stage = "rounds"
    with Recorder(directory, display, Stop(), student) as recorder:
        if isinstance(student, students.WritingStudent):
            student.warm_start(recorder)
        requested = LakeConfig.uniform((3, 4), 0.2, 0.0)
        boards = student.build(requested)
        assert len(boards.kinds) == config.rounds.instances
        assert not shown(boards.instances) & shown(student.validation_boards)
        training = student.train(recorder, boards, requested)
        assert {row.kind for row in training.by_kind} <= set(config.lake.kinds) and training.environment
        assert (
            student.state.progress.total_steps == len((directory.path / "metrics.jsonl").read_text().splitlines()) > 0
        )
        evidence = student.validate(recorder, "rounds/0", 2, training)
        assert [row.kind for row in evidence.by_kind] == list(config.target_kinds) and evidence.training == training
        kept = Evidence.from_json(json.loads((directory.path / "rounds/0/evidence.json").read_text()))
        assert kept == evidence and evidence.n == config.validation.instances
        shares = student.pilot(recorder, WITHOUT_DATA, jax.random.key(0))
        assert {str(kind): len(p) for kind, p in shares.items()} == {"4": PILOT_BOARDS}
        assert all(0 <= share <= 1 for share in shares[config.target_kinds[0]])
        recorder.save()
    student.save(tmp_path / "saved")
    assert any((tmp_path / "saved").iterdir())
    directory.checkpoints.close()
    again = students.create(config)
    again.restore(directory, display)
    assert fingerprint(again.state.parameters) == fingerprint(student.state.parameters)
    assert shown(again.validation_boards) == shown(student.validation_boards)
    directory.close()

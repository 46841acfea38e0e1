"""The contract of every student, beside what test_resume.py and test_kinds.py show of whole runs."""

import contextlib
import json

import pytest
from lab import LAB
from shapes import SMALL_JSON
from stage import SETTINGS, WRITER

from jaxlake.config import LakeConfig
from jaxlake.generate.candidates import fingerprints
from rl.config import Config
from rl.run.directory import RunDirectory
from rl.run.tracking import Display
from rl.students import PlayerStudent, Writer, create


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["writer", "network"])
def test_no_board_of_a_round_is_one_of_the_validation(tmp_path, kind):
    (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    model = {"model": {"shape": str(tmp_path / "shape.json")}, "warm_start": {"steps": 0}}
    values = LAB if kind == "network" else SETTINGS | {"student": WRITER | model, "validation": {"instances": 12}}
    student = create(config := Config(**values))
    assert isinstance(student, Writer) != isinstance(student, PlayerStudent) == (kind == "network")
    assert "\n" not in student.description and student.training_summary.endswith(".")
    with contextlib.closing(RunDirectory(tmp_path / "run", config)) as directory, Display(quiet=True) as display:
        student.restore(directory, display)
        boards = student.build(LakeConfig.uniform(config.lake.kinds, 0.2, 0.2))
    assert {*boards.kinds} == {*config.lake.kinds} and len(boards.kinds) == config.rounds.instances
    assert not {*fingerprints(student.validation.instances)} & {*fingerprints(boards.instances)}

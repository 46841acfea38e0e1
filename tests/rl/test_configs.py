"""The shipped configurations say only what differs, and can be planned."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from pydantic_core import to_jsonable_python

from rl import config as config_
from rl import plan, students
from rl.config import NetworkSection, PlayerSection
from rl.lab.comparison import load
from rl.lab.runs import plan_runs

CONFIGS = Path(__file__).parents[2] / "configs"
GIB = 2**30
USABLE = 0.95 * 10**9  # of a GPU's gigabyte, where JAX may take 95 %
DEVICES = {  # what each is made for: devices, and bytes of one
    "tiny": (1, 2 * GIB),
    "tiny-engineer": (1, 2 * GIB),
    "tiny-long": (1, 2 * GIB),
    "small": (1, 16 * USABLE),
    "qwen3-0.6b": (1, 24 * USABLE),
    "qwen3-0.6b-smoke": (1, 24 * USABLE),
    "qwen3-4b": (1, 141 * USABLE),
    "qwen3-4b-smoke": (1, 80 * USABLE),
    "qwen3-4b-lora": (1, 24 * USABLE),
    "qwen3-4b-v5e-8": (8, 15.75 * GIB),
    "qwen3-4b-turns": (1, 80 * USABLE),
    "turns": (1, 12 * USABLE),
    "turns-ppo": (1, 12 * USABLE),
    "smollm2-135m": (1, 6 * GIB),
    "smollm2-turns": (1, 16 * USABLE),
    "smollm2-words": (1, 16 * USABLE),
}
NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
COMPARISONS = sorted(path.stem for path in CONFIGS.glob("compare/*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_only_what_differs_from_its_base_in_the_order_of_all_sections(name):
    path = CONFIGS / f"{name}.yaml"
    given = config_.read(path)
    base = config_.load(CONFIGS / given.pop("base", "tiny.yaml"))
    student = given.get("student", {})
    if student.get("kind", base.student.kind) != base.student.kind:
        kind = student.pop("kind")
        base = base.model_copy(update={"student": {"player": PlayerSection(), "network": NetworkSection()}[kind]})
    for key, value in config_.flat(given).items():
        assert to_jsonable_python(functools.reduce(getattr, key.split("."), base)) != value, key
    assert list(given) == sorted(given, key=[*config_.Config.model_fields].index)


@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("lab")])  # a network has no programs
def test_every_program_can_be_traced_and_its_arrays_leave_room_for_temporaries(name):
    config = config_.load(CONFIGS / f"{name}.yaml")
    count, memory = DEVICES[name]
    mesh = Mesh(np.array(jax.devices()[:count]).reshape(-1, config.mesh.tp), ("fsdp", "tp"))
    for program in students.programs(config, mesh):
        program.lower()
        assert plan.per_device((program.arguments, program.beside)) < 0.9 * memory, program.name


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_names_runs_that_can_be_planned(name, tmp_path):
    comparison = load(CONFIGS / "compare" / f"{name}.yaml")
    plans = plan_runs(comparison, tmp_path)
    starts = 1 if comparison.run.student.warm_start.steps else 0
    assert len({plan.path for plan in plans}) == starts + len(comparison.seeds) * (1 + len(comparison.engineers))
    engineers = [plan.config.engineer for plan in plans]
    taught = {*comparison.run.student.warm_start.contexts}
    assert {engineer.context for engineer in engineers if engineer.kind.startswith("checkpoint")} <= taught

"""A configuration that is wrong is refused in one line; the shipped ones say only what differs, and can be planned."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from pydantic_core import to_jsonable_python

from jaxlake.kinds import Kind
from rl import config as config_
from rl import plan, students
from rl.config import Config, ConfigError, NetworkSection, PlayerSection, load
from rl.lab import comparison as comparison_
from rl.lab.runs import plan_runs

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = CONFIGS / "tiny.yaml"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs_are_read_and_written_back(path, tmp_path):
    config = load(path)
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load(tmp_path / "again.yaml") == config
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("tiny", "student.learn.ratee=1", "unknown key student.learn.ratee; the nearest is student.learn."),
        ("tiny", "grpo.samples=4", "unknown key grpo.samples; the nearest is student.learn.samples"),
        ("tiny", "student.chunk=4", "student.kind = writer has no student.chunk; --help lists"),
        ("lab", "student.learn.prompts=4", "student.kind = network has no student.learn.prompts"),
        ("turns", "student.text.style=verbose", "student.kind = player has no student.text"),
        ("turns", "student.kind=language", "student: kind must be writer, player or network"),
        ("turns", "student.environments=100", "environments = 100 must be a multiple of learn.samples = 8"),
        ("lab", "engineer.kind=checkpoint", "engineer.kind = checkpoint needs student.kind = writer or player"),
        ("tiny", "engineer.kind=hindsight", "engineer.kind = hindsight needs student.kind = player"),
        ("tiny", "rounds=3", "rounds = 3: must be a valid dictionary"),
        ("tiny", "rounds.count=0", "rounds.count = 0: must be greater than or equal to 1"),
        ("tiny", "rounds.instances=77", "rounds.instances = 77 must be a multiple of student.learn.prompts"),
        ("tiny", "student.reward.free_tokens=4000", "free_tokens must be below limit_tokens"),
        ("tiny", "validation.instances=11", "instances = 11 must be at least 12, one of each kind and hole ratio"),
        ("tiny", "seed", "must be key=value"),
        ("tiny", "seed=[", "not YAML: "),
        ("tiny", "student.learn.schedule=cos", 'schedule = "cos": must be one of constant, linear, cosine'),
        ("tiny", "engineer.kind=holes", "api, hindsight, fixed_random"),
        ("tiny", "student.text.style=a b:c", "must be one of coordinates, grid, verbose, module:function"),
        ("tiny", "student.reward.kind=paper", "learn.credit = exact needs reward.kind = optimal"),
        ("tiny", "student.text.thinking=true", "learn.credit = exact needs reward.kind = optimal"),
    ],
)
def test_mistakes_are_named_in_one_line(name, override, message):
    with pytest.raises(ConfigError) as error:
        load(CONFIGS / f"{name}.yaml", [override])
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lower", "message"),
    [
        ("base: nowhere.yaml", "nowhere.yaml: there is no such file; those that come with jaxlake are in "),
        ("base: upper.yaml", "lower.yaml: base = upper.yaml: must lead to a file without a base"),
        ("- 3", "lower.yaml: must hold keys and values"),
    ],
)
def test_a_base_that_cannot_be_built_on_is_named(lower, message, tmp_path):
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, lower=lower, upper="base: lower.yaml\nseed: 1"))
    assert message in str(error.value)


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def test_a_file_builds_on_another_beside_it_or_on_a_shipped_one(tmp_path):
    path = write(
        tmp_path,
        lower="base: small.yaml\nseed: 3\nlake: {kinds: [3, 4]}\nrounds: {instances: 64}",
        upper="base: lower.yaml\nrounds.count: 5\nlake: {kinds: [4]}",
    )
    config = load(path, ["seed=4", "student.learn.learning_rate=3e-5"])  # a number without a point
    assert (config.seed, config.lake.kinds, config.rounds.count, config.rounds.instances) == (4, (Kind.of(4),), 5, 64)
    assert config.student.model == load(CONFIGS / "small.yaml").student.model
    assert config.student.learn.learning_rate == 3e-5


def test_another_kind_of_student_starts_its_section_anew(tmp_path):
    overrides = ["student.updates=2", "student.kind=network", "engineer.kind=adarft"]  # in any order
    assert load(CONFIGS / "turns.yaml", overrides).student == NetworkSection(updates=2)
    assert load(CONFIGS / "turns.yaml", ["student.learn.baseline=value"]).student.learn.samples == 8
    path = write(tmp_path, lower="base: small.yaml", upper="base: lower.yaml\nstudent: {kind: player, chunk: 8}")
    assert load(path, ["student.updates=2"]).student == PlayerSection(chunk=8, updates=2)


@pytest.mark.parametrize(
    ("given", "kinds", "written"),
    [
        ("[6, 3]", (3, 6), [3, 6]),
        ("[5, 3-6, 6]", (3, 4, 5, 6), [3, 4, 5, 6]),
        ("[random3, 3x2]", (3,), [3]),
        (
            "[corridor8x3, rooms5-6x3, 4x4, '10']",
            ("4x4", 10, "rooms5x3", "rooms6x3", "corridor8x3"),
            ["4x4", 10, "rooms5x3", "rooms6x3", "corridor8x3"],
        ),
    ],
)
def test_kinds_are_given_in_any_order_by_size_name_and_range(given, kinds, written, tmp_path):
    config = load(TINY, [f"lake.kinds={given}"])
    assert config.lake.kinds == tuple(map(Kind.of, kinds))
    assert config.model_dump(mode="json")["lake"]["kinds"] == written
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load(tmp_path / "again.yaml") == config


def test_what_is_validated_and_taught_are_the_lakes_kinds_unless_others_are_named():
    config = load(TINY, ["lake.kinds=[3, rooms5]"])
    assert config.target_kinds == config.all_kinds == config.lake.kinds
    config = load(
        TINY, ["lake.kinds=[3, rooms5]", "validation.kinds=[corridor5x3, rooms5]", "student.warm_start.kinds=[4x4]"]
    )
    assert config.target_kinds == (Kind.of("rooms5"), Kind.of("corridor5x3"))
    assert config.all_kinds == tuple(map(Kind.of, (3, "4x4", "rooms5", "corridor5x3")))


def test_the_defaults_that_help_shows_are_the_shipped_tiny_runs():
    assert load(TINY) == Config()


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
    base = load(CONFIGS / given.pop("base", "tiny.yaml"))
    student = given.get("student", {})
    if student.get("kind", base.student.kind) != base.student.kind:
        kind = student.pop("kind")
        base = base.model_copy(update={"student": {"player": PlayerSection(), "network": NetworkSection()}[kind]})
    for key, value in config_.flat(given).items():
        assert to_jsonable_python(functools.reduce(getattr, key.split("."), base)) != value, key
    assert list(given) == sorted(given, key=[*config_.Config.model_fields].index)


@pytest.mark.parametrize(
    "name",
    [  # a network has no programs
        pytest.param(name, marks=[] if name in ("tiny", "turns-ppo") else pytest.mark.heavy)
        for name in NAMES
        if not name.startswith("lab")
    ],
)
def test_every_program_can_be_traced_and_its_arrays_leave_room_for_temporaries(name):
    config = load(CONFIGS / f"{name}.yaml")
    count, memory = DEVICES[name]
    mesh = Mesh(np.array(jax.devices()[:count]).reshape(-1, config.mesh.tp), ("fsdp", "tp"))
    for program in students.programs(config, mesh):
        program.lower()
        assert plan.per_device((program.arguments, program.beside)) < 0.9 * memory, program.name


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_names_runs_that_can_be_planned(name, tmp_path):
    comparison = comparison_.load(CONFIGS / "compare" / f"{name}.yaml")
    plans = plan_runs(comparison, tmp_path)
    starts = 1 if comparison.run.student.warm_start.steps else 0
    assert len({plan.path for plan in plans}) == starts + len(comparison.seeds) * (1 + len(comparison.engineers))
    engineers = [plan.config.engineer for plan in plans]
    taught = {*comparison.run.student.warm_start.contexts}
    assert {engineer.context for engineer in engineers if engineer.kind.startswith("checkpoint")} <= taught

"""A configuration that is wrong is refused in one line that names key, value and what is allowed."""

from pathlib import Path

import pytest

from jaxlake.kinds import Kind
from rl.config import Config, ConfigError, NetworkSection, PlayerSection, load

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = CONFIGS / "tiny.yaml"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs_are_read_and_written_back(path, tmp_path):
    config = load(path)
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load(tmp_path / "again.yaml") == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "student.learn.learning_ratee=1",
            "unknown key student.learn.learning_ratee; the nearest is student.learn.learning_rate",
        ),
        ("rounds.instances=77", "rounds.instances = 77 must be a multiple of student.learn.prompts"),
        ("student.reward.free_tokens=4000", "free_tokens must be below limit_tokens"),
        (
            "validation.instances=11",
            "validation.instances = 11 must be at least 12, one of each kind and hole ratio",
        ),
        ("seed", "must be key=value"),
        (
            "student.reward.kind=paper",
            "learn.credit = exact needs reward.kind = optimal and text.thinking = false; or set student.learn.credit=",
        ),
        ("student.text.thinking=true", "learn.credit = exact needs reward.kind = optimal and text.thinking = false"),
    ],
)
def test_mistakes_are_named_in_one_line(override, message):
    with pytest.raises(ConfigError) as error:
        load(TINY, [override])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value).removeprefix(str(TINY))) < 170  # wherever the clone lies


def test_a_missing_file_is_named():
    with pytest.raises(
        ConfigError, match="nowhere.yaml: there is no such file; those that come with jaxlake are in .*configs"
    ):
        load(Path("nowhere.yaml"))


def test_numbers_in_scientific_notation_without_a_point_are_numbers():
    assert load(TINY, ["student.learn.learning_rate=3e-5"]).student.learn.learning_rate == 3e-5


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def test_a_file_builds_on_another_beside_it_or_on_a_shipped_one(tmp_path):
    path = write(
        tmp_path,
        lower="base: small.yaml\nseed: 3\nlake: {kinds: [3, 4]}\nrounds: {instances: 64}",
        upper="base: lower.yaml\nrounds: {count: 5}\nlake: {kinds: [4]}",
    )
    config = load(path, ["seed=4"])
    assert (config.seed, config.lake.kinds, config.rounds.count, config.rounds.instances) == (4, (Kind.of(4),), 5, 64)
    assert config.student.model == load(CONFIGS / "small.yaml").student.model
    assert "base" not in config.to_yaml()


@pytest.mark.parametrize(
    ("lower", "message"),
    [
        ("base: nowhere.yaml", "nowhere.yaml: there is no such file"),
        ("base: upper.yaml", "lower.yaml: base = upper.yaml: builds on this file"),
        ("rounds.count: 3", "lower.yaml: rounds.count is no key; sections are nested"),
        ("rounds: {count: 0}", "upper.yaml: rounds.count = 0: must be greater than or equal to 1"),
    ],
)
def test_a_base_that_cannot_be_built_on_is_named(lower, message, tmp_path):
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, lower=lower, upper="base: lower.yaml\nseed: 1"))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ("[6, 3]", (3, 6)),
        ("[3-6]", (3, 4, 5, 6)),
        ("[5, 3-6, 6]", (3, 4, 5, 6)),
        ("[corridor8x3, rooms5-7x3, 4x4, '10']", ("4x4", 10, "rooms5x3", "rooms6x3", "rooms7x3", "corridor8x3")),
        ("[random3, 3x2]", (3,)),
    ],
)
def test_kinds_are_given_in_any_order_by_size_name_and_range(given, kinds, tmp_path):
    config = load(TINY, [f"lake.kinds={given}"])
    assert config.lake.kinds == tuple(map(Kind.of, kinds))
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load(tmp_path / "again.yaml") == config
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_kinds_are_written_as_sizes_where_these_say_all():
    lake = load(TINY, ["lake.kinds=[rooms5-6, 3, 3x3]"]).model_dump(mode="json")["lake"]
    assert lake["kinds"] == [3, "3x3", "rooms5", "rooms6"]
    assert "  kinds:\n  - 3\n  - 4\n  - 5\n  - 6\n" in load(TINY).to_yaml()


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


def test_off_is_a_word_and_no_number_of_yaml(tmp_path):
    (tmp_path / "run.yaml").write_text("tracking: {wandb: off, tensorboard: true}")
    tracking = load(tmp_path / "run.yaml").tracking
    assert (tracking.wandb, tracking.tensorboard) == ("off", True)
    assert load(tmp_path / "run.yaml", ["tracking.wandb=offline"]).tracking.wandb == "offline"
    assert load(tmp_path / "run.yaml", ["tracking.wandb=off"]).tracking.wandb == "off"


def test_another_kind_of_student_starts_its_section_anew(tmp_path):
    config = load(CONFIGS / "turns.yaml", ["student.kind=network", "engineer.kind=adarft"])
    assert config.student == NetworkSection()
    assert load(CONFIGS / "turns.yaml", ["student.learn.baseline=value"]).student.learn.samples == 8
    path = write(tmp_path, lower="base: small.yaml", upper="base: lower.yaml\nstudent: {kind: player, chunk: 8}")
    assert load(path, ["student.updates=2"]).student == PlayerSection(chunk=8, updates=2)


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("tiny", "student.chunk=4", "student.kind = writer has no student.chunk; --help lists"),
        ("lab", "student.learn.prompts=4", "student.kind = network has no student.learn.prompts"),
        ("turns", "student.text.style=verbose", "student.kind = player has no student.text"),
        ("turns", "student.kind=language", "student: kind must be writer, player or network"),
        ("turns", "student.environments=100", "environments = 100 must be a multiple of learn.samples = 8"),
        ("lab", "engineer.kind=checkpoint", "engineer.kind = checkpoint needs student.kind = writer or player"),
        ("tiny", "engineer.kind=hindsight", "engineer.kind = hindsight needs student.kind = player"),
        ("tiny", "grpo.samples=4", "unknown key grpo.samples; the nearest is student.learn.samples"),
    ],
)
def test_a_setting_of_another_student_or_an_older_version_is_refused(name, override, message):
    with pytest.raises(ConfigError) as error:
        load(CONFIGS / f"{name}.yaml", [override])
    assert message in str(error.value) and "\n" not in str(error.value)

"""A configuration that is wrong is refused in one line that names key, value and what is allowed."""

from pathlib import Path

import pytest

from jaxlake.kinds import Kind
from rl.config import Config, ConfigError, Section, flat, load, provenance, read
from rl.config.fields import keys
from rl.config.origins import as_override

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
        ("grpo.learning_ratee=1", "unknown key grpo.learning_ratee; the nearest is grpo.learning_rate"),
        ("rounds.instances=77", "rounds.instances = 77 must be a multiple of grpo.prompts"),
        ("reward.free_tokens=4000", "free_tokens must be below limit_tokens"),
        ("warm_start.instances=20", "warm_start.batch = 32 is too large"),
        (
            "validation.instances=11",
            "validation.instances = 11 must be at least 12, a board of each of 4 kinds and 3 hole ratios",
        ),
        ("seed", "must be key=value"),
        ("reward.kind=paper", "reward.kind = paper must be optimal with grpo.credit = exact; or set grpo.credit"),
        ("text.thinking=true", "text.thinking = true must be false with grpo.credit = exact"),
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
    assert load(TINY, ["grpo.learning_rate=3e-5"]).grpo.learning_rate == 3e-5


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
    assert config.model == load(CONFIGS / "small.yaml").model
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
    config = load(TINY, ["lake.kinds=[3, rooms5]", "validation.kinds=[corridor5x3, rooms5]", "warm_start.kinds=[4x4]"])
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


@pytest.mark.parametrize(
    ("name", "student", "unread"),
    [
        ("tiny", "student.kind=language", ["student.actor", "student.ppo.epochs", "student.network.width"]),
        (
            "lab",
            "student.actor=network and student.learner=ppo",
            ["grpo.samples", "reward.kind", "text.max_new_tokens", "model.remat"],
        ),
        (
            "turns",
            "student.actor=language and student.learner=grpo",
            ["grpo.prompts", "reward.kind", "text.style", "rounds.epochs"],
        ),
    ],
)
def test_a_setting_that_the_student_does_not_read_is_refused_and_not_kept(tmp_path, name, student, unread):
    config = load(CONFIGS / f"{name}.yaml")
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load(tmp_path / "again.yaml") == config
    whole = {part: getattr(config, part) for part in Config.model_fields}
    values = flat({part: x.model_dump(mode="json") if isinstance(x, Section) else x for part, x in whole.items()})
    refused = []
    for key in keys():
        try:
            load(CONFIGS / f"{name}.yaml", [f"{key}={as_override(values[key])}"])
        except ConfigError as error:
            refused.append(key)
            assert f"nothing reads {key} with {student}; student." in str(error) and "\n" not in str(error)
    assert {*unread} < {*refused}
    assert {*flat(read(tmp_path / "again.yaml"))} == {*keys()} - {*refused} == {*provenance(config)}

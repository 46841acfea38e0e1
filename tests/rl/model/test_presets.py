"""The shapes by name are those that were published, and a config.json means what it means to transformers."""

import json
import math
from pathlib import Path

import jax
import pytest

from rl.config import ConfigError
from rl.model.decoder import RopeScaling, abstract
from rl.model.presets import PRESETS, read_config, shape_of

PUBLISHED = {
    # Bytes in bfloat16 of the hub's safetensors, for names that are not in `CONFIGS`. Two carry the tied head twice.
    "qwen3-0.6b": 2 * (751_632_384 - 151_936 * 1024),
    "qwen3-1.7b": 4_063_479_808 - 2 * 151_936 * 2048,
    "qwen3-4b": 8_044_936_192,
    "qwen3-8b": 16_381_470_720,
    "smollm2-360m": 2 * 361_821_120,
}

CONFIGS = json.loads((Path(__file__).parent / "data" / "published-configs.json").read_text())
"""Of the hub's config.json, by the name of a preset, what says how a model is computed."""
QWEN3 = "qwen3-4b-2507"


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_as_many_parameters_as_the_published_checkpoints(name):
    shapes = jax.tree.leaves(abstract(PRESETS[name])[1])
    assert 2 * sum(math.prod(leaf.shape) for leaf in shapes) == PUBLISHED[name]


def written(folder, name=QWEN3, **changes):
    raw = {key: value for key, value in (CONFIGS[name] | changes).items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def test_a_shape_is_a_presets_name_a_folder_or_its_config(tmp_path):
    written(tmp_path)
    assert shape_of(tmp_path) == shape_of(tmp_path / "config.json") == shape_of(QWEN3)
    with pytest.raises(
        ConfigError, match=r"student.model.shape = qwen3-5b: must be .* or one of tiny, small, qwen3-0.6b"
    ):
        shape_of("qwen3-5b")


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 1000000, "rope_scaling": {"type": "default"}},
        {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_theta": 1e6, "rope_scaling": LLAMA3},
        {"rope_theta": "absent", "rope_parameters": LLAMA3 | {"rope_theta": 1e6}},
    ],
)
def test_positions_are_read_in_every_spelling(tmp_path, spelling):
    shape = read_config(written(tmp_path, **spelling))
    assert shape.rope_theta == 1e6
    scaled = any("factor" in value for value in spelling.values() if isinstance(value, dict))
    assert shape.rope_scaling == (RopeScaling(8.0, 1.0, 4.0, 8192) if scaled else None)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_is_its_preset(tmp_path, name):
    assert read_config(written(tmp_path, name)) == PRESETS[name]


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("smollm2-135m", {"hidden_act": "gelu"}, "hidden_act = gelu must be silu"),
        ("smollm2-135m", {"model_type": "gemma"}, "model_type = gemma must be one of qwen3, qwen2, llama, mistral"),
        ("qwen2.5-0.5b", {"use_sliding_window": True, "sliding_window": 64}, "sliding_window = 64 must be None"),
        ("llama-3.2-1b", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_type = yarn must be default or"),
        (QWEN3, {"is_causal": False}, "is_causal = False must be True"),
        (QWEN3, {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 must be 1"),
        (QWEN3, {"model_type": "nobodys"}, "model type `nobodys`"),
    ],
)
def test_what_no_family_computes_is_refused_in_one_line(tmp_path, name, changes, complaint):
    """Where no tensor would show it."""
    with pytest.raises(ConfigError) as error:
        read_config(written(tmp_path, name, **changes))
    assert complaint in str(error.value) and "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)

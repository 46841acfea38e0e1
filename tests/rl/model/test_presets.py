"""The shapes by name are those that were published, and a config.json is believed only as far as it is understood."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from rl.config import ConfigError
from rl.model.decoder import abstract
from rl.model.presets import PRESETS, read_config, shape_of
from rl.model.tokenizer import Tokenizer

PUBLISHED = {
    # Bytes in bfloat16 of the hub's safetensors. Those of 0.6B and 1.7B carry the tied head a second time.
    "qwen3-0.6b": 2 * (751_632_384 - 151_936 * 1024),
    "qwen3-1.7b": 4_063_479_808 - 2 * 151_936 * 2048,
    "qwen3-4b": 8_044_936_192,
    "qwen3-4b-2507": 8_044_936_192,
    "qwen3-8b": 16_381_470_720,
    "smollm2-135m": 2 * 134_515_008,
    "smollm2-360m": 2 * 361_821_120,
    "qwen2.5-0.5b": 2 * 494_032_768,
    "llama-3.2-1b": 2 * 1_235_814_400,
}

CONFIGS = json.loads((Path(__file__).parent / "data" / "published-configs.json").read_text())
"""Of the hub's config.json, by the name of a preset, what says how a model is computed."""
QWEN3 = "qwen3-4b-2507"


def parameters_of(name: str) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract(PRESETS[name])[1]))


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_as_many_parameters_as_the_published_checkpoints(name):
    assert 2 * parameters_of(name) == PUBLISHED[name]


def test_the_presets_to_train_from_scratch_hold_the_shipped_tokenizer():
    assert 0.4e6 < parameters_of("tiny") < 0.6e6
    assert 24e6 < parameters_of("small") < 27e6
    assert len(Tokenizer()) <= PRESETS["tiny"].vocab_size == PRESETS["small"].vocab_size


def written(folder, name=QWEN3, **changes):
    raw = {key: value for key, value in (CONFIGS[name] | changes).items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def test_a_shape_is_a_presets_name_a_folder_or_its_config(tmp_path):
    written(tmp_path)
    assert shape_of(tmp_path) == shape_of(tmp_path / "config.json") == shape_of(QWEN3)
    assert shape_of("qwen3-4b", jnp.bfloat16) == dataclasses.replace(PRESETS["qwen3-4b"], dtype=jnp.bfloat16)
    with pytest.raises(ConfigError, match=r"model.shape = qwen3-5b: must be .* or one of tiny, small, qwen3-0.6b"):
        shape_of("qwen3-5b")
    with pytest.raises(ConfigError, match="must be a config.json, its folder"):
        shape_of("~nobody-of-this-name/model")


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 1000000, "rope_scaling": {"type": "default"}},
        {"rope_theta": "absent", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_theta": "absent", "rope_scaling": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_theta": 1e6, "rope_parameters": {"rope_type": None, "partial_rotary_factor": None}},
    ],
)
def test_theta_is_read_in_every_spelling(tmp_path, spelling):
    assert read_config(written(tmp_path, **spelling)).rope_theta == 1e6


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
NEW = {"rope_type": "default", "rope_theta": 1e6}
"""rope_parameters as transformers 5 writes them."""


@pytest.mark.parametrize(
    ("spelling", "first", "second"),
    [
        # A folder of transformers 5 that 4.57 has read and saved: 4's default at the top.
        ({"rope_theta": 1e4, "rope_parameters": NEW}, "rope_theta = 10000.0", "rope_parameters.rope_theta = 1000000.0"),
        ({"rope_theta": 1e4, "rope_scaling": NEW}, "rope_theta = 10000.0", "rope_scaling.rope_theta = 1000000.0"),
        (
            {"rope_theta": 1e6, "rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | NEW},
            "rope_parameters.rope_type = 'default'",
            "rope_scaling.rope_type = 'llama3'",
        ),
        # Without a type it is "default", whatever the other says.
        (
            {"rope_theta": 1e6, "rope_scaling": {"rope_theta": 1e6}, "rope_parameters": LLAMA3},
            "rope_parameters.rope_type = 'llama3'",
            "rope_scaling.rope_type = 'default'",
        ),
        # rope_scaling takes nothing from rope_parameters, so both versions would take their default.
        (
            {"rope_theta": "absent", "rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"rope_theta": 1e6}},
            "rope_parameters.rope_theta = 1000000.0",
            "rope_scaling.rope_theta = None",
        ),
        (
            {"rope_theta": 1e6, "rope_scaling": LLAMA3 | {"type": "linear"}},
            "rope_scaling.rope_type = 'llama3'",
            "rope_scaling.type = 'linear'",
        ),
        ({"rope_type": "llama3"} | LLAMA3, "rope_type = 'llama3'", "rope_scaling.rope_type = 'default'"),
        ({"factor": 2.0, "rope_scaling": LLAMA3}, "factor = 2.0", "rope_scaling.factor = 8.0"),
        (
            {"partial_rotary_factor": 1.0, "rope_theta": 1e6, "rope_parameters": NEW | {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor = 1.0",
            "rope_parameters.partial_rotary_factor = 0.5",
        ),
    ],
)
def test_positions_that_are_said_twice_and_not_alike_are_refused(tmp_path, spelling, first, second):
    with pytest.raises(ConfigError) as error:
        read_config(written(tmp_path, **spelling))
    assert str(error.value).startswith(f"{tmp_path}/config.json: {first} and {second} must be equal, as versions")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("table", [[1.0], "llama3", {"full_attention": NEW, "sliding_attention": NEW}])
@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_positions_are_one_table_for_all_layers(tmp_path, place, table):
    with pytest.raises(ConfigError, match=f"config.json: {place} = .* must be one table for all layers$"):
        read_config(written(tmp_path, **{place: table}))


def test_positions_are_those_of_transformers_or_refused(tmp_path):
    """All files with one, two or three places, of which some agree."""
    pytest.importorskip("transformers", minversion="5", reason="an older one has no such table")
    from transformers import Qwen3Config

    thetas = ({}, {"rope_theta": 10000}, {"rope_theta": 1000000})
    scalings = ({}, {"rope_scaling": None}, *({"rope_scaling": table} for table in (LLAMA3, LLAMA3 | NEW, NEW)))
    scalings += ({"rope_scaling": {"type": "default"}}, {"rope_scaling": LLAMA3 | {"type": "llama3"}})
    parameters = (NEW, LLAMA3, LLAMA3 | {"rope_theta": 1e6}, LLAMA3 | {"factor": 32, "rope_theta": 1e6}, {})
    plain = {key: value for key, value in CONFIGS[QWEN3].items() if key not in ("rope_theta", "rope_scaling")}
    read = 0
    for top, scaling, new in itertools.product(
        thetas, scalings, ({}, *({"rope_parameters": table} for table in parameters))
    ):
        (tmp_path / "config.json").write_text(json.dumps(plain | top | scaling | new))
        try:
            ours = read_config(tmp_path)
        except ConfigError:
            continue
        read += 1
        theirs = Qwen3Config(**json.loads((tmp_path / "config.json").read_text())).rope_parameters
        assert ours.rope_theta == theirs["rope_theta"]
        assert (ours.rope_scaling is not None) == (theirs["rope_type"] == "llama3")
        for name, value in vars(ours.rope_scaling).items() if ours.rope_scaling else ():
            assert value == theirs[name]
    assert read > 50


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_is_its_preset(tmp_path, name):
    assert read_config(written(tmp_path, name)) == PRESETS[name]


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("smollm2-135m", {"attention_bias": True}, "attention_bias = True must be False"),
        ("smollm2-135m", {"mlp_bias": True}, "mlp_bias = True must be False"),
        ("smollm2-135m", {"hidden_act": "gelu"}, "hidden_act = 'gelu' must be 'silu'"),
        ("smollm2-135m", {"rope_interleaved": True}, "rope_interleaved = True must be False"),
        (
            "smollm2-135m",
            {"architectures": ["LlamaForCausalLM", "LlamaForSequenceClassification"]},
            "architectures = ['LlamaForCausalLM', 'LlamaForSequenceClassification'] must be ['LlamaForCausalLM']",
        ),
        ("smollm2-135m", {"model_type": "gemma"}, "model_type = 'gemma' must be 'qwen3' or 'qwen2' or 'llama' or 'mis"),
        (
            "smollm2-135m",
            {"model_type": "gemma3", "rope_parameters": {"full_attention": {}}},
            "model_type = 'gemma3' m",
        ),
        ("smollm2-135m", {"model_type": "mistral", "architectures": None}, "sliding_window = 4096 must be None"),
        ("smollm2-135m", {"hidden_size": "absent"}, "lacks hidden_size, head_dim"),
        ("smollm2-135m", {"quantization_config": {"quant_method": "gptq"}}, "must be None"),
        ("qwen2.5-0.5b", {"use_sliding_window": True}, "use_sliding_window = True must be False"),
        ("qwen2.5-0.5b", {"layer_types": ["full_attention", "sliding_attention"]}, "must be full_attention alone"),
        ("qwen2.5-0.5b", {"use_mrope": True}, "use_mrope = True must be False"),
        ("llama-3.2-1b", {"rope_scaling": {"rope_type": "yarn"}}, "rope_type = 'yarn' must be 'default' or 'llama3'"),
        (
            "llama-3.2-1b",
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "lacks low_freq_factor, high_freq_factor, original_max_position_embeddings",
        ),
        (QWEN3, {"rope_theta": "absent"}, "lacks rope_theta"),
        (QWEN3, {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 must be 1"),
        (QWEN3, {"rope_theta": "1000000"}, "rope_theta = '1000000' must be a number"),
        (QWEN3, {"tie_word_embeddings": "false"}, "tie_word_embeddings = 'false' must be a number, or true or false"),
        (QWEN3, {"text_config": {"rope_theta": 1e4}}, "text_config = {'rope_theta': 10000.0} must be None"),
        (QWEN3, {"num_experts": 128}, "num_experts = 128 must be 0"),
        (QWEN3, {"use_sliding_window": True}, "use_sliding_window = True must be False"),
    ],
)
def test_what_no_family_computes_is_refused_in_one_line(tmp_path, name, changes, complaint):
    with pytest.raises(ConfigError) as error:
        read_config(written(tmp_path, name, **changes))
    assert complaint in str(error.value) and "\n" not in str(error.value)
    assert str(tmp_path / "config.json") in str(error.value)


def test_no_config_no_shape(tmp_path):
    with pytest.raises(ConfigError, match=r"config.json: cannot read it"):
        read_config(tmp_path)
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"config.json: (cannot read it|must be of a dense decoder)"):
            read_config(tmp_path)

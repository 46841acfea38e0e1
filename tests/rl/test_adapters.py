"""A run with adapters is evaluated as it was trained, and not as its rounded merge."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from shapes import SMALL_JSON
from stage import Said

from rl import config as config_
from rl import evaluate, train
from rl.config import ConfigError
from rl.model import lora
from rl.model.policy import Policy
from rl.model.sharding import fingerprint
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.students import WriterStudent

SETTINGS = """
mesh: {{fsdp: 1}}
lake: {{kinds: [3]}}
validation: {{instances: 8, samples: 2, temperature: 0.9}}
rounds: {{count: 1, instances: 8}}
engineer: {{kind: uniform}}
student:
  model: {{shape: {folder}/shape.json, dtype: bfloat16, lora: {{rank: 2, alpha: 4.0}}}}
  text: {{max_prompt_tokens: 32, max_new_tokens: 40}}
  sampler: {{rows: 8}}
  warm_start: {{steps: 2, instances: 40, batch: 8, engineer_first: 0, optimizer: adamw, learning_rate: 0.05,
    warmup_steps: 0}}
  epochs: 1
  learn: {{prompts: 4, samples: 2, micro_batch: 4, engineer_every: 0, credit: outcome, learning_rate: 1.0e-2}}
  reward: {{kind: paper, free_tokens: 20, limit_tokens: 40}}
"""


@pytest.fixture
def trained(tmp_path, quick_compilation):
    """A run's folder, its policy, and parameters with both halves of the adapters drawn, as after some training."""
    (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    (tmp_path / "config.yaml").write_text(SETTINGS.format(folder=tmp_path))
    (tmp_path / "version.json").write_text('{"jaxlake": "0.1.0", "format": 3}')
    config = config_.load(tmp_path / "config.yaml")
    policy, parameters = Policy.create(config.student, config.mesh, make_key(config.seed, Purpose.PARAMETERS))
    adapters, base = lora.split(parameters)
    rng = np.random.default_rng(0)
    adapters = jax.tree.map(lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), adapters)
    parameters = nnx.merge_state(adapters, base)
    policy.save(tmp_path / "final", parameters)
    return tmp_path, policy, parameters


def test_a_run_is_loaded_as_it_was_trained_and_not_as_its_rounded_merge(trained):
    folder, policy, parameters = trained
    config = config_.load(folder / "config.yaml")
    again, loaded = Policy.load(
        config.student, config.mesh, folder / "final", make_key(config.seed, Purpose.PARAMETERS)
    )
    assert again.graph == policy.graph
    jax.tree.map(np.testing.assert_array_equal, loaded, parameters)


def test_adapters_are_not_put_on_another_base_or_tokenizer(trained):
    folder, policy, parameters = trained
    config, key = config_.load(folder / "config.yaml"), make_key(1, Purpose.PARAMETERS)
    assert policy.source(parameters).keys() >= {"tokenizer", "rope_theta", "base"}
    with pytest.raises(ConfigError, match=r"final/adapters: base was \w{64}, is now \w{64}; "):
        Policy.load(config.student, config.mesh, folder / "final", key)  # a base of another seed
    grown = dataclasses.replace(policy, tokenizer=policy.tokenizer.with_tokens(["a phrase"]))
    with pytest.raises(ConfigError, match="tokenizer was "):
        lora.load(folder / "final/adapters", parameters, grown.source(parameters))


@pytest.mark.heavy
def test_a_run_is_evaluated_as_it_was_trained(tmp_path, capsys, quick_compilation):
    (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    (tmp_path / "micro.yaml").write_text(SETTINGS.format(folder=tmp_path))
    run = tmp_path / "run"
    assert train.main(["--config", str(tmp_path / "micro.yaml"), "--run", str(run)]) == 0

    # The last checkpoint holds the adapters themselves, the run's seed and shape give the base.
    config = config_.load(run / "config.yaml")
    student = WriterStudent(config)
    student.restore(RunDirectory(run, config), Said())
    capsys.readouterr()
    arguments = ["--run", str(run), "--suite", "validation", "--limit", "1"]
    assert evaluate.main(arguments) == 0
    figures = json.loads((run / "evaluations/validation/scores.json").read_text())
    assert figures["parameters"] == fingerprint(student.state.parameters)
    assert "of them trained" in capsys.readouterr().out

"""The supervised step against cross-entropy by hand, and the command: whole, continued, and misused."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from shapes import SMALL, SMALL_JSON, shard_parameters

from rl import train
from rl.learn import supervised
from rl.learn.optimizer import init_state
from rl.model import lora
from rl.model.decoder import abstract, create, token_positions
from rl.model.logprobs import join, take
from rl.model.sharding import make_mesh, rows_for, shard_batch

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def parameters():
    return create(SMALL, jax.random.key(0))[1]


def examples():
    """Six answers, each the prompt said backwards."""
    prompts = [[1, 2], [3], [4, 5, 6], [7, 8], [9], [10, 11, 12]]
    answers, mask = np.zeros((6, 3), np.int32), np.arange(3) < np.array([len(p) for p in prompts])[:, None]
    answers[mask] = [token for prompt in prompts for token in reversed(prompt)]
    return join(prompts, 3, answers, mask)


def cross_entropy(parameters, data):
    """Over all logits of all positions."""
    model = nnx.merge(abstract(SMALL)[0], parameters)
    logprobs = jax.nn.log_softmax(model.logits(model(data.tokens, token_positions(data.valid), data.valid)))
    rows, at = np.arange(6)[:, None], examples().starts[:, None] + np.arange(3)
    return -(logprobs[rows, at - 1, data.tokens[rows, at]] * data.mask).sum() / data.mask.sum()


@pytest.mark.heavy
def test_a_step_goes_down_the_mean_cross_entropy_and_the_next_compiles_nothing(parameters):
    mesh, data, optimizer = make_mesh(4, 2), examples(), optax.sgd(1.0)
    value, gradient = jax.jit(jax.value_and_grad(cross_entropy))(parameters, data)
    trained, frozen = lora.split(shard_parameters(jax.tree.map(jnp.copy, parameters), mesh))
    batch = shard_batch(take(data, np.arange(6), rows_for(6, mesh)), mesh)  # eight rows on four devices, six count
    state = init_state(optimizer, trained, mesh)
    graph, _ = abstract(SMALL, mesh)
    after, state, found = supervised.update(graph, optimizer, trained, frozen, state, batch, mesh=mesh)
    assert float(found["loss"]) == pytest.approx(float(value), rel=1e-5)
    assert float(found["gradient_norm"]) == pytest.approx(float(optax.global_norm(gradient)), rel=1e-5)
    assert float(found["update_skipped"]) == 0
    for old, new, g in zip(*map(jax.tree.leaves, (parameters, after, gradient)), strict=True):
        np.testing.assert_allclose(np.asarray(old) - np.asarray(new), g, rtol=0, atol=1e-5 * np.abs(g).max())

    programs = supervised.update._cache_size()
    *_, again = supervised.update(graph, optimizer, after, frozen, state, batch, mesh=mesh)
    assert float(again["loss"]) < float(found["loss"])
    assert supervised.update._cache_size() == programs


MICRO = """
lake: {{kinds: [3]}}
rounds: {{count: 1, instances: 8}}
validation: {{instances: 16, samples: 2}}
engineer: {{max_prompt_tokens: 512, max_thinking_tokens: 8, max_answer_tokens: 64}}
checkpoint: {{every_steps: 2}}
student:
  model: {{shape: {folder}/shape.json}}
  text: {{max_prompt_tokens: 32, max_new_tokens: 24}}
  sampler: {{rows: 16}}
  warm_start: {{steps: 6, instances: 64, batch: 16, engineer_first: 0, engineer_every: 3, engineer_batch: 8,
               learning_rate: 0.01,
               warmup_steps: 2, schedule: linear, max_context_tokens: 512, max_answer_tokens: 64}}
  learn: {{prompts: 8, samples: 2, micro_batch: 16}}
  reward: {{free_tokens: 12, limit_tokens: 24}}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sft")
    (folder / "shape.json").write_text(json.dumps(SMALL_JSON))
    (folder / "micro.yaml").write_text(MICRO.format(folder=folder))
    return folder


def teach(workspace: Path, run: str, *overrides: str) -> int:
    """Do the warm start alone; return the exit code."""
    command = ["--config", str(workspace / "micro.yaml"), "--run", str(workspace / run), *overrides]
    return train.main([*command, "--until", "warm_start"])


def steps(workspace: Path, run: str) -> list[dict]:
    return [json.loads(line) for line in (workspace / run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.heavy
def test_the_command_leaves_what_it_promises(workspace):
    assert teach(workspace, "taught") == 0
    rows = steps(workspace, "taught")
    assert [(row["phase"], row["step"]) for row in rows] == [("warm_start", step) for step in range(1, 7)]
    kinds = [{"plan_loss", "engineer_loss"} & row.keys() for row in rows]
    assert kinds == [{"engineer_loss"}, {"plan_loss"}, {"plan_loss"}] * 2
    rates = [0, 0.005, 0.01, 0.0075, 0.005, 0.0025]  # two steps up, then down to what a seventh would have
    assert [row["learning_rate"] for row in rows] == pytest.approx(rates)
    assert all(row["gradient_norm"] > 0 and row["update_skipped"] == 0 for row in rows)
    run = workspace / "taught"
    for name in ("warm_start/evidence.json", "final/config.json", "report/report.html"):
        assert (run / name).exists(), name
    assert not (run / "rounds").exists() and not (run / "before").exists()  # random parameters solve nothing


def test_nothing_to_teach_is_a_mistake_in_one_line(workspace, capsys):
    assert teach(workspace, "nothing", "student.warm_start.steps=0") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --until warm_start: student.warm_start.steps = 0 must") and error.count("\n") == 1
    assert not (workspace / "nothing").exists()

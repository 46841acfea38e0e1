"""Hours of a run: operations counted by hand, runs as the sampler's queue has them, rates from a run's own logs."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from shapes import SMALL

from rl import config as config_
from rl import cost, train
from rl.config import ConfigError
from rl.qwen3.model import abstract
from rl.sampler import Sampler
from rl.sampler.schedule import Schedule

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = config_.load(CONFIGS / "qwen3-4b.yaml")
MESH = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))


def test_operations_are_those_of_all_devices_together():
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("fsdp", "tp"))
    x, w = (
        jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P(*axes)))
        for axes in (("fsdp",), (None, "tp"))
    )
    assert cost.matmul_flops(jax.jit(lambda x, w: x @ w).lower(x, w)) == 2 * 64**3


@pytest.mark.parametrize("derivative, products", [(False, 1), (True, 4)])
def test_a_loop_counts_as_often_as_it_runs(derivative, products):
    """Ten products of 64 x 256 by 256 x 256; with recomputation a gradient has each four times."""

    def chain(x, weights):
        layer = jax.checkpoint(lambda x, weight: (jnp.tanh(x @ weight), None))
        return jax.lax.scan(layer, x, weights)[0].sum()

    function = jax.grad(chain, argnums=1) if derivative else chain
    lowered = jax.jit(function).lower(jnp.ones((64, 256)), jnp.ones((10, 256, 256)))
    assert cost.matmul_flops(lowered) == products * 10 * 2 * 64 * 256 * 256


def test_a_token_takes_two_operations_a_weight():
    """One pass through the loop over tokens: every matrix, the head once, and of the cache one tile, here all slots."""
    graph, parameters = abstract(SMALL, MESH)
    sampler = Sampler(graph, SMALL, MESH, 8, max_prompt_tokens=5, max_new_tokens=9, stop_ids=(3,))
    matrices = sum(x.size for x in jax.tree.leaves(parameters) if x.ndim > 1 and min(x.shape[-2:]) > 1)
    assert matrices == 16 * 16 + (2 * 16 * 16 + 2 * 16 * 8) + 3 * 16 * 24  # head, attention, feed-forward
    assert cost.matmul_flops(sampler.lower(parameters, 1)["decode"]) == 2 * 8 * (matrices + 2 * 16 * (5 + 9))


def test_the_papers_run_has_the_steps_and_tokens_that_it_is_known_to_have():
    work = cost.work_of(PAPER)
    assert (work.steps, work.answers) == (3000, 64)  # 3 rounds x 2 epochs x 4,000 boards, 8 a step
    assert work.trained_answers * PAPER.text.max_new_tokens == pytest.approx(1.57e9, rel=0.01)
    assert (work.validations, work.validation_answers) == (4, 400 * 5)


def phases(config, tokens):
    plain = cost.ProgramCost(1e12, 1e9)
    costs = {"prefill": plain, "update": plain, "decode": dataclasses.replace(plain, cache=6e8)}
    costs["gradient"] = dataclasses.replace(plain, answers=4)
    return {x.name: x for x in cost.phases(config, MESH, costs, tokens)}


def test_programs_run_as_often_as_the_queue_runs_them_when_all_answers_are_as_long():
    """Admissions and tokens of a step, by the sampler's own bookkeeping: 64 answers in 48 rows are filled in twice."""
    schedule, admissions, waves = Schedule([0], PAPER.sampler.rows, 8, 8), 0, 0
    while schedule.active:
        while schedule.ready:
            schedule.admit()
            admissions += 1
        schedule.release(np.ones(PAPER.sampler.rows, bool))
        waves += 1
    found = phases(PAPER, 100)
    validations = 4 * (-(-400 // 48) + -(-400 // (48 // 4))) * 100
    assert found["prefill"].runs == 3000 * admissions
    assert found["decode"].runs == 3000 * waves * 100 + validations
    assert found["gradient"].runs == 3000 * 64 / 4
    assert found["update"].runs == 3000


def test_shorter_answers_take_as_much_less():
    long, short = (phases(PAPER, tokens) for tokens in (8192, 3840))
    assert short["decode"].runs / long["decode"].runs == pytest.approx(3840 / 8192)
    assert short["gradient"].flops / long["gradient"].flops == (512 + 3840) / (512 + 8192)
    for found, tokens in ((long, 8192), (short, 3840)):  # weights, and the filled part of the cache
        assert found["decode"].bytes == pytest.approx(4e8 + 6e8 * (512 + tokens / 2) / (512 + 8192))


def test_a_run_takes_its_operations_or_its_bytes_whichever_is_longer():
    rates = cost.Rates("one", 1e12 / cost.MATRIX_SHARE, 1e9 / cost.MEMORY_SHARE)
    assert cost.Phase("a", 7, 2e12, 1e9).seconds(rates) == pytest.approx(2)
    assert cost.Phase("b", 7, 2e12, 3e9).seconds(rates) == pytest.approx(3)
    both = [cost.Phase("a", 1800, 2e12, 1e9), cost.Phase("b", 600, 2e12, 3e9)]
    assert cost.hours(both, rates) == pytest.approx(1.5)


def test_a_tpu_is_not_taken_for_another_whose_name_begins_alike():
    @dataclasses.dataclass
    class Device:
        device_kind: str
        platform: str = "tpu"

    named = {kind: cost.rates_of(Device(kind)) for kind in ("TPU v5 lite", "TPU v5", "TPU v6 lite", "NVIDIA H100 NVL")}
    assert [rates.name for rates in named.values()] == ["v5e", "v5p", "v6e", "H100"]
    assert cost.rates_of(Device("TPU v9")) is None


@pytest.fixture
def finished(tmp_path):
    """The logs of a run: three steps of 16 answers, the first of which compiles."""

    def write(*, computed=0.5, compilations=(3, 0, 0)):
        (tmp_path / "config.yaml").write_text("grpo: {prompts: 4, samples: 4}\nrounds: {instances: 8}\n")
        metrics = [{"phase": "warm_start", "loss": 1.0}]
        timings = [{"phase": "warm_start", "update": 9.0, "compilations": 0}]
        for tokens, count in zip((500, 900, 1100), compilations, strict=True):
            metrics.append({"phase": "round", "answer_tokens": tokens, "groups_sampled": 4, "rows_computed": computed})
            parts = {"rollout": 16.0, "host": 1.0, "update": 3.0} if not count else {"rollout": 99.0, "update": 99.0}
            timings.append({"phase": "round", "compilations": count, **parts})
        for name, rows in (("metrics", metrics), ("timings", timings)):
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path

    return write


def test_a_run_tells_the_hours_of_a_larger_one(finished):
    """32,000 tokens in 32 s are 1 ms each; half of them trained on in 8 s, .5 ms each."""
    table = cost.forecast(finished(), [cost.Target("qwen3-4b.yaml", PAPER)])
    tokens = 3000 * 64 * np.array([1000, 8192])
    for row, expected, length in zip(table.rows, tokens, ("1,000", "8,192"), strict=True):
        write, train, validate = expected / 3.6e6, expected / 7.2e6, expected / (3000 * 64) * 8000 / 3.6e6
        assert row[:3] == ("qwen3-4b.yaml", "3,000", length)
        assert row[4:] == tuple(f"{x:,.1f}" for x in (write, train, validate, write + train + validate))
    assert "From 2 of 3 steps, those that compiled nothing: 1 ms to write a token, 0.5 ms to train on it" in table.note
    assert len(table.to_text().splitlines()) == 8, "in one piece, on 80 columns"


def test_what_no_step_measured_is_not_told(finished):
    (row, _) = cost.forecast(finished(computed=0.0), [cost.Target("qwen3-4b.yaml", PAPER)]).rows
    assert row[5] == "-"
    table = cost.forecast(finished(compilations=(3, 1, 1)), [cost.Target("qwen3-4b.yaml", PAPER)])
    assert "From 3 of 3 steps, all of which waited for the compiler" in table.note
    run = finished()
    for name in ("metrics", "timings"):
        (run / f"{name}.jsonl").write_text("")
    assert cost.forecast(run, [cost.Target("qwen3-4b.yaml", PAPER)]) is None


@pytest.mark.parametrize(
    "name, said", [("none.yaml", "none.yaml: there is no such file"), ("lab.yaml", "is a network")]
)
def test_a_forecast_of_what_is_no_run_of_a_policy_is_refused_before_the_run(tmp_path, capsys, name, said):
    arguments = ["--run", str(tmp_path / "run"), f"tracking.forecast=[{name}]"]
    assert train.main(arguments) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=said):
        cost.targets(config_.load(CONFIGS / "tiny.yaml", [f"tracking.forecast=[{name}]"]))

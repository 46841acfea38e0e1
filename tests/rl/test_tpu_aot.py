"""Qwen3-4B's programs, compiled for TPUs that are not here, keep within what those have; minutes each.

pytest -m tpu_aot -n 0
"""

import dataclasses
from pathlib import Path

import pytest

from rl import config as config_
from rl import plan
from rl.qwen3.sharding import make_mesh

pytestmark = pytest.mark.tpu_aot
pytest.importorskip("libtpu")

CONFIG = Path(__file__).parents[2] / "configs" / "qwen3-4b-v5e-8.yaml"
GIB = 2**30


def compiled(topology, names, *overrides):
    """The figures of some of the run's programs on a topology."""
    config = config_.load(CONFIG, overrides)
    mesh = make_mesh(config.mesh.fsdp, config.mesh.tp, plan.topology_devices(topology))
    limit = plan.memory(mesh)
    found = [program for program in plan.programs(config, mesh) if program.name in names]
    assert len(found) == len(names)
    return [plan.compile(program, limit) for program in found]


@pytest.mark.parametrize("names", [("cast", "prefill", "prefill, validation", "decode"), ("gradient", "update")])
def test_training_all_of_qwen3_4b_fits_eight_tpus_of_16_gigabytes_in_each_phase(names):
    config = config_.load(CONFIG)
    tokens = config.grpo.micro_batch * (config.text.max_prompt_tokens + config.text.max_new_tokens)
    assert tokens == 8 * 2 * 2048, "two sequences of 2,048 tokens a chip"
    for figures in compiled("v5e:2x4", names):
        assert figures.fits, dataclasses.asdict(figures)


def test_a_gradient_takes_at_most_6_gibibytes_of_temporaries_on_v5p():
    (figures,) = compiled("v5p:2x2x2", ["gradient"], "mesh.fsdp=8", "mesh.tp=1")
    assert figures.temporaries <= 6 * GIB


@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize("mesh", [("mesh.fsdp=8", "mesh.tp=1"), ("mesh.fsdp=4", "mesh.tp=2")])
def test_a_token_gathers_no_weight_and_copies_no_cache(topology, mesh):
    (figures,) = compiled(topology, ["decode"], *mesh)
    assert figures.loop.weight_gathers == {}
    assert figures.loop.cache_copies == {}
    assert figures.temporaries < GIB

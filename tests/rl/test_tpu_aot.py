"""Qwen3-4B's programs, compiled for TPUs that are not here, keep within what those have; minutes each.

pytest -m tpu_aot -n 0

Tests that load libtpu are all marked so: without a TPU, jax.profiler then crashes when it starts in the same process.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rl import config as config_
from rl import plan, students
from rl.model.sharding import make_mesh

pytestmark = pytest.mark.tpu_aot
pytest.importorskip("libtpu")


@pytest.fixture(autouse=True)
def precision_of_a_run():
    """The tests' own, float32's, is one that libtpu 0.0.52 refuses in attention's bfloat16 products."""
    with jax.default_matmul_precision("default"):
        yield


CONFIG = Path(__file__).parents[2] / "configs" / "qwen3-4b-v5e-8.yaml"
GIB = 2**30


def compiled(topology, names, *overrides):
    """The figures of some of the run's programs on a topology."""
    config = config_.load(CONFIG, overrides)
    mesh = make_mesh(config.mesh.fsdp, config.mesh.tp, plan.topology_devices(topology))
    limit = plan.memory(mesh)
    found = [program for program in students.programs(config, mesh) if program.name in names]
    assert len(found) == len(names)
    return [plan.compile(program, limit) for program in found]


def test_training_all_of_qwen3_4b_fits_eight_tpus_of_16_gigabytes():
    config = config_.load(CONFIG)
    tokens = config.student.learn.micro_batch * (
        config.student.text.max_prompt_tokens + config.student.text.max_new_tokens
    )
    assert tokens == 8 * 2 * 2048, "two sequences of 2,048 tokens a chip"
    for figures in compiled("v5e:2x4", ["decode", "gradient"]):
        assert figures.fits, dataclasses.asdict(figures)


def test_a_gradient_takes_at_most_6_gibibytes_of_temporaries_on_v5p():
    (figures,) = compiled("v5p:2x2x2", ["gradient"], "mesh.fsdp=8", "mesh.tp=1")
    assert figures.temporaries <= 6 * GIB


@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize("mesh", [("mesh.fsdp=8", "mesh.tp=1"), ("mesh.fsdp=4", "mesh.tp=2")])
def test_a_token_has_no_room_for_a_gathered_weight_or_a_copy_of_the_cache(topology, mesh):
    (figures,) = compiled(topology, ["decode"], *mesh)
    assert figures.temporaries < GIB


def test_a_program_that_the_compiler_refuses_takes_what_the_compiler_says():
    whole = NamedSharding(Mesh(np.array(plan.topology_devices("v5e:1x1")).reshape(1, 1), ("fsdp", "tp")), P())
    x = jax.ShapeDtypeStruct((12 * 2**18, 1024), jnp.float32, sharding=whole)
    sort = jax.jit(lambda x: jnp.sort(2 * x[: 8 * 2**18], axis=0).sum())
    figures = plan.compile(students.Program("sort", lambda: sort.lower(x), x), int(15.75 * plan.GIB))
    assert not figures.fits
    assert figures.arguments == 12 * plan.GIB
    assert 7 * plan.GIB < figures.temporaries < 17 * plan.GIB  # of 8 GiB, and the sorted ones

"""The plan's figures are those of the programs a run compiles, and its verdict is plain."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rl import config as config_
from rl import plan, students

TINY = Path(__file__).parents[2] / "configs" / "tiny.yaml"
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def tiny():
    """The tiny run's programs on four virtual devices, with what the compiler says of each."""
    config = config_.load(TINY, ["student.warm_start.steps=0", "student.model.remat=none"])
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("fsdp", "tp"))
    return {program.name: (program, plan.compile(program, 2**30)) for program in students.programs(config, mesh)}


@pytest.mark.heavy
def test_what_a_program_takes_is_what_was_counted_before_it_was_compiled(tiny):
    for program, figures in tiny.values():
        batch = figures.arguments - plan.per_device(program.arguments)
        assert 0 <= batch < MEGABYTE / 4, program.name
        assert figures.outputs < MEGABYTE / 4, program.name  # donated arguments are written over


@pytest.mark.heavy
def test_the_optimizer_waits_beside_both(tiny):
    (_, decode), (gradient, figures) = tiny["decode"], tiny["gradient"]
    parameters = plan.per_device(gradient.arguments) / 2  # it takes them and the gradient so far
    assert figures.beside == pytest.approx(2 * parameters, rel=0.01)
    assert decode.beside > figures.beside  # and the trainer's parameters


def one_program():
    """A program of one product on one device, in the place of an update."""
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp")), P())
    x = jax.ShapeDtypeStruct((4096, 4096), jnp.float32, sharding=sharding)
    return students.Program("update", lambda: jax.jit(lambda x: x @ x).lower(x), x, (x, x))


def test_a_plan_that_does_not_fit_says_so_and_ends_with_1(monkeypatch, capsys):
    monkeypatch.setattr(plan, "programs", lambda config, mesh: [one_program()])
    arguments = ["--config", str(TINY), "mesh.fsdp=1"]
    assert plan.main(arguments) == 0
    assert "\nfits: update takes the most, 0.25 of " in capsys.readouterr().out
    monkeypatch.setattr(plan, "memory", lambda mesh: plan.GIB // 5)
    assert plan.main(arguments) == 1
    assert "does NOT fit: update takes the most, 0.25 of 0.20 GiB" in capsys.readouterr().out

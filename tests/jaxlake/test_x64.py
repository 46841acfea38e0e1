"""``JAX_ENABLE_X64=1``, another setting of JAX, changes no result; `test_loops.py` traces steps with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import Kind, LakeConfig, LevelBank, Objective, action_values, generate, joint_values, pibt, solve, verify
from tests.support.strict import settings


def results():
    """What the generator, the solvers, the planner and the verifier make of one key."""
    config = LakeConfig.random([Kind.of(kind) for kind in (3, "4x3", "rooms5")], jax.random.key(7))
    found = generate(config, jax.random.key(2), 40)
    boards, plans, optimum = found.instances, found.solutions.plan, found.solutions.cost
    wrong = plans.replace(paths=np.where(np.arange(plans.paths.size).reshape(plans.paths.shape) % 41, plans.paths, 3))
    verdicts = [verify(boards, each, optimum, by) for each in (plans, wrong) for by in Objective]
    joint = joint_values(boards, 2)
    values = joint.values, jax.vmap(action_values)(joint, jnp.asarray(boards.starts[:, :2]))
    drawn = jax.vmap(LevelBank.build(boards, with_distances=True).draw)(jax.random.split(jax.random.key(3), 64))
    planned = pibt.plan(boards, jax.random.key(4), max_steps=40)
    return config.data, boards, found.needs_wait, verdicts, solve(boards, Objective.MAKESPAN), values, drawn, planned


@pytest.mark.heavy
def test_sixty_four_bits_change_no_result():
    usual = results()
    with settings(jax_enable_x64=True):
        wide = results()
    jax.tree.map(np.testing.assert_array_equal, wide, usual)
    assert [leaf.dtype for leaf in jax.tree.leaves(wide[1:])] == [leaf.dtype for leaf in jax.tree.leaves(usual[1:])]

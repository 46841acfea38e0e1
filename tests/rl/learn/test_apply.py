"""The optimizer's step on a few numbers: what must be finite, and what a half-precision weight would lose."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from rl.learn import grpo
from rl.model.sharding import make_mesh

ADAM = optax.adam(1e-2)
ONE = make_mesh(1, 1)


def one_weight(dtype):
    """Parameters, as `apply` takes them, of four ones."""
    return nnx.State({"weight": nnx.Param(jnp.ones(4, dtype), spec=P(None))})


@pytest.mark.parametrize(
    ("gradient", "loss"), [(np.nan, 1.0), (np.inf, 1.0), (1e30, 1.0), (1.0, np.nan), (1.0, np.inf)]
)
def test_loss_and_gradient_norm_must_both_be_finite(gradient, loss):
    trained, state = one_weight(jnp.float32), ADAM.init(one_weight(jnp.float32))
    total = grpo.Total(gradients=jax.tree.map(lambda w: w * jnp.float32(gradient), trained), loss=jnp.float32(loss))
    after, state, _, finite = grpo.apply(ADAM, trained, state, total, np.float32(1), mesh=ONE)
    assert not finite
    np.testing.assert_array_equal(after["weight"][...], 1)
    assert state[0].count == 0 and not state[0].mu["weight"][...].any()

"""Where parameters, their derivatives and batches lie on meshes of eight devices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P
from shapes import MEDIUM, shard_parameters

from rl.config import ConfigError
from rl.learn.optimizer import init_state
from rl.model import sharding
from rl.model.decoder import abstract

SHAPE = dataclasses.replace(MEDIUM, hidden_size=16, intermediate_size=24, num_hidden_layers=3, dtype=jnp.bfloat16)


def named(tree):
    """The array of each parameter, which flax 0.11 and 0.12 take out of its variable by different names."""
    return {".".join(map(str, path)): jax.tree.leaves(v)[0] for path, v in nnx.to_flat_state(tree)}


def specs(tree):
    return {path: x.sharding.spec for path, x in named(tree).items()}


@pytest.fixture(scope="module")
def parameters():
    """On one device, to be placed."""
    noise = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(noise.normal(size=x.shape), x.dtype), abstract(SHAPE)[1])


@pytest.mark.heavy
def test_parameters_and_the_optimizers_moments_lie_by_one_declaration(parameters):
    mesh = sharding.make_mesh(4, 2)
    parameters = shard_parameters(parameters, mesh)
    state = init_state(optax.adam(1e-3), parameters, mesh)
    found = specs(parameters)
    assert found["embed_tokens.weight"] == P("tp", "fsdp")
    assert found["layers.self_attn.q_proj.weight"] == P(None, "fsdp", "tp")
    assert found["layers.mlp.down_proj.weight"] == P(None, "tp", "fsdp")
    assert found["norm.weight"] == P()
    assert specs(state[0].mu) == specs(state[0].nu) == found
    assert state[0].count.sharding.is_fully_replicated


@pytest.mark.parametrize(("fsdp", "tp"), [(8, 1), (4, 2)])
def test_rollout_weights_are_cast_matrices_whole_along_fsdp(parameters, fsdp, tp):
    mesh = sharding.make_mesh(fsdp, tp)
    placed = shard_parameters(parameters, mesh)
    rollout = sharding.for_rollout(placed, jnp.bfloat16, mesh)
    assert jax.tree.structure(rollout) == jax.tree.structure(parameters)
    after, before = named(rollout), named(parameters)
    assert after.keys() == before.keys()
    for path, x in after.items():
        dtype = jnp.float32 if "norm" in path.split(".")[-2] else jnp.bfloat16
        np.testing.assert_array_equal(x, before[path].astype(dtype))
        assert "fsdp" not in x.sharding.spec
    assert specs(rollout)["layers.mlp.down_proj.weight"] == (P(None, "tp") if tp == 2 else P())
    places = jax.tree.leaves(sharding.rollout_shardings(parameters, mesh))
    assert [x.sharding for x in jax.tree.leaves(rollout)] == places
    assert not any(x.is_deleted() for x in jax.tree.leaves(placed))


def test_rollout_weights_that_need_no_change_are_no_copies(parameters):
    mesh = sharding.make_mesh(1, 1)
    placed = shard_parameters(parameters, mesh)
    once = sharding.for_rollout(placed, jnp.bfloat16, mesh)
    twice = sharding.for_rollout(once, jnp.bfloat16, mesh)
    for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True):
        assert a.unsafe_buffer_pointer() == b.unsafe_buffer_pointer()


def test_a_batch_is_shared_over_fsdp():
    mesh = sharding.make_mesh(4, 2)
    batch = np.arange(24).reshape(8, 3)
    placed = sharding.shard_batch(batch, mesh)
    np.testing.assert_array_equal(placed, batch)
    assert {shard.data.shape for shard in placed.addressable_shards} == {(2, 3)}
    assert [sharding.rows_for(rows, mesh) for rows in (1, 4, 5)] == [4, 4, 8]


@dataclasses.dataclass(frozen=True)
class Device:
    """What `make_mesh` asks of one."""

    process_index: int
    id: int


def test_the_devices_of_a_process_lie_side_by_side_along_fsdp():
    devices = [Device(process_index=i % 2, id=i) for i in range(8)]
    mesh = sharding.make_mesh(-1, 2, devices)
    assert [[device.process_index for device in row] for row in mesh.devices] == [[0, 0], [0, 0], [1, 1], [1, 1]]
    for fsdp, tp in ((-1, 8), (2, 2), (8, 2)):
        with pytest.raises(ConfigError, match=f"mesh.fsdp = {fsdp}, mesh.tp = {tp}: must be at most the 8 devices"):
            sharding.make_mesh(fsdp, tp, devices)

"""The optimizer against optax and rates worked out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P
from shapes import SMALL

from rl.config import LearnSection, OptimizerFields, WarmStartSection
from rl.learn.optimizer import learning_rate, make_optimizer, updates_made
from rl.model.decoder import create

pytestmark = pytest.mark.usefixtures("quick_compilation")

SHAPE = dataclasses.replace(SMALL, num_hidden_layers=2)


def rates(updates: int, **settings) -> list[float]:
    schedule = learning_rate(
        LearnSection(**{"learning_rate": 0.8, "schedule": "constant", "warmup_steps": 0} | settings), updates
    )
    return [float(schedule(update)) for update in range(updates + 1)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.8] * 7),
        ({"warmup_steps": 4}, [0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8]),
        ({"schedule": "linear"}, [0.8, 2 / 3, 1.6 / 3, 0.4, 0.8 / 3, 0.4 / 3, 0]),
        ({"schedule": "linear", "warmup_steps": 2}, [0, 0.4, 0.8, 0.6, 0.4, 0.2, 0]),
        # 60 degrees an update: 0.8 (1 + cos) / 2.
        ({"schedule": "cosine", "warmup_steps": 3}, [0, 0.8 / 3, 1.6 / 3, 0.8, 0.6, 0.2, 0]),
        ({"schedule": "cosine", "warmup_steps": 12}, [0.8 * i / 12 for i in range(7)]),
    ],
)
def test_the_rate_rises_from_zero_and_goes_down_as_asked(settings, expected):
    assert rates(6, **settings) == pytest.approx(expected, abs=1e-7)


@pytest.fixture(scope="module")
def parameters() -> nnx.State:
    return create(SHAPE, jax.random.key(0))[1]


def gradients(parameters: nnx.State, update: int) -> nnx.State:
    keys = iter(jax.random.split(jax.random.key(update), len(jax.tree.leaves(parameters))))
    return jax.tree.map(lambda p: jax.random.normal(next(keys), p.shape), parameters)


def trained(optimizer: optax.GradientTransformation, parameters: nnx.State, updates: int) -> tuple:
    @jax.jit
    def step(parameters, state, gradients):
        changes, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, changes), state

    state = optimizer.init(parameters)
    for update in range(updates):
        parameters, state = step(parameters, state, gradients(parameters, update))
    return parameters, state


def test_an_optimizer_of_ones_own_gets_clipped_gradients_and_the_rate_and_matrices_decay_beside_it():
    weights = gradient = nnx.State(
        {"w": nnx.Param(jnp.full((1, 1), 3.0), spec=P(None, None)), "norm": nnx.Param(jnp.full(1, 4.0), spec=P(None))}
    )
    settings = {"learning_rate": 0.5, "schedule": "linear", "warmup_steps": 0, "weight_decay": 0.1}
    optimizer = make_optimizer(WarmStartSection(optimizer="optax:sgd", **settings), 2)
    state, found = optimizer.init(weights), []
    for _ in range(2):  # at rates of 1/2 and 1/4, by gradients of .6 and .8
        change, state = optimizer.update(gradient, state, weights)
        weights = optax.apply_updates(weights, change)
        found.append((float(weights["w"][0, 0]), float(weights["norm"][0])))
    np.testing.assert_allclose(found, [(3 - 0.5 * (0.6 + 0.3), 3.6), (2.55 - 0.25 * (0.6 + 0.255), 3.4)], rtol=1e-6)
    assert updates_made(state) == 2


@pytest.mark.heavy
def test_it_is_clipped_adamw_of_optax_bit_for_bit(parameters):
    plain = optax.adamw(optax.linear_schedule(0.0, 1.5e-3, 2), b2=0.98, weight_decay=0.0)
    settings = OptimizerFields(learning_rate=1.5e-3, warmup_steps=2)
    ours, _ = trained(make_optimizer(settings, 4), parameters, 4)
    theirs, _ = trained(optax.chain(optax.clip_by_global_norm(1.0), plain), parameters, 4)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.heavy
def test_matrices_decay_and_norms_do_not(parameters):
    settings = {"learning_rate": 0.5, "optimizer": "adamw", "warmup_steps": 0}
    decayed, _ = trained(make_optimizer(WarmStartSection(weight_decay=0.01, **settings), 1), parameters, 1)
    plain, _ = trained(make_optimizer(OptimizerFields(**settings), 1), parameters, 1)
    matrices = {
        ".".join(path)
        for (path, before), (_, with_it), (_, without) in zip(
            *map(nnx.to_flat_state, (parameters, decayed, plain)), strict=True
        )
        if np.abs(without[...] - with_it[...] - 0.5 * 0.01 * before[...]).max() < 1e-6
    }
    untouched = {
        ".".join(path)
        for (path, with_it), (_, without) in zip(*map(nnx.to_flat_state, (decayed, plain)), strict=True)
        if np.array_equal(with_it[...], without[...])
    }
    norms = {"input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"}
    assert untouched == {"norm.weight"} | {f"layers.{name}.weight" for name in norms}
    assert "embed_tokens.weight" in matrices and "layers.mlp.down_proj.weight" in matrices
    assert len(matrices) + len(untouched) == len(nnx.to_flat_state(parameters))

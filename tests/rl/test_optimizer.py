"""The optimizer against optax and rates worked out by hand."""

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
from rl.model.decoder import abstract


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


def test_it_is_clipped_adamw_of_optax_bit_for_bit():
    plain = optax.adamw(optax.linear_schedule(0.0, 1.5e-3, 2), b2=0.98, weight_decay=0.0)
    reference = optax.chain(optax.clip_by_global_norm(1.0), plain)
    ours = make_optimizer(OptimizerFields(learning_rate=1.5e-3, warmup_steps=2), 4)
    weights = nnx.State({"w": nnx.Param(jax.random.normal(jax.random.key(0), (4, 3)), spec=P(None, None))})
    states = [optimizer.init(weights) for optimizer in (ours, reference)]
    for update in range(4):
        gradient = jax.tree.map(lambda w, update=update: jax.random.normal(jax.random.key(update), w.shape), weights)
        made = [one.update(gradient, state, weights) for one, state in zip((ours, reference), states, strict=True)]
        (change, expected), states = zip(*made, strict=True)
        jax.tree.map(np.testing.assert_array_equal, change, expected)
        weights = optax.apply_updates(weights, change)


def test_matrices_of_a_model_decay_and_its_norms_do_not():
    settings = {"learning_rate": 0.5, "optimizer": "adamw", "warmup_steps": 0, "weight_decay": 0.01}
    optimizer, parameters = make_optimizer(WarmStartSection(**settings), 1), abstract(SMALL)[1]
    parameters, zeros = (jax.tree.map(lambda x, v=v: np.full(x.shape, v, x.dtype), parameters) for v in (1, 0))
    changes, _ = jax.jit(optimizer.update)(zeros, optimizer.init(parameters), parameters)
    decay = {".".join(path): np.unique(change[...]).tolist() for path, change in nnx.to_flat_state(changes)}
    norms = {name for name in decay if "norm" in name}
    layer = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
    assert norms == {"norm.weight", *(f"layers.{name}.weight" for name in layer)}
    assert all(change == ([0] if name in norms else [pytest.approx(-0.5 * 0.01)]) for name, change in decay.items())

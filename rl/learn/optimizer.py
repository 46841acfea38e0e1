"""The optimizer of every stage: AdamW, Muon or a user's own, with schedule, clipping and decay; by optax."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from jaxlake.record import Array
from rl.config import EngineerExamplesSection, OptimizerFields, extensions
from rl.model import sharding

ADAM_RMS = 0.2
"""Typical root mean square of AdamW's update over its rate (Liu et al. 2025), so that one rate serves both."""
MAX_NORM = 1.0
"""Norm to which a longer gradient is scaled down."""
B2 = 0.98
"""Decay of the second moment. Steps are few (270 in the tiny run) and rewards move: .999 remembers 1,000 of them."""


@functools.cache
def make_optimizer(settings: OptimizerFields, updates: int) -> optax.GradientTransformation:
    """Make AdamW (Loshchilov & Hutter 2019), Muon or the user's own, on gradients clipped by their global norm.

    Muon (Jordan et al. 2024) moves the matrices of the layers, each by the orthogonal matrix nearest to its momentum,
    as far as AdamW typically would (Liu et al. 2025), and AdamW the rest: the embedding and the weights of norms.

    The user's own is a ``function(rate: optax.Schedule) -> optax.GradientTransformation``, as `optax.lion` is. The rate
    is a function from the number of earlier updates, int32, to float32, both ``[]``. Updates have it in them, sign
    included; decay is added. Moments have their parameters' shapes, which say where they lie.

    One and the same object for equal arguments: programs are compiled for it, and runs of one process share them.

    Parameters are float32 whatever the model computes in, as a bfloat16 weight of 1 swallows any update below 2^-9.

    Args:
      updates: number of updates of the stage, over which the rate runs its course.
    """
    weight_decay = settings.weight_decay if isinstance(settings, EngineerExamplesSection) else 0.0
    rate, clip = learning_rate(settings, updates), optax.clip_by_global_norm(MAX_NORM)
    decay = optax.add_decayed_weights(weight_decay, mask=_decays), optax.scale_by_learning_rate(rate)
    if extensions.is_own(settings.optimizer):
        own = extensions.find("optimizer", settings.optimizer)(rate)
        return optax.chain(clip, own, _add_updates_of(optax.chain(*decay)))
    scaled = optax.scale_by_adam(b2=B2)
    if settings.optimizer == "muon":
        axes = MuonDimensionNumbers(reduction_axis=1, output_axis=2)
        muon = scale_by_muon(weight_dimension_numbers=lambda matrices: jax.tree.map(lambda _: axes, matrices))
        as_far = optax.stateless_with_tree_map(lambda update, _: update * ADAM_RMS * max(update.shape[1:]) ** 0.5)
        # The matrices of the layers are stacked: three axes.
        are_of_layers = functools.partial(jax.tree.map, lambda leaf: leaf.ndim == 3)
        scaled = optax.partition({True: optax.chain(muon, as_far), False: scaled}, are_of_layers)
    return optax.chain(clip, scaled, *decay)


def learning_rate(settings: OptimizerFields, updates: int) -> optax.Schedule:
    """Return the learning rate of each update, counted from 0.

    It rises in a straight line from 0, which the first of the `warmup_steps` gets, to `learning_rate`. From there it
    stays, or goes down in a straight line or half a cosine, to 0 for the update after the last.
    """
    peak, warmup = settings.learning_rate, settings.warmup_steps
    course = max(updates - warmup, 1)
    match settings.schedule:
        case "constant":
            after = optax.constant_schedule(peak)
        case "linear":
            after = optax.linear_schedule(peak, 0.0, course)
        case "cosine":
            after = optax.cosine_decay_schedule(peak, course)
    if not warmup:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])


def init_state(optimizer: optax.GradientTransformation, trained: Any, mesh: Mesh) -> optax.OptState:
    """Make the optimizer's first state, for the parameters that are trained; its moments lie where these do."""
    places = sharding.shardings(jax.eval_shape(optimizer.init, trained), mesh)
    return jax.jit(optimizer.init, out_shardings=places)(trained)


def step(
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    state: optax.OptState,
    gradients: nnx.State,
    loss: Array,
) -> tuple[nnx.State, optax.OptState, jax.Array, jax.Array]:
    """Make one update, inside jit; where the loss or the norm is not finite, nothing changes, the count included.

    Returns:
      Parameters, state, the gradients' global norm before it is clipped, and whether it and the loss are finite.
    """
    norm = optax.global_norm(gradients)
    finite = jnp.isfinite(norm) & jnp.isfinite(loss)
    updates, new_state = optimizer.update(gradients, state, parameters)
    new = optax.apply_updates(parameters, updates), new_state
    chosen = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, (parameters, state))
    return *chosen, norm, finite


def updates_made(state: optax.OptState) -> int:
    """Return how many updates the optimizer has made: the next one's place in the schedule, without skipped ones."""
    return int(optax.tree_utils.tree_get(state[-1], "count"))


def _add_updates_of(other: optax.GradientTransformation) -> optax.GradientTransformation:
    """Add to updates what another optimizer would make of gradients that are 0."""

    def update(updates: nnx.State, state: optax.OptState, parameters: nnx.State) -> tuple[nnx.State, optax.OptState]:
        more, state = other.update(jax.tree.map(jnp.zeros_like, updates), state, parameters)
        return jax.tree.map(jnp.add, updates, more), state

    return optax.GradientTransformation(other.init, update)


def _decays(parameters: nnx.State) -> nnx.State:
    """Mark what decays: matrices (adapters and the embedding among them), and not the weights of norms.

    By what a parameter is declared to be: its spec names the axes of one layer, whereas stacked norms have two.
    """
    return sharding.map_with_spec(lambda leaf, spec: (len(spec) or leaf.ndim) > 1, parameters)

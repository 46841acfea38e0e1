"""The environment in other people's loops: donated states, `jax.shard_map`, and JAX's strictest settings."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxlake import observations
from jaxlake.autoreset import AutoReset, AutoResetMode
from jaxlake.board_text import from_text
from jaxlake.env import Lake
from jaxlake.levels import LevelBank, distance_fields, stack
from jaxlake.rewards import cost
from jaxlake.state import Params
from jaxlake.types import Action
from tests.support.faces import ON_DEVICE
from tests.support.strict import SETTINGS, settings

pytestmark = pytest.mark.usefixtures("quick_compilation")

BOARDS = ("aA.\nbB.\n..#", "a..\n.#A\nbB.", "a#.\nA..\nB.b")
KEYS = jax.random.split(jax.random.key(0), 8)
MAPPED = SETTINGS | {"jax_debug_key_reuse": False}  # Under vmap, JAX takes one key of a split for all of them.
STEPS, SLIPPERY = 6, Params(max_steps=jnp.int32(4), slip=jnp.float32(0.5))


def bank(*boards):
    return LevelBank.build(stack([from_text(board) for board in boards or BOARDS]), with_distances=True)


def core(lake=Lake(), mode=AutoResetMode.SAME_STEP, params=Params(), boards=BOARDS):  # noqa: B008
    levels, env = bank(*boards), AutoReset(lake, mode)
    return partial(env.reset, levels, params=params), lambda carry, moves, key: env.step(levels, carry[0], moves, key)


def adapter(name, params):
    face = ON_DEVICE[name](bank(), params)
    return face.reset, lambda carry, moves, key: face.step(carry, moves, key)[:2]


LOOPS = {
    "planes": lambda: core(),
    "window, next step": lambda: core(Lake("fall", observe=observations.window(1), reward=cost), "next-step", SLIPPERY),
    "one agent": lambda: core(boards=("a.A\n...\n...", "a..\n.#A\n...")),
    "gymnax": lambda: adapter("gymnax", SLIPPERY),
    "jaxued": lambda: adapter("jaxued", Params(max_steps=4)),
    "jaxmarl": lambda: adapter("jaxmarl", SLIPPERY),
    "jumanji": lambda: adapter("jumanji", SLIPPERY),
}


def moves_of(name):
    return np.random.default_rng(0).integers(0, len(Action), (STEPS, 1 if name == "one agent" else 2), np.int32)


def same(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, unwrapped(ours), unwrapped(theirs))


def unwrapped(tree):
    return jax.tree.map(lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree)


def rollouts(name):
    """A loop from a key, mapped over keys, and mapped over keys that are on two devices."""
    reset, step = LOOPS[name]()

    def rollout(key):
        keys = jax.random.split(key, STEPS + 1)
        # All that reset returns is carried: shard_map refuses what of it does not vary with the level.
        return jax.lax.scan(lambda carry, x: (step(carry, *x),) * 2, reset(keys[0]), (moves_of(name), keys[1:]))[1]

    mesh, one = jax.sharding.Mesh(jax.devices()[:2], ("devices",)), PartitionSpec("devices")
    every = jax.vmap(rollout)
    return every, jax.shard_map(every, mesh=mesh, in_specs=one, out_specs=one)


@pytest.mark.parametrize("name", LOOPS)
def test_what_a_step_returns_is_carried_as_what_reset_returns_under_shard_map_and_strict_settings(name):
    """By trace alone; `test_strict.py` traces every function by itself."""
    _, sharded = rollouts(name)
    with settings(**MAPPED):
        jax.eval_shape(sharded, KEYS)


@pytest.mark.heavy
def test_a_rollout_is_the_same_under_shard_map_and_strict_settings():
    every, sharded = rollouts("planes")
    with settings(**MAPPED):
        ours = jax.jit(sharded)(KEYS)
    same(ours, jax.jit(every)(KEYS))


@pytest.mark.parametrize("name", ["planes", *ON_DEVICE])
def test_what_a_reset_outside_jit_returns_can_be_donated_and_nothing_goes_with_it(name):
    reset, _ = LOOPS[name]()
    first = reset(jax.random.key(0))
    copied = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), donate_argnums=0)(first)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))
    same(reset(jax.random.key(0)), copied)


def test_a_donated_state_takes_neither_the_level_nor_the_time_step():
    lake = Lake(observe=lambda state: (state.positions, state.instance.goals))
    level = jax.tree.map(jnp.asarray, from_text(BOARDS[0]))
    given = level, Params(max_steps=jnp.int32(9)), distance_fields(from_text(BOARDS[0]))
    state, first = lake.reset(*given)
    kept = jax.device_get((given, first))
    after, _ = jax.jit(lake.step, donate_argnums=0)(state, np.array([Action.RIGHT, Action.RIGHT]))
    assert state.positions.is_deleted() and after.terminated
    same((given, first), kept)

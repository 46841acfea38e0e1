"""The environment in other people's loops: donated states, `jax.shard_map`, JAX's strictest settings, 64 bits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxlake import lifelong, observations, rewards, view
from jaxlake.autoreset import AutoReset, AutoResetMode
from jaxlake.board_text import from_text
from jaxlake.env import Lake
from jaxlake.levels import LevelBank, distance_fields, stack
from jaxlake.state import Params
from jaxlake.types import Action
from tests.support.faces import ON_DEVICE
from tests.support.lifelong_boards import random_board
from tests.support.strict import SETTINGS, settings

BOARDS = ("aA.\nbB.\n..#", "a..\n.#A\nbB.", "a#.\nA..\nB.b")
KEYS = jax.random.split(jax.random.key(0), 8)
MAPPED = SETTINGS | {"jax_debug_key_reuse": False}  # Under vmap, JAX takes one key of a split for all of them.
STEPS, SLIPPERY = 6, Params(max_steps=jnp.int32(4), slip=jnp.float32(0.5))


def core(lake=Lake(), mode=AutoResetMode.SAME_STEP, params=Params(), boards=BOARDS):  # noqa: B008
    levels = [from_text(board) if isinstance(board, str) else board for board in boards]
    bank, env = LevelBank.build(stack(levels), with_distances=True), AutoReset(lake, mode)
    reset, agents = partial(env.reset, bank, params=params), bank.instances.max_agents
    return reset, lambda carry, moves, key: env.step(bank, carry[0], moves, key), agents


def adapter(name, params):
    bank = LevelBank.build(stack([from_text(board) for board in BOARDS]), with_distances=True)
    face = ON_DEVICE[name](bank, params)
    return face.reset, lambda carry, moves, key: face.step(carry, moves, key)[:2], 2


def everything(state):
    """What each observation shows."""
    window = observations.window(2, project_goal=True)
    return [see(state) for see in (observations.planes, observations.one_hot, observations.flat, window, view.View())]


def paid(now):
    return rewards.cost(now) + rewards.shaped()(now) + rewards.reached(now)


MANY = tuple(random_board(seed, 6, 9, 4) for seed in range(2))
"""More agents than the eight up to which a move is another program."""
LIFELONG = tuple(map(lifelong.board, MANY))
LISTED, DRAWN = (Lake(reward=rewards.reached, goals=goals) for goals in ("listed", "drawn"))
NEAR = Lake(observe=observations.window(1, distances=True), reward=rewards.shaped(), goals="drawn")

CORE = {
    "planes": core,
    "everything, next step": lambda: core(Lake("fall", "end", everything, paid), "next-step", SLIPPERY),
    "one agent": lambda: core(boards=("a.A\n...\n...", "a..\n.#A\n...")),
    "many agents": lambda: core(Lake("fall", "end", everything, paid), params=SLIPPERY, boards=MANY),
    "drawn goals": lambda: core(NEAR, "next-step", SLIPPERY, LIFELONG),
    "goals of few": lambda: core(DRAWN, boards=[lifelong.board(random_board(0, 4, 2, 3))]),
    "lists": lambda: core(LISTED, boards=LIFELONG),
}
LOOPS = CORE | {
    "gymnax": lambda: adapter("gymnax", SLIPPERY),
    "jaxued": lambda: adapter("jaxued", Params(max_steps=4)),
    "jaxmarl": lambda: adapter("jaxmarl", SLIPPERY),
    "jumanji": lambda: adapter("jumanji", SLIPPERY),
}


def same(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, unwrapped(ours), unwrapped(theirs))


def unwrapped(tree):
    return jax.tree.map(lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree)


def rollouts(name):
    """A loop from a key, mapped over keys, and mapped over keys that are on two devices."""
    reset, step, agents = LOOPS[name]()
    moves = np.random.default_rng(0).integers(0, len(Action), (STEPS, agents), np.int32)

    def rollout(key):
        first, later = jax.random.split(key)
        turns = moves, jax.random.split(later, STEPS)
        # All that reset returns is carried: shard_map refuses what of it does not vary with the level.
        return jax.lax.scan(lambda carry, x: (step(carry, *x),) * 2, reset(first), turns)[1]

    mesh, one = jax.sharding.Mesh(jax.devices()[:2], ("devices",)), PartitionSpec("devices")
    every = jax.vmap(rollout)
    return rollout, every, jax.shard_map(every, mesh=mesh, in_specs=one, out_specs=one)


@pytest.mark.parametrize("name", LOOPS)
def test_what_a_step_returns_is_carried_as_what_reset_returns_under_shard_map_and_strict_settings(name):
    *_, sharded = rollouts(name)
    with settings(**MAPPED):
        jax.eval_shape(sharded, KEYS)


@pytest.mark.parametrize("name", CORE)
def test_no_key_is_used_twice_keys_may_be_of_any_kind_and_64_bits_change_no_dtype(name):
    rollout, *_ = rollouts(name)
    with settings(**SETTINGS):
        usual = jax.eval_shape(rollout, jax.random.key(0))
    for key in (jax.random.PRNGKey(0), jax.random.key(0, impl="rbg")):
        jax.eval_shape(rollout, key)
    with settings(**SETTINGS, jax_enable_x64=True):
        wide = jax.eval_shape(rollout, jax.random.key(0))
    assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(wide)] == [
        (leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(usual)
    ]


@pytest.mark.heavy
def test_a_rollout_is_the_same_under_shard_map_and_strict_settings():
    _, every, sharded = rollouts("planes")
    with settings(**MAPPED):
        ours = jax.jit(sharded)(KEYS)
    same(ours, jax.jit(every)(KEYS))


@pytest.mark.parametrize("name", ["planes", *ON_DEVICE])
def test_what_a_reset_outside_jit_returns_can_be_donated_and_nothing_goes_with_it(name):
    reset, *_ = LOOPS[name]()
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

"""What a step is made of under JAX's strict settings and in `jax.shard_map`, by trace alone: nothing is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from jaxlake import arguments, observations, rewards, view
from jaxlake.autoreset import AutoReset
from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.state import Params
from jaxlake.types import Instance, LifelongInstance
from tests.support.strict import SETTINGS, settings


def everything(state):
    """What each observation shows."""
    window = observations.window(2, project_goal=True)
    return [see(state) for see in (observations.planes, observations.one_hot, observations.flat, window, view.View())]


FALL = Lake("fall", "end", everything, lambda now: rewards.cost(now) + rewards.shaped()(now) + rewards.reached(now))
LAKES = (Lake(), FALL)
LIFELONG = Lake(observe=observations.window(1, distances=True), reward=rewards.shaped(), goals="drawn")
LISTED = Lake(reward=rewards.reached, goals="listed")
MODES = ("same-step", "next-step")


def shape(*axes, dtype=jnp.int32):
    return jax.ShapeDtypeStruct(axes, dtype)


def batch(tree, *axes):
    return jax.tree.map(lambda leaf: shape(*axes, *leaf.shape, dtype=leaf.dtype), tree)


def instance(agents, side):
    return Instance(
        size=shape(), num_agents=shape(), holes=shape(side**2, dtype=bool), starts=shape(agents), goals=shape(agents)
    )


class Shapes:
    """The arguments that functions are called with."""

    def __init__(self, agents, side):
        self.agents, self.side, self.number = agents, side, shape()
        self.cells, self.fields = shape(agents), shape(agents, side**2, dtype=jnp.int16)
        self.board = instance(agents, side)
        self.boards = batch(self.board, 3)
        self.bank = LevelBank(instances=self.boards, distances=batch(self.fields, 3))
        self.key = jax.eval_shape(lambda: arguments.seed_key(0))
        self.params = Params(max_steps=shape(), slip=shape(dtype=jnp.float32))
        self.state, _ = jax.eval_shape(Lake().reset, self.board, self.params, self.fields)
        cells, tasks = side**2, shape(side**2)
        numbers = dict.fromkeys(("first", "count", "place"), self.cells)
        self.lifelong_board = LifelongInstance(**vars(self.board), tasks=tasks, **numbers, board=shape())
        tables = [shape(1, cells, cells, dtype=jnp.int16), self.fields]
        self.lifelong_states = [
            jax.eval_shape(LIFELONG.reset, self.lifelong_board, self.params, table)[0] for table in tables
        ]
        table = shape(3, 1, cells, cells, dtype=jnp.int16)
        self.lifelong_bank = LevelBank(instances=batch(self.lifelong_board, 3), distances=table)
        episodes = AutoReset(LIFELONG)
        self.lifelong_episode, _ = jax.eval_shape(episodes.reset, self.lifelong_bank, self.key, self.params)


SIZES = {"few": Shapes(2, 3), "many": Shapes(9, 12)}


TRACED = {
    "autoreset.AutoReset.begin": lambda s: (AutoReset(Lake()).begin, s.bank, s.number, s.params),
    "autoreset.AutoReset.reset": lambda s: (AutoReset(Lake()).reset, s.bank, s.key, s.params),
    "autoreset.AutoReset.step": lambda s: (
        lambda banks, states, moves, *keys: [
            AutoReset(lake, mode).step(bank, state, moves, key)
            for lake, bank, state, own in zip((FALL, LIFELONG), banks, states, (keys[:2], keys[2:]), strict=True)
            for mode, key in zip(MODES, own, strict=True)
        ],
        *((s.bank, s.lifelong_bank), (s.state, s.lifelong_episode), s.cells, *[s.key] * 4),
    ),
    "env.Lake.legal_actions": lambda s: (lambda state: [lake.legal_actions(state) for lake in LAKES], s.state),
    "env.Lake.reset": lambda s: (
        lambda board, lifelong_board, *rest: (FALL.reset(board, *rest), LIFELONG.reset(lifelong_board, *rest)),
        *(s.board, s.lifelong_board, s.params, s.fields),
    ),
    "env.Lake.step": lambda s: (
        lambda state, lifelong_board, moves, *keys: [
            *(lake.step(state, moves, key) for lake, key in zip(LAKES, keys[:2], strict=True)),
            *(LIFELONG.step(state, moves, key) for state, key in zip(lifelong_board, keys[2:4], strict=True)),
            *(LISTED.step(state, moves, key) for state, key in zip(lifelong_board, keys[4:], strict=True)),
        ],
        *(s.state, s.lifelong_states, s.cells, *[s.key] * 6),
    ),
}

FEW_AND_MANY = ("autoreset.AutoReset.step", "env.Lake.step", "env.Lake.legal_actions")
"""Functions that have a program for few agents and one for many."""


def outline(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def sharded(function, args, varies):
    """The outline of a result on one of two devices, between which these leaves of the arguments vary."""
    leaves, treedef = jax.tree.flatten(args)
    mesh, split = Mesh(jax.devices()[:2], ("devices",)), PartitionSpec("devices")

    def on_each(*parts):
        own = [part[0] if vary else part for part, vary in zip(parts, varies, strict=True)]
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*treedef.unflatten(own)))

    specs = tuple(split if vary else PartitionSpec() for vary in varies)
    given = [batch(leaf, 2) if vary else leaf for leaf, vary in zip(leaves, varies, strict=True)]
    found = jax.eval_shape(jax.shard_map(on_each, mesh=mesh, in_specs=specs, out_specs=split), *given)
    return jax.tree.map(lambda leaf: (leaf.shape[1:], leaf.dtype), found)


CALLS = [(name, size) for name in TRACED for size in SIZES if size == "few" or name.startswith(FEW_AND_MANY)]


@pytest.mark.parametrize(("name", "size"), CALLS)
def test_strict_settings_and_shard_map_refuse_nothing_and_64_bits_change_no_dtype(name, size):
    function, *args = TRACED[name](SIZES[size])
    with settings(**SETTINGS):
        usual = sharded(function, args, [True] * len(jax.tree.leaves(args)))
    with settings(**SETTINGS, jax_enable_x64=True):
        assert outline(jax.eval_shape(function, *args)) == usual


@pytest.mark.parametrize(
    ("name", "size"), [call for call in CALLS if not call[0].startswith(("adapters", "autoreset"))]
)
def test_shard_map_takes_a_function_whichever_arguments_vary(name, size):
    """All of one argument and none of the others, and every other array. Adapters add nothing to this."""
    function, *args = TRACED[name](SIZES[size])
    counts = [len(jax.tree.leaves(arg)) for arg in args]
    argument = np.repeat(np.arange(len(args)), counts)
    for varies in [argument == number for number in range(len(args))] if len(args) > 1 else []:
        sharded(function, args, varies)
    sharded(function, args, np.arange(len(argument)) % 2 == 0)


@pytest.mark.parametrize("kind", ["raw", "rbg"])
@pytest.mark.parametrize("name", TRACED)
def test_keys_may_be_of_any_kind(name, kind):
    function, *args = TRACED[name](SIZES["few"])
    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg")) if kind == "rbg" else shape(2, dtype=jnp.uint32)
    leaves, treedef = jax.tree.flatten(args)
    given = [key if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in leaves]
    if given != leaves:  # else it takes no key
        jax.eval_shape(function, *treedef.unflatten(given))

"""What a step is made of under JAX's strict settings and in `jax.shard_map`, by trace alone: nothing is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from jaxlake import arguments, lifelong, observations, rewards, rules, view
from jaxlake.autoreset import AutoReset
from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.state import Params, State
from jaxlake.types import Instance, LifelongInstance, Plan
from tests.support.strict import SETTINGS, settings

FALL = Lake("fall", "end")
LAKES = (Lake(), FALL)
LIFELONG = Lake(observe=observations.window(1, distances=True), reward=rewards.shaped(), goals="drawn")
MODES = ("same-step", "next-step")


def shape(*axes, dtype=jnp.int32):
    return jax.ShapeDtypeStruct(axes, dtype)


def batch(tree, *axes):
    return jax.tree.map(lambda leaf: shape(*axes, *leaf.shape, dtype=leaf.dtype), tree)


def instance(agents, side):
    return Instance(
        size=shape(), num_agents=shape(), holes=shape(side**2, dtype=bool), starts=shape(agents), goals=shape(agents)
    )


def plan(agents):
    return Plan(parsable=shape(dtype=bool), num_named=shape(), paths=shape(agents, 6), lengths=shape(agents))


def transition(*args):
    """What the reward of a step is given."""
    seen = []
    Lake(reward=lambda transition: (seen.append(transition), rewards.sparse(transition))[1]).step(*args)
    return seen[0]


class Shapes:
    """The arguments that functions are called with."""

    def __init__(self, agents, side):
        self.agents, self.side, self.number = agents, side, shape()
        self.cells, self.flags = shape(agents), shape(agents, dtype=bool)
        self.fields, self.ties = shape(agents, side**2, dtype=jnp.int16), shape(agents, 5)
        self.board = instance(agents, side)
        self.boards, self.plans = batch((self.board, plan(agents)), 3)
        self.bank = LevelBank(instances=self.boards, distances=batch(self.fields, 3))
        self.words = shape(3, side, -(-side // 32), dtype=jnp.uint32)
        self.key = jax.eval_shape(lambda: arguments.seed_key(0))
        self.params = Params(max_steps=shape(), slip=shape(dtype=jnp.float32))
        self.state, _ = jax.eval_shape(Lake().reset, self.board, self.params, self.fields)
        self.transition = jax.eval_shape(transition, self.state, self.cells, self.key)
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


def each(function, options):
    """A function of arrays that calls this one with each of some last arguments."""
    return lambda *args: [function(*args, *option) for option in options]


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
        lambda board, lifelong_board, *rest: (Lake().reset(board, *rest), LIFELONG.reset(lifelong_board, *rest)),
        *(s.board, s.lifelong_board, s.params, s.fields),
    ),
    "env.Lake.step": lambda s: (
        lambda state, lifelong_board, moves, *keys: [
            *(lake.step(state, moves, key) for lake, key in zip(LAKES, keys[:2], strict=True)),
            *(LIFELONG.step(state, moves, key) for state, key in zip(lifelong_board, keys[2:], strict=True)),
        ],
        *(s.state, s.lifelong_states, s.cells, *[s.key] * 4),
    ),
    "levels.LevelBank.at": lambda s: (LevelBank.at, s.bank, s.number),
    "levels.LevelBank.draw": lambda s: (LevelBank.draw, s.bank, s.key),
    "levels.LevelBank.draw_index": lambda s: (LevelBank.draw_index, s.bank, s.key),
    "lifelong.next_goals": lambda s: (
        lambda board, arrived, key: [lifelong.next_goals(board, arrived, own) for own in (key, None)],
        *(s.lifelong_board, s.flags, s.key),
    ),
    "observations.flat": lambda s: (observations.flat, s.state),
    "observations.one_hot": lambda s: (observations.one_hot, s.state),
    "observations.planes": lambda s: (observations.planes, s.state),
    "observations.window": lambda s: (
        lambda state: [observations.window(2, project_goal=more, distances=more)(state) for more in (False, True)],
        s.state,
    ),
    "rewards.cost": lambda s: (rewards.cost, s.transition),
    "rewards.reached": lambda s: (rewards.reached, s.transition),
    "rewards.shaped": lambda s: (rewards.shaped(), s.transition),
    "rewards.sparse": lambda s: (rewards.sparse, s.transition),
    "rules.legal_actions": lambda s: (each(rules.legal_actions, [("fall",), ("impassable",)]), s.board, s.cells),
    "rules.move": lambda s: (
        each(rules.move, [("fall", "block"), ("impassable", "end")]),
        *(s.board, s.cells, s.cells),
    ),
    "state.State.steps_to_goals": lambda s: (
        lambda states, cells: [State.steps_to_goals(state, cells[:, None]) for state in states],
        *((s.state, *s.lifelong_states), s.cells),
    ),
    "view.View.__call__": lambda s: (view.View(), s.state),
}

FEW_AND_MANY = ("autoreset.AutoReset.step", "env.Lake.step", "env.Lake.legal_actions", "rules")
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

"""Every public function under JAX's strict settings and in `jax.shard_map`, by trace alone: nothing is compiled.

`TRACED` says how a function is called, `UNTRACED` why it has no such entry. A function that is in neither fails a test.
"""

import ast
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import jaxlake
from jaxlake import arguments, first_failure, flood, lifelong, observations, pibt, rewards, rules, verify, view
from jaxlake.adapters import host
from jaxlake.autoreset import AutoReset
from jaxlake.env import Lake
from jaxlake.levels import LevelBank, build, distance_fields, distance_tables, stack
from jaxlake.record import vary_alike
from jaxlake.solve import Convention, JointValues, action_values, completion_costs, joint_values, value
from jaxlake.state import Params, State
from jaxlake.types import Instance, LifelongInstance, Plan
from tests.support.faces import ON_DEVICE
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

    @functools.cache  # noqa: B019
    def face(self, name):
        """An adapter, and what its reset returns."""
        cells = np.arange(self.side**2)
        level = build(self.side, np.zeros(len(cells), bool), cells[: self.agents], cells[-self.agents :])
        face = ON_DEVICE[name](LevelBank.build(stack([level, level])), Params(max_steps=9, slip=np.float32(0.5)))
        return face, jax.eval_shape(face.reset, self.key)[:2]

    def begin(self, name):
        return self.face(name)[0].reset, self.key

    def play(self, name):
        face, carry = self.face(name)
        return face.step, carry, self.cells, self.key

    def ask(self, name, method, *rest):
        """A method of an adapter about a state."""
        face, (_, state) = self.face(name)
        return lambda state: getattr(face.env, method)(state, *rest), state


SIZES = {"few": Shapes(2, 3), "many": Shapes(9, 12)}


def each(function, options):
    """A function of arrays that calls this one with each of some last arguments."""
    return lambda *args: [function(*args, *option) for option in options]


def tables(convention):
    """The values of two agents on one board, as `joint_values` has them: it takes no large ones."""
    places = 9 + (convention is Convention.SUM_OF_COSTS)
    return JointValues(instances=instance(2, 3), values=shape(places, places, dtype=jnp.uint16), convention=convention)


def gymnasium(program, *static):
    module = pytest.importorskip("jaxlake.adapters.gymnasium", exc_type=ImportError)
    return functools.partial(getattr(module, program), *static)


def mutate(key, level, number):
    pytest.importorskip("jaxued")
    from jaxlake.adapters.jaxued import make_level_mutator

    return make_level_mutator(3)(key, level, number)


def joined(name):
    pytest.importorskip("gymnax")
    from jaxlake.adapters import gymnax

    return getattr(gymnax, name)


TRACED = {
    "adapters.gymnasium.VectorLake.reset": lambda s: (
        gymnasium("_reset_batch", AutoReset(Lake())),
        *(s.bank, shape(4), s.params),
    ),
    "adapters.gymnasium.VectorLake.step": lambda s: (
        each(gymnasium("_step_batch"), ()),
        *(s.bank, batch(s.state, 4), shape(4, s.agents), shape(dtype=jnp.uint32), s.number),
    ),
    "adapters.gymnax.CentralLake.step": lambda s: s.play("gymnax"),
    "adapters.gymnax.CentralLake.reset_env": lambda s: s.begin("gymnax"),
    "adapters.gymnax.join_actions": lambda s: (joined("join_actions"), shape(4, 2)),
    "adapters.gymnax.join_masks": lambda s: (joined("join_masks"), shape(4, 2, 5, dtype=bool)),
    "adapters.gymnax.split_actions": lambda s: (lambda actions: joined("split_actions")(actions, 3), shape(4)),
    "adapters.host.Episode.begin": lambda s: (
        functools.partial(host._reset_one, Lake()),
        *(s.bank, s.number, s.params),
    ),
    "adapters.host.Episode.step": lambda s: (
        functools.partial(host._step_one, Lake()),
        *(s.state, s.cells, shape(dtype=jnp.uint32)),
    ),
    "adapters.jaxmarl.MultiAgentLake.get_obs": lambda s: s.ask("jaxmarl", "get_obs"),
    "adapters.jaxmarl.MultiAgentLake.get_world_state": lambda s: s.ask("jaxmarl", "get_world_state"),
    "adapters.jaxmarl.MultiAgentLake.reset": lambda s: s.begin("jaxmarl"),
    "adapters.jaxmarl.MultiAgentLake.step_env": lambda s: s.play("jaxmarl"),
    "adapters.jaxued.UnderspecifiedLake.reset_env_to_level": lambda s: s.begin("jaxued"),
    "adapters.jaxued.UnderspecifiedLake.step_env": lambda s: s.play("jaxued"),
    "adapters.jaxued.make_level_mutator": lambda s: (mutate, s.key, s.board, s.number),
    "adapters.jumanji.JumanjiLake.reset": lambda s: s.begin("jumanji"),
    "adapters.jumanji.JumanjiLake.step": lambda s: s.play("jumanji"),
    "arguments.seed_key": lambda s: (arguments.seed_key, s.number),
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
    "flood.free_cells": lambda s: (flood.free_cells, s.boards),
    "flood.pack": lambda s: (flood.pack, s.boards.holes),
    "flood.reach": lambda s: (flood.reach, s.words, s.boards.starts),
    "flood.shortest_paths": lambda s: (flood.shortest_paths, s.boards),
    "flood.steps": lambda s: (flood.steps, s.words, s.boards.starts, s.boards.goals),
    "flood.steps_to_goals": lambda s: (flood.steps_to_goals, s.boards),
    "levels.LevelBank.at": lambda s: (LevelBank.at, s.bank, s.number),
    "levels.LevelBank.draw": lambda s: (LevelBank.draw, s.bank, s.key),
    "levels.LevelBank.draw_index": lambda s: (LevelBank.draw_index, s.bank, s.key),
    "levels.distance_fields": lambda s: (lambda *args: [*map(distance_fields, args)], s.board, s.boards),
    "levels.distance_tables": lambda s: (lambda *args: [*map(distance_tables, args)], s.board, s.boards),
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
    "pibt.next_priorities": lambda s: (pibt.next_priorities, s.cells, s.flags),
    "pibt.step": lambda s: (pibt.step, s.board, s.cells, s.cells, s.fields, s.ties),
    "record.vary_alike": lambda s: (vary_alike, s.state),
    "rewards.cost": lambda s: (rewards.cost, s.transition),
    "rewards.reached": lambda s: (rewards.reached, s.transition),
    "rewards.shaped": lambda s: (rewards.shaped(), s.transition),
    "rewards.sparse": lambda s: (rewards.sparse, s.transition),
    "rules.legal_actions": lambda s: (each(rules.legal_actions, [("fall",), ("impassable",)]), s.board, s.cells),
    "rules.move": lambda s: (
        each(rules.move, [("fall", "block"), ("impassable", "end")]),
        *(s.board, s.cells, s.cells),
    ),
    "solve.completion.completion_costs": lambda s: (completion_costs, batch(instance(3, 3), 3), batch(plan(3), 3, 2)),
    "solve.joint.action_values": lambda s: (
        lambda places, *joint: [action_values(one, places) for one in joint],
        *(shape(2), *map(tables, Convention)),
    ),
    "solve.joint.joint_values": lambda s: (
        each(joint_values, [(2, way) for way in Convention]),
        batch(instance(2, 3), 3),
    ),
    "solve.joint.value": lambda s: (value, tables(Convention.SUM_OF_LOSS), shape(2)),
    "state.Params.as_arrays": lambda s: (Params.as_arrays, s.params),
    "state.State.steps_to_goals": lambda s: (
        lambda states, cells: [State.steps_to_goals(state, cells[:, None]) for state in states],
        *((s.state, *s.lifelong_states), s.cells),
    ),
    "verify.first_failure": lambda s: (first_failure, shape(3, 8, dtype=bool)),
    "verify.verify": lambda s: (each(verify, [("makespan",), ()]), s.boards, s.plans, shape(3)),
    "view.View.__call__": lambda s: (view.View(), s.state),
}

FEW_AND_MANY = ("autoreset.AutoReset.step", "env.Lake.step", "env.Lake.legal_actions", "rules", "verify.verify")
"""Functions that have a program for few agents and one for many."""

UNTRACED = {
    "text, files, pictures and commands": """benchmark board_text commands files fixed_sets kinds league movingai pogema
        render score table text types.coordinate observations.text view.phrases view.text view.read_move
        adapters.text""",
    "numpy or Python alone": """arguments.whole_number arguments.is_number arguments.check_key arguments.short_repr
        config levels.pad levels.build levels.stack levels.validate levels.check_shapes levels.check_unbatched
        levels.check_has_end lifelong.board env.Lake.needs_key
        observations.bounds observations.number_dtype rewards.accuracy record.record record.Record.replace
        adapters.gymnax.count_joint_actions""",
    "runs programs in a loop on the host, under JAX's default promotion": """generate solve.driver solve.exhaustive
        pibt.plan pibt.play testing""",
    "a part of the search that solve.driver runs": """solve.bitboard solve.bounds solve.constraints solve.lanes
        solve.node solve.pair_reach solve.pairs solve.paths solve.tree""",
    "sets up what the traced ones run": """processes arguments.threefry_key levels.LevelBank.build
        adapters.shared adapters.gymnasium.observation_box""",
    "steps by the programs of adapters.host.Episode": """adapters.gymnasium.CentralLake adapters.pettingzoo
        adapters.host.Layout adapters.host.pictures adapters.host.infos_of adapters.host.bank_of
        adapters.host.checked_render_mode adapters.host.check_level adapters.host.Episode.render
        adapters.gymnasium.VectorLake.render""",
    "inside the traced programs of adapters.host": "adapters.host.begin adapters.host.pack",
    "called by the step of its adapter": """adapters.gymnax.CentralLake.step_env adapters.gymnax.CentralLake.observe
        adapters.gymnax.CentralLake.is_truncated adapters.gymnax.CentralLake.is_terminated
        adapters.gymnax.CentralLake.action_mask adapters.gymnax.core_params adapters.gymnax.with_params
        adapters.jaxmarl.MultiAgentLake.get_avail_actions adapters.jaxued.observe""",
    "describes an adapter": """adapters.gymnax.CentralLake.action_space adapters.gymnax.CentralLake.observation_space
        adapters.jaxued.UnderspecifiedLake.action_space adapters.jaxmarl.MultiAgentLake.world_state_size
        adapters.jumanji.JumanjiLake.render""",
}


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


def public_functions():
    """The functions of `jaxlake` and the methods of its classes that a user may call, as their source defines them."""
    folder = Path(jaxlake.__file__).parent
    for file in folder.rglob("*.py"):
        module = file.relative_to(folder).with_suffix("").parts
        if module[-1] == "__main__":
            continue
        yield from functions_of(ast.parse(file.read_text(encoding="utf-8")), ".".join(module).removesuffix("__init__"))


def functions_of(node, prefix):
    for part in node.body:
        hidden = part.name.startswith("_") and part.name != "__call__" if hasattr(part, "name") else True
        if hidden or any("property" in ast.unparse(decorator) for decorator in part.decorator_list):
            continue
        name = f"{prefix.rstrip('.')}.{part.name}".lstrip(".")
        if isinstance(part, ast.ClassDef):
            yield from functions_of(part, name)
        else:
            yield name


def test_every_public_function_is_traced_or_named_with_the_reason():
    public, named = set(public_functions()), [name for names in UNTRACED.values() for name in names.split()]
    covered = {name: [*filter(lambda public: f"{public}.".startswith(f"{name}."), public)] for name in named}
    assert not public - TRACED.keys() - {function for functions in covered.values() for function in functions}
    assert not TRACED.keys() - public and all(covered.values())

"""What fixed cases come to stays as it is, or the number rises that tells results of one behaviour from another's.

The cases are from fixed sets, stored answers and arithmetic, and integers alone are counted, so that every machine has
the same. `test_generate.py` and `test_bounded.py` have digests of what `generate` draws.
"""

import functools
import hashlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from jaxlake import CLASSIC_SLIP, Family, Kind, Lake, Params, rewards, rules
from jaxlake.benchmark import load, take
from jaxlake.generate import VERSION as GENERATOR
from jaxlake.generate.candidates import Shape, draw
from jaxlake.rules import ConflictRule, HoleRule
from jaxlake.text import read
from jaxlake.types import ABSENT, Objective, Plan
from jaxlake.verify import verify

BOARDS = take(load("families"), range(0, len(load("families")), len(load("families")) // 64)).instances
STEPS = 12


def digest(tree) -> str:
    """The names, types, shapes and values of all leaves."""
    sha = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        sha.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]


def actions():
    """int32 ``[steps, boards, agents]``, in no order that a board knows."""
    step, board, agent = np.ogrid[:STEPS, : len(BOARDS), : BOARDS.max_agents]
    return jnp.asarray((step * board // 3 + 3 * agent + step * step) % 5, jnp.int32)


@functools.cache
def walk():
    """Steps of all boards beside each other, by the paper's rules and with slips, ``[steps, boards, ...]``."""
    lake = Lake(observe=lambda state: state.positions, reward=rewards.cost)
    keys = jax.random.split(jax.random.key(0), len(BOARDS))
    start, _ = jax.vmap(lake.reset, in_axes=(0, None))(BOARDS, Params(max_steps=STEPS - 2, slip=CLASSIC_SLIP))

    def step(state, chosen):
        state, seen = jax.vmap(lake.step)(state, chosen, keys)
        return state, (state.positions, state.losses, seen)

    return jax.jit(lambda: jax.lax.scan(step, start, actions())[1])()


def moves():
    """One joint move from each position of the walk by the other rules."""
    boards = jax.tree.map(lambda leaf: np.tile(leaf, (STEPS, *[1] * (leaf.ndim - 1))), BOARDS)
    asked = (boards, *(rows.reshape(-1, BOARDS.max_agents) for rows in (walk()[0], actions())))
    return jax.jit(jax.vmap(lambda *given: rules.move(*given, HoleRule.FALL, ConflictRule.END)))(*asked)


def verdicts():
    """Verdicts on the walks as plans to where they end, and on the same with a cell changed in every other one."""
    paths = np.moveaxis(np.asarray(walk()[0]), 0, 2).astype(np.int32)
    boards = BOARDS.replace(starts=paths[..., 0], goals=paths[..., -1])
    paths[1::2, 0, STEPS // 2] += 1
    plans = Plan(
        parsable=np.ones(len(paths), bool),
        num_named=BOARDS.num_agents,
        paths=paths,
        lengths=np.where(boards.starts != ABSENT, STEPS, 0).astype(np.int32),
    )
    optimum = (verify(boards, plans, np.int32(0)).costs.sum_of_costs - np.arange(len(paths)) % 2).astype(np.int32)
    return [verify(boards, plans, optimum, objective) for objective in Objective]


def readings():
    """What is read in the stored answers."""
    stored = (Path(__file__).parent / "data" / "answers.yaml").read_text(encoding="utf-8")
    return [read(entry["text"], max_size=10, max_agents=5, max_steps=64).plan for entry in yaml.safe_load(stored)]


@pytest.mark.parametrize(
    "part, expected",
    [
        (walk, "c363a42669a2be23"),
        (moves, "f938194c4284475f"),
        (verdicts, "e4f74e489682d305"),
        (readings, "f04e0e394bfd152a"),
    ],
)
def test_the_rules_are_those_of_their_number(part, expected):
    assert (rules.VERSION, digest(part())) == (2, expected), "raise jaxlake.rules.VERSION, and write both here"


@pytest.mark.heavy
def test_the_generator_is_that_of_its_number():
    boards = [draw(jax.random.key(5), 0, 128, Shape(Kind(family, 5), 0.3, 6, 3)) for family in Family]
    assert (GENERATOR, digest(boards)) == (1, "a1f77acce3d43d89"), (
        "raise VERSION of jaxlake.generate, and write both here"
    )

"""What fixed cases come to stays as it is, or the number rises that tells results of one behaviour from another's.

The cases are from fixed sets, stored answers and arithmetic, and integers alone are counted, so that every machine has
the same. `test_generate.py` and `test_bounded.py` have digests of what `generate` draws.
"""

import itertools
from pathlib import Path

import core_digest
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from jaxlake import CLASSIC_SLIP, Lake, Params, rewards, rules
from jaxlake.benchmark import load, take
from jaxlake.generate import VERSION as GENERATOR
from jaxlake.rules import ConflictRule, HoleRule
from jaxlake.text import read
from jaxlake.types import ABSENT, Objective, Plan
from jaxlake.verify import verify

BOARDS = take(load("families"), range(0, len(load("families")), len(load("families")) // 64)).instances
STEPS = 12


def actions():
    """int32 ``[steps, boards, agents]``, in no order that a board knows."""
    step, board, agent = np.ogrid[:STEPS, : len(BOARDS), : BOARDS.max_agents]
    return jnp.asarray((step * board // 3 + 3 * agent + step * step) % 5, jnp.int32)


def walk(lake, slip):
    """Steps of all boards beside each other, ``[steps, boards, ...]``."""
    keys = jax.random.split(jax.random.key(0), len(BOARDS))
    start, _ = jax.vmap(lake.reset, in_axes=(0, None))(BOARDS, Params(max_steps=STEPS - 2, slip=slip))

    def step(state, chosen):
        state, seen = jax.vmap(lake.step)(state, chosen, keys)
        return state, (state.positions, state.losses, seen)

    return jax.jit(lambda: jax.lax.scan(step, start, actions())[1])()


def moves(positions):
    """One joint move from each position of a walk under all rules."""
    boards = jax.tree.map(lambda leaf: np.tile(leaf, (STEPS, *[1] * (leaf.ndim - 1))), BOARDS)
    asked = boards, positions.reshape(-1, BOARDS.max_agents), actions().reshape(-1, BOARDS.max_agents)
    for holes, conflicts in itertools.product(HoleRule, ConflictRule):
        yield jax.jit(jax.vmap(lambda *given, of=(holes, conflicts): rules.move(*given, *of)))(*asked)


def verdicts(positions):
    """Verdicts on walks as plans to where they end, and on the same with a cell changed in every other one."""
    paths = np.moveaxis(np.asarray(positions), 0, 2).astype(np.int32)
    paths[1::2, 0, STEPS // 2] += 1
    there = BOARDS.starts != ABSENT
    plans = Plan(np.ones(len(paths), bool), BOARDS.num_agents, paths, np.where(there, STEPS, 0).astype(np.int32))
    boards = BOARDS.replace(starts=np.asarray(positions[0]), goals=np.asarray(positions[-1]))
    for objective in Objective:
        cost = np.asarray(getattr(verify(boards, plans, np.int32(0)).costs, objective.value))
        yield verify(boards, plans, (cost - (np.arange(len(cost)) % 3 == 0)).astype(np.int32), objective)


def readings():
    """What is read in the stored answers."""
    stored = (Path(__file__).parent / "data" / "answers.yaml").read_text(encoding="utf-8")
    return [read(entry["text"], max_size=10, max_agents=5, max_steps=64).plan for entry in yaml.safe_load(stored)]


@pytest.fixture(scope="module")
def positions():
    """int32 ``[steps, boards, agents]``: where the paper's rules lead."""
    return walk(Lake(observe=lambda state: state.positions, reward=rewards.cost), None)[0]


@pytest.mark.parametrize(
    "part, expected",
    [
        (moves, "?"),
        (verdicts, "?"),
        (lambda _: readings(), "?"),
        (lambda _: walk(Lake("fall", "block", lambda state: state.positions, rewards.cost), CLASSIC_SLIP), "?"),
    ],
    ids=["moves", "verdicts", "readings", "an episode with slips"],
)
def test_the_rules_are_those_of_their_number(positions, part, expected):
    found = core_digest.digest(list(part(positions)))
    assert (rules.VERSION, found) == (1, expected), "raise jaxlake.rules.VERSION, and write both here"


def test_the_generator_is_that_of_its_number():
    found = core_digest.digest(core_digest.families())
    assert (GENERATOR, found) == (1, "a1f77acce3d43d89"), "raise VERSION of jaxlake.generate, and write both here"

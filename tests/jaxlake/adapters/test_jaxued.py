"""The JaxUED face: one step in each direction against the core, JaxUED's own wrappers on it, and its levels."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("jaxued")

from jaxued.wrappers import AutoReplayWrapper, AutoResetWrapper  # noqa: E402

from jaxlake.adapters.gymnax import join_actions  # noqa: E402
from jaxlake.adapters.jaxued import UnderspecifiedLake, make_level_mutator  # noqa: E402
from jaxlake.board_text import from_text  # noqa: E402
from jaxlake.levels import LevelBank, stack, validate  # noqa: E402
from jaxlake.testing import BOARD, MAX_AGENTS, MAX_SIZE  # noqa: E402
from jaxlake.types import Action, Instance  # noqa: E402
from tests.support.faces import ONE_STEP  # noqa: E402

CORNER = """
    #aA
    ...
    bB.
"""
UP, DOWN, LEFT, RIGHT, WAIT = Action


@pytest.fixture
def tree_map(monkeypatch):
    """What JaxUED 0.0.1 calls and JAX has dropped."""
    monkeypatch.setattr(jax, "tree_map", jax.tree.map, raising=False)


@cache  # An environment is a static argument of its own ``step``: each new one compiles.
def lake() -> UnderspecifiedLake:
    return UnderspecifiedLake(MAX_AGENTS)


def level(board: str) -> Instance:
    return jax.tree.map(jnp.asarray, from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS))


def joint(*actions: Action) -> jax.Array:
    return join_actions(jnp.array(actions))


def test_auto_replay_plays_the_same_level_again(tree_map):
    env = AutoReplayWrapper(lake())
    levels = stack([level(ONE_STEP), level(CORNER)])
    keys = jax.random.split(jax.random.key(0), 2)
    first, start = jax.vmap(env.reset_to_level)(keys, levels)
    actions = jnp.array([joint(RIGHT, RIGHT, WAIT)] * 2)

    def step(state, _):
        observation, state, reward, done, _ = jax.vmap(env.step)(keys, state, actions)
        return state, (observation, reward, done)

    state, (observations, rewards, dones) = jax.lax.scan(step, start, length=3)
    assert dones.all() and (rewards == 2).all() and (observations.image == first.image).all()
    assert state.env_state.time.tolist() == [0, 0]
    assert (state.env_state.instance.holes == levels.holes).all()


def test_auto_reset_draws_its_levels_from_a_bank(tree_map):
    bank = LevelBank.build(stack([level(BOARD)]))
    env = AutoResetWrapper(lake(), lambda key: bank.draw(key)[0])
    old, new = jax.random.PRNGKey(0), jax.random.PRNGKey(1)  # This wrapper takes raw keys only.
    _, state = env.reset_to_level(old, level(ONE_STEP))
    _, state, _, done, _ = env.step(new, state, joint(RIGHT, RIGHT, WAIT))
    assert done and state.env_state.instance.size == 4
    assert state.env_state.positions.tolist() == bank.instances.starts[0].tolist()


@pytest.mark.heavy
@pytest.mark.parametrize("num_edits", [0, 1, 4])
def test_a_mutated_level_is_a_level_at_most_so_many_edits_away(num_edits):
    parent = level(BOARD)  # Of side 4, padded to 5, with a slot for a third agent.
    mutate = jax.jit(jax.vmap(make_level_mutator(8), (0, None, None)))
    children = mutate(jax.random.split(jax.random.key(0), 300), parent, num_edits)
    validate(children)
    assert (children.starts == parent.starts).all()
    flipped = (children.holes != parent.holes).sum(axis=1)
    moved = (children.goals != parent.goals).sum(axis=1)
    assert (flipped + moved <= num_edits).all()
    if num_edits == 1:  # Nothing, a hole and a goal, a third each: 5 standard deviations of 300 draws are 41.
        assert abs(int(flipped.sum()) - 100) < 41 and abs(int(moved.sum()) - 100) < 41
        assert (children.goals[:, :2] != parent.goals[:2]).any(axis=0).all()
    ends = np.concatenate([children.starts[:, :2], children.goals[:, :2]], axis=1)
    assert all(len(set(row)) == 4 for row in ends.tolist())


@pytest.mark.heavy
def test_a_full_board_has_nowhere_to_put_a_goal():
    full = from_text("aA\nbB")
    mutate = jax.vmap(make_level_mutator(4), (0, None, None))
    children = mutate(jax.random.split(jax.random.key(0), 50), full, 4)
    assert (children.goals == full.goals).all() and not children.holes.any()

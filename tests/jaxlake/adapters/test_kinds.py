"""Boards of several families, sizes and numbers of agents in one bank, through every adapter, as text and drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import (
    Action,
    AnswerFormat,
    Instance,
    Kind,
    LevelBank,
    PromptStyle,
    Status,
    answer,
    from_text,
    prompt,
    solve,
    stack,
    svg,
    to_text,
)
from jaxlake.adapters.text import path_reward, trl_rows
from jaxlake.generate.candidates import Shape, draw, fingerprints
from jaxlake.render import rgb

KINDS = ("4", "rooms7x3", "corridor5x4")  # in the last, agents start where others go
WAITING = Action.WAIT


@pytest.fixture(scope="module")
def levels() -> Instance:
    """A board of each kind, on arrays of one shape."""
    drawn = [draw(jax.random.key(0), 0, 128, Shape(Kind.of(kind), 0.1, 7, 4)) for kind in KINDS]
    return jax.tree.map(lambda *parts: np.stack([part[0] for part in parts]), *drawn)


@pytest.fixture(scope="module")
def bank(levels) -> LevelBank:
    return LevelBank.build(levels, with_distances=True)


@pytest.mark.heavy
def test_gymnasium_plays_them(levels, bank):
    pytest.importorskip("gymnasium")
    from jaxlake.adapters.gymnasium import CentralLake, VectorLake

    envs = VectorLake(bank, num_envs=len(KINDS))
    seen, _ = envs.reset(seed=0, options={"levels": np.arange(len(KINDS))})
    row, column = np.divmod(np.arange(49), 7)
    off_board = np.maximum(row, column) >= levels.size[:, None]
    np.testing.assert_array_equal(seen[:, 0].reshape(len(KINDS), -1) != 0, off_board | levels.holes)
    assert (envs.step(envs.action_space.sample() * 0 + WAITING)[1] == 0).all()
    one = CentralLake(bank, render_mode="ansi")
    for level in range(len(KINDS)):
        one.reset(options={"level": level})
        assert len(one.render().split("\n")) == Kind.of(KINDS[level]).size


def test_pettingzoo_plays_them(levels, bank):
    pytest.importorskip("pettingzoo")
    from jaxlake.adapters.pettingzoo import ParallelLake

    env = ParallelLake(bank)
    for level, kind in enumerate(KINDS):
        env.reset(seed=0, options={"level": level})
        assert len(env.agents) == Kind.of(kind).num_agents
        env.step({agent: WAITING for agent in env.agents})


@pytest.mark.heavy
def test_jaxmarl_plays_them(bank):
    pytest.importorskip("jaxmarl")
    from jaxlake.adapters.jaxmarl import MultiAgentLake

    env, key = MultiAgentLake(bank), jax.random.key(0)
    _, state = env.reset(key)
    env.step(key, state, {agent: jnp.int32(WAITING) for agent in env.agents})


@pytest.mark.heavy
def test_gymnax_plays_them(bank):
    pytest.importorskip("gymnax")
    from jaxlake.adapters.gymnax import CentralLake, join_actions

    env, key = CentralLake(bank), jax.random.key(0)
    _, state = env.reset(key, env.default_params)
    env.step(key, state, join_actions(jnp.full(4, WAITING)), env.default_params)


@pytest.mark.heavy
def test_jumanji_plays_them(bank):
    pytest.importorskip("jumanji")
    from jaxlake.adapters.jumanji import JumanjiLake

    env = JumanjiLake(bank)
    state, _ = env.reset(jax.random.key(0))
    env.step(state, jnp.full(4, WAITING))


@pytest.mark.heavy
def test_jaxued_plays_them(levels):
    pytest.importorskip("jaxued")
    from jaxlake.adapters.gymnax import join_actions
    from jaxlake.adapters.jaxued import UnderspecifiedLake

    env, key = UnderspecifiedLake(max_agents=4), jax.random.key(0)
    for level in levels:
        _, state = env.reset_to_level(key, level, env.default_params)
        env.step(key, state, join_actions(jnp.full(4, WAITING)), env.default_params)


def test_they_are_written_drawn_and_read_back(levels):
    for level in levels:
        assert fingerprints(stack([from_text(to_text(level), max_size=7, max_agents=4)])) == fingerprints(
            stack([level])
        )
        assert svg(level).count("<circle") >= int(level.num_agents)
        assert rgb(level).shape[0] > 0
        for style in (PromptStyle.COORDINATES, PromptStyle.VERBOSE):
            for cell in (*level.starts[: int(level.num_agents)], *level.goals[: int(level.num_agents)]):
                assert "({},{})".format(*divmod(int(cell), 7)) in prompt(level, style)
        assert to_text(level) in prompt(level, PromptStyle.GRID)


@pytest.mark.heavy
def test_an_optimal_answer_in_words_is_paid_in_full_on_each(levels):
    found = solve(levels)
    assert (found.status == Status.SOLVED).all()
    rows = trl_rows(levels, found.cost, PromptStyle.VERBOSE, AnswerFormat.MOVES)
    answers = [answer(plan, 7, AnswerFormat.MOVES) for plan in found.plan]
    assert path_reward(answers, level=[row["level"] for row in rows]) == [1.0] * len(KINDS)

"""Boards as large as the field's: whatever takes a board takes 64 x 64 with 128 agents, or names the way out."""

import io

import jax
import numpy as np
import oracles
import pytest

import jaxlake
from jaxlake import LakeConfig, LevelBank, Params, files, generate, observations, pibt, to_text, verify
from jaxlake.adapters.text import trl_rows
from jaxlake.env import Lake
from jaxlake.solve import completion_costs, joint_values, solve
from jaxlake.text import prompt
from jaxlake.types import ABSENT
from tests.support.faces import FACES

KINDS = ("32x32", pytest.param("64x64", marks=pytest.mark.heavy), "64x128")
SINGLE = ("gymnax", "jaxued")  # They number joint actions.


@pytest.fixture(scope="module", params=KINDS)
def boards(request):
    config = LakeConfig.uniform([request.param], hole=0.2, wait=0.0)
    return generate(config, jax.random.key(0), 2, exact=False).instances


@pytest.fixture(scope="module")
def plans(boards):
    return pibt.plan(boards, jax.random.key(1), orders=2, max_steps=256)


@pytest.mark.heavy
@pytest.mark.parametrize("name", FACES)
def test_adapters_play_what_the_core_plays(boards, name):
    bank = LevelBank.build(boards[:1])
    if name in SINGLE:
        with pytest.raises(
            ValueError, match=r"at most 13 agents; adapters.jaxmarl and adapters.jumanji take an action"
        ):
            face = FACES[name](bank, Params(max_steps=3))
            face.step(face.reset(jax.random.key(0)), np.zeros(boards.max_agents, np.int32), jax.random.key(0))
        return
    lake = Lake(observe=observations.planes if name.startswith("gymnas") else observations.window(5))
    face, rng = FACES[name](bank, Params(max_steps=3), lake), np.random.default_rng(0)
    reset, step = (face.reset, face.step) if face.on_host else (jax.jit(face.reset), jax.jit(face.step))
    (state, _), plain = lake.reset(bank.at(0)[0], Params(max_steps=3)), jax.jit(lake.step)
    carry = reset(jax.random.key(0))
    for number in range(3):
        actions = rng.integers(0, 5, boards.max_agents).astype(np.int32)
        state, expected = plain(state, actions)
        carry = step(carry, actions, jax.random.key(number))
        seen = face.seen(jax.device_get(carry))
        assert tuple(map(bool, seen.ends)) == (False, number == 2)
        if seen.cells is not None:
            np.testing.assert_array_equal(seen.cells, state.positions)
        if seen.observation is not None:
            np.testing.assert_array_equal(seen.observation, expected.observation)
            low, high = face.box()
            assert np.all(np.min(low) <= seen.observation) and np.all(seen.observation <= np.max(high))
            assert seen.observation.dtype == (np.int8 if boards.max_agents < 128 else np.int16)


@pytest.mark.heavy
def test_a_bank_holds_the_steps_of_a_search_from_each_goal(boards):
    bank = LevelBank.build(boards, with_distances=True)
    assert bank.distances.dtype == np.int16 and bank.distances.shape == (2, boards.max_agents, boards.max_size**2)
    near = oracles.moves(boards[1])
    for agent in range(0, boards.max_agents, 9):
        expected = np.full(boards.max_size**2, ABSENT)
        found = oracles.distances(near, int(boards.goals[1, agent]))
        expected[list(found)] = list(found.values())
        np.testing.assert_array_equal(bank.distances[1, agent], expected)


def test_files_give_back_boards_and_plans(boards, plans, tmp_path):
    entries = [
        files.record(board, str(index), plan=jax.tree.map(lambda part, at=index: part[at], plans))
        for index, board in enumerate(boards)
    ]
    files.write(tmp_path / "large.jsonl", entries)
    back, _ = files.read(tmp_path / "large.jsonl")
    assert jax.tree.all(jax.tree.map(np.array_equal, back, boards))
    for index, entry in enumerate(files.read_records(tmp_path / "large.jsonl")):
        one = boards[index : index + 1]
        again, first = (
            verify(one, jax.tree.map(lambda part: np.asarray(part)[None], plan), np.zeros(1, np.int32))
            for plan in (files.plan_of(entry), jax.tree.map(lambda part, at=index: part[at], plans))
        )
        assert again.valid[0] == first.valid[0] and again.cost[0] == first.cost[0]


def test_pictures_are_a_screen_wide_and_show_no_numbers_that_nobody_can_read(boards):
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(jaxlake.png(boards[0])))
    assert 960 <= image.width <= 1100 and image.width == image.height
    assert ("<text" in jaxlake.svg(boards[0])) == (boards.max_size == 32)


def test_what_ends_earlier_says_so_in_one_line_and_names_the_way_out(boards, plans):
    for refused, way_out in (
        (lambda: solve(boards), "jaxlake.pibt plans on larger boards"),
        (lambda: completion_costs(boards, plans), "jaxlake.verify judges whole plans"),
        (lambda: joint_values(boards, 2, "sum_of_costs"), "distance_fields has each agent's own steps"),
        (lambda: to_text(boards[0]), "prompts of coordinates have no such limit"),
        (lambda: Lake(observe=observations.text).reset(boards[0]), "svg and render_mode='rgb_array' draw any number"),
        (lambda: trl_rows(boards, np.ones(2, np.int32)), "larger boards are played step by step"),
    ):
        with pytest.raises(ValueError) as told:
            refused()
        assert way_out in str(told.value) and "\n" not in str(told.value)
    assert f"{boards.max_agents - 1}(" in prompt(boards[0], "coordinates")

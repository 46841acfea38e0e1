"""Boards as large as the field's: whatever takes a board takes 64 x 64 with 128 agents."""

import io

import jax
import numpy as np
import oracles
import pytest

import jaxlake
from jaxlake import LakeConfig, LevelBank, Params, generate, observations, pibt, stack, verify
from jaxlake.env import Lake
from jaxlake.types import ABSENT
from tests.support.faces import FACES

SIZES = ((32, 32), (64, 128))


@pytest.fixture(scope="module", params=SIZES, ids="{0[0]}x{0[1]}".format)
def boards(request):
    (size, agents), rng = request.param, np.random.default_rng(0)
    padding = {"max_size": size, "max_agents": agents}
    return stack([oracles.random_instance(rng, size, agents, 0.2, overlapping=False, **padding) for _ in range(2)])


@pytest.mark.heavy
def test_boards_are_drawn_and_planned(boards):
    config = LakeConfig.uniform([f"{boards.max_size}x{boards.max_agents}"], hole=0.2, wait=0.0)
    drawn = generate(config, jax.random.key(0), 2, exact=False).instances
    plans = pibt.plan(drawn, jax.random.key(1), orders=2, max_steps=256)
    assert verify(drawn, plans, np.int32(ABSENT)).checks[:, :7].all()


@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name in FACES if name not in ("gymnax", "jaxued")])  # of few agents
def test_adapters_play_what_the_core_plays(boards, name):
    bank = LevelBank.build(boards[:1])
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


def test_pictures_are_a_screen_wide_and_show_no_numbers_that_nobody_can_read(boards):
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(jaxlake.png(boards[0])))
    assert 960 <= image.width <= 1100 and image.width == image.height
    assert ("<text" in jaxlake.svg(boards[0])) == (boards.max_size == 32)

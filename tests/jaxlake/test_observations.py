"""Every observation shows the state: positions, goals and holes are decoded back out of it during random play."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import random_instance

from jaxlake import observations
from jaxlake.board_text import from_text
from jaxlake.env import Lake
from jaxlake.levels import LevelBank, stack

MAX_SIZE, MAX_AGENTS, RADIUS = 5, 4, 2
LEVELS = stack(
    [
        from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS)
        for board in (
            "a.B\n.#.\nb.A",
            "ab..\n.#D.\nBc.A\nd..C",
            "a#.A.\n.#b#.\n.c.#.\n.C...\n...B.",
            "abA\ncdB\n.CD",
            "a....\n.....\n..#..\n.....\n....A",
        )
    ]
)


def everything(state):
    return {
        "planes": observations.planes(state),
        "one_hot": observations.one_hot(state),
        "window": observations.window(RADIUS)(state),
        "flat": observations.flat(state),
    }


@functools.cache
def rollout():
    lake = Lake(observe=everything)

    def play(instance, actions):
        state, first = lake.reset(instance)

        def step(state, actions):
            state, time_step = lake.step(state, actions)
            return state, (state, time_step.observation)

        _, later = jax.lax.scan(step, state, actions)
        return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), (state, first.observation), later)

    return jax.jit(jax.vmap(play))


@given(st.integers(0, 2**31 - 1))
@settings(max_examples=6)
def test_every_agent_is_seen_exactly_where_it_is(seed):
    actions = np.random.default_rng(seed).integers(0, 5, (len(LEVELS.size), 8, MAX_AGENTS))
    states, observed = jax.device_get(rollout()(LEVELS, actions))
    for level in range(len(LEVELS.size)):
        for time in range(9):
            state, seen = jax.tree.map(lambda x, at=(level, time): x[at], (states, observed))
            expected = contents(state)
            assert from_planes(seen["planes"]) == expected
            assert from_one_hot(seen["one_hot"]) == expected
            assert from_flat(seen["flat"], expected["num_agents"]) == expected
            check_windows(seen["window"], expected)


def contents(state) -> dict:
    """The state as sets and lists of (row, column); ``blocked`` are the padded board's cells that cannot be entered."""
    count, size, side = int(state.instance.num_agents), int(state.instance.size), state.instance.max_size
    grid = [divmod(cell, side) for cell in range(side**2)]
    return {
        "num_agents": count,
        "agents": [divmod(int(cell), side) for cell in state.positions[:count]],
        "goals": [divmod(int(cell), side) for cell in state.instance.goals[:count]],
        "blocked": {at for at, hole in zip(grid, state.instance.holes, strict=True) if hole or max(at) >= size},
    }


def from_planes(planes: np.ndarray) -> dict:
    def numbered(plane):
        found = {int(plane[tuple(at)]): tuple(at.tolist()) for at in np.argwhere(plane)}
        assert np.count_nonzero(plane) == len(found)
        return [found[number] for number in sorted(found)]

    agents = numbered(planes[observations.AGENTS])
    assert planes.shape == (3, MAX_SIZE, MAX_SIZE) and planes.dtype == np.int8
    assert sorted(np.unique(planes[observations.AGENTS])) == list(range(len(agents) + 1))
    return {
        "num_agents": len(agents),
        "agents": agents,
        "goals": numbered(planes[observations.GOALS]),
        "blocked": {tuple(at.tolist()) for at in np.argwhere(planes[observations.OBSTACLES] == 1)},
    }


def from_one_hot(planes: np.ndarray) -> dict:
    assert planes.shape == (1 + 2 * MAX_AGENTS, MAX_SIZE, MAX_SIZE) and planes.dtype == np.int8
    assert set(np.unique(planes)) <= {0, 1}
    obstacles, agents, goals = np.split(planes, [1, 1 + MAX_AGENTS])
    agents, goals = ([tuple(at.tolist()) for plane in ends for at in np.argwhere(plane)] for ends in (agents, goals))
    assert planes[1 + len(agents) : 1 + MAX_AGENTS].sum() + planes[1 + MAX_AGENTS + len(goals) :].sum() == 0
    return {
        "num_agents": len(agents),
        "agents": agents,
        "goals": goals,
        "blocked": {tuple(at.tolist()) for at in np.argwhere(obstacles[0])},
    }


def from_flat(flat: np.ndarray, count: int) -> dict:
    assert flat.shape == (MAX_AGENTS, 4 * MAX_AGENTS + MAX_SIZE**2) and flat.dtype == np.float32
    assert not flat[count:].any()
    views = []
    for agent, row in enumerate(flat[:count]):
        pairs = np.rint(row[: 4 * MAX_AGENTS] * MAX_SIZE).astype(int).reshape(2, MAX_AGENTS, 2)
        order = [agent, *(other for other in range(MAX_AGENTS) if other != agent)]
        found = {other: (tuple(pairs[0, k].tolist()), tuple(pairs[1, k].tolist())) for k, other in enumerate(order)}
        assert all(found[other] == ((-MAX_SIZE,) * 2,) * 2 for other in range(count, MAX_AGENTS))
        blocked = {divmod(int(cell), MAX_SIZE) for cell in np.flatnonzero(row[4 * MAX_AGENTS :])}
        agents, goals = ([found[other][part] for other in range(count)] for part in (0, 1))
        views.append({"num_agents": count, "agents": agents, "goals": goals, "blocked": blocked})
    assert all(view == views[0] for view in views)
    return views[0]


def check_windows(windows: np.ndarray, expected: dict, slots: int = MAX_AGENTS, side: int = MAX_SIZE) -> None:
    """Each cell of each window against what is there, cell by cell."""
    assert windows.shape == (slots, 4, 2 * RADIUS + 1, 2 * RADIUS + 1)
    assert windows.dtype == (np.int8 if slots < 128 else np.int16)
    assert not windows[expected["num_agents"] :].any()
    for agent, (row, column) in enumerate(expected["agents"]):
        for down in range(-RADIUS, RADIUS + 1):
            for right in range(-RADIUS, RADIUS + 1):
                cell = (row + down, column + right)
                outside = not (min(cell) >= 0 and max(cell) < side)
                others = [k + 1 for k, at in enumerate(expected["agents"]) if at == cell and k != agent]
                goals = [k + 1 for k, at in enumerate(expected["goals"]) if at == cell and k != agent]
                assert windows[agent, :, down + RADIUS, right + RADIUS].tolist() == [
                    outside or cell in expected["blocked"],
                    *(others or [0]),
                    expected["goals"][agent] == cell,
                    *(goals or [0]),
                ]


@pytest.mark.parametrize(("size", "agents"), [(7, 12), (20, 130)])
def test_windows_of_many_agents_show_each_cell_that_is_there(size, agents):
    level = random_instance(
        np.random.default_rng(agents), size, agents, 0.2, overlapping=True, max_size=size + 1, max_agents=agents + 3
    )
    state, first = jax.jit(Lake(observe=observations.window(RADIUS)).reset)(level)
    check_windows(np.asarray(first.observation), contents(jax.device_get(state)), agents + 3, size + 1)


@pytest.mark.parametrize("agents", [2, 12])
def test_a_window_projects_goals_and_shows_how_far_each_cell_is_from_the_agents_own_goal(agents):
    level = random_instance(
        np.random.default_rng(agents), 9, agents, 0.2, overlapping=True, max_size=10, max_agents=agents + 1
    )
    observe = observations.window(RADIUS, project_goal=True, distances=True)
    bank = LevelBank.build(stack([level]), with_distances=True)
    _, first = jax.jit(Lake(observe=observe).reset)(bank.at(0)[0], distances=bank.at(0)[1])
    seen, near = np.asarray(first.observation), oracles.moves(level)
    assert seen.shape == (agents + 1, 5, 2 * RADIUS + 1, 2 * RADIUS + 1) and not seen[agents].any()
    assert observations.bounds(observe, agents) == (-127, 127)
    for agent in range(agents):
        (row, column), goal = (divmod(int(cells[agent]), 10) for cells in (level.starts, level.goals))
        steps = oracles.distances(near, int(level.goals[agent]))
        own, offset = steps.get(int(level.starts[agent])), np.clip(np.subtract(goal, (row, column)), -RADIUS, RADIUS)
        assert np.argwhere(seen[agent, observations.OWN_GOAL]).tolist() == [(offset + RADIUS).tolist()]
        for down, right in itertools.product(range(-RADIUS, RADIUS + 1), repeat=2):
            at = (row + down, column + right)
            away = steps.get(at[0] * 10 + at[1]) if min(at) >= 0 and max(at) < 9 else None
            expected = 127 if away is None or own is None else away - own
            assert seen[agent, observations.STEPS_TO_GOAL, down + RADIUS, right + RADIUS] == expected


def test_a_window_with_distances_needs_a_bank_that_has_them():
    with pytest.raises(ValueError, match="build the bank with_distances=True"):
        jax.eval_shape(lambda: Lake(observe=observations.window(1, distances=True)).reset(from_text("aA\n..")))


def test_the_text_names_those_that_have_arrived_and_hides_goals_under_agents():
    reset, step = jax.jit(Lake().reset), jax.jit(Lake().step)
    state, _ = reset(from_text("aA.\nB..\n#.b"))
    assert observations.text(state) == "aA.\nB..\n#.b"
    state, _ = step(state, jnp.array([3, 4]))
    assert observations.text(state) == ".a.\nB..\n#.b\narrived: a"
    state, _ = step(state, jnp.array([2, 4]))
    state, _ = step(state, jnp.array([1, 4]))
    assert observations.text(state) == ".A.\na..\n#.b"


def test_of_coinciding_goals_a_window_shows_the_largest_number_and_the_agents_own_beside_it():
    level = from_text("a..b\n....\n...c\n.ABC")
    level = level.replace(goals=np.array([9, 9, 9], np.int32))
    _, first = jax.jit(Lake(observe=observations.window(3)).reset)(level)  # which refuses such goals where it sees them
    at = {agent: (2 - row + 3, 1 - column + 3) for agent, (row, column) in enumerate([(0, 0), (0, 3), (2, 3)])}
    for agent, largest_other in ((0, 3), (1, 3), (2, 2)):
        _, _, own_goal, other_goals = np.asarray(first.observation[agent])
        assert own_goal[at[agent]] == own_goal.sum() == 1
        assert other_goals[at[agent]] == other_goals.sum() == largest_other


def test_a_window_of_radius_zero_is_the_agents_own_cell():
    _, first = jax.jit(Lake(observe=observations.window(0)).reset)(from_text("aA.\n...\n..."))
    assert first.observation.tolist() == [[[[0]], [[0]], [[0]], [[0]]]]


@pytest.mark.heavy
def test_observations_stay_within_their_bounds_and_reach_them():
    whole = from_text("a#C\n.b.\nAcB", max_size=3, max_agents=3)
    lonely = from_text("a.A\n...\n...", max_size=3, max_agents=3)
    for observe in (observations.planes, observations.one_hot, observations.window(1), observations.flat):
        least, greatest = observations.bounds(observe, max_agents=3)
        seen = [np.ravel(Lake(observe=observe).reset(level)[1].observation) for level in (whole, lonely)]
        assert (np.min(seen), np.max(seen)) == (least, greatest)

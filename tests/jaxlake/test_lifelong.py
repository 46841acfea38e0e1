"""Lifelong episodes beside a simulator in plain Python, and the goals that are drawn."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxlake import (
    Action,
    AutoReset,
    Instance,
    Lake,
    LevelBank,
    Params,
    distance_fields,
    distance_tables,
    from_text,
    lifelong,
    observations,
    pad,
    rewards,
    stack,
)
from jaxlake.adapters.host import pictures
from jaxlake.types import ABSENT
from tests.support.lifelong_boards import BOARD, DRAWN, LISTED, LISTS, SLOTS, board, random_board

UP, DOWN, LEFT, RIGHT, WAIT = Action


@functools.cache
def jitted(lake: Lake):
    @jax.jit
    def play(instance, actions, keys, distances):
        def step(state, inputs):
            state, time_step = lake.step(state, *inputs)
            return state, (state.positions, state.instance.goals, time_step)

        state, _ = lake.reset(instance, Params(max_steps=len(actions)), distances)
        return jax.lax.scan(step, state, (actions, keys))

    return play


def play(lake, instance, actions, distances=None):
    keys = jax.random.split(jax.random.key(0), len(actions))
    return jax.device_get(jitted(lake)(instance, np.asarray(actions), keys, distances))


def simulated(instance: Instance, lists, actions):
    """Positions, goals and numbers of goals reached after each step, by the rules of `docs/environment.md`."""
    beside, agents = oracles.moves(instance), range(len(lists))
    offsets = {UP: -instance.max_size, DOWN: instance.max_size, LEFT: -1, RIGHT: 1, WAIT: 0}
    cells, turns = instance.starts[: len(lists)].tolist(), [0] * len(lists)
    for joint in actions:
        wanted = []
        for cell, action in zip(cells, joint, strict=False):
            target = cell + offsets[Action(int(action))]
            wanted.append(target if target in beside[cell] else cell)
        stays = {
            one
            for one, other in itertools.permutations(agents, 2)
            if wanted[one] == wanted[other] or (wanted[one] == cells[other] and wanted[other] == cells[one])
        }
        while more := {
            one
            for one, other in itertools.permutations(agents, 2)
            if one not in stays and other in stays and wanted[one] == cells[other]
        }:
            stays |= more
        cells = [cells[agent] if agent in stays else wanted[agent] for agent in agents]
        for agent in agents:
            turns[agent] += cells[agent] == lists[agent][turns[agent] % len(lists[agent])]
        yield cells, [lists[agent][turns[agent] % len(lists[agent])] for agent in agents], list(turns)


@pytest.mark.parametrize(("size", "agents"), [(4, 4), (5, 10)])  # both of the two programs of a move
def test_lists_are_played_as_by_a_simulator_in_plain_python(size, agents):
    instance, rng = random_board(0, size, agents, 3), np.random.default_rng(1)
    free = np.flatnonzero(~instance.holes)
    tasks = rng.choice(free, (agents, 5)).astype(np.int32)  # goals that coincide, and one twice in a row, among them
    tasks[0, 3:] = ABSENT
    actions = rng.integers(0, 5, (300, agents))
    state, (positions, goals, steps) = play(LISTED, lifelong.board(instance, tasks), actions)
    lists = [[cell for cell in row if cell != ABSENT] for row in tasks.tolist()]
    for time, expected in enumerate(simulated(instance, lists, actions)):
        found = (positions[time], goals[time], steps.info.goals_reached[time])
        assert tuple(part.tolist() for part in found) == expected, time
    assert steps.rewards.sum(axis=0).tolist() == state.goals_reached.tolist() and state.goals_reached.sum() > 20
    assert not steps.info.solved.any() and not state.terminated and state.truncated


def test_no_two_agents_meet_and_each_has_a_goal_that_it_can_reach():
    agents = 10
    instance = random_board(2, 5, agents, 3)
    actions = np.random.default_rng(2).integers(0, 5, (400, agents))
    with_goals = lifelong.board(instance)
    _, (positions, goals, steps) = play(DRAWN, with_goals, actions)
    assert not instance.holes[positions].any() and not instance.holes[goals].any()
    assert all(len(set(row)) == agents for row in positions.tolist())
    assert not (positions == goals)[steps.info.arrived].any()  # never the own cell
    before = np.vstack([instance.goals[None], goals[:-1]])
    assert np.array_equal(steps.info.arrived, positions == before)
    assert np.array_equal(goals == before, ~steps.info.arrived)
    assert np.array_equal(steps.info.goals_reached, np.cumsum(steps.info.arrived, axis=0))


def test_all_other_cells_in_reach_are_drawn_equally_often_and_agents_differ():
    instance = from_text("a..#.\nb..#.\n..B#.\n..A#.\n....#")  # 16 cells, and 4 that nobody reaches
    with_goals = lifelong.board(instance)
    draw = jax.vmap(lambda key: lifelong.next_goals(with_goals, jnp.array([True, False]), key).goals)
    goals = np.asarray(jax.jit(draw)(jax.random.split(jax.random.key(0), 12_000)))
    assert (goals[:, 1] == instance.goals[1]).all()
    counts = np.bincount(goals[:, 0], minlength=25)
    free = {0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17, 20, 21, 22, 23} - {int(instance.goals[0])}
    assert set(np.flatnonzero(counts)) == free
    assert np.abs(counts[list(free)] - 800).max() < 5 * np.sqrt(800)
    both = jax.vmap(lambda key: lifelong.next_goals(with_goals, jnp.array([True, True]), key).goals)
    pairs = np.asarray(jax.jit(both)(jax.random.split(jax.random.key(1), 12_000)))
    assert len(np.unique(pairs, axis=0)) == 15 * 15


def test_goals_of_the_longest_list_are_drawn_by_the_whole_word():
    """A 64-bit product of the bits and the number of other goals has the number drawn in its high word."""
    agents, count, key = 64, 65_536, jax.random.key(2)
    none = np.zeros(agents, np.int32)
    lists = {"tasks": np.arange(count), "first": none, "count": none + count, "place": none, "goals": none}
    drawn = lifelong.next_goals(lifelong.board(from_text("a.\n.A")).replace(**lists), jnp.ones(agents, bool), key).place
    bits = np.asarray(lifelong._bits_of_agents(key, agents)).astype(np.uint64)
    assert drawn.tolist() == (1 + (bits * np.uint64(count - 1) >> np.uint64(32))).tolist()


def test_an_agent_reaches_a_goal_that_it_starts_on_with_the_first_step():
    instance = lifelong.board(from_text("ab. A..\n... ...\n... .B."), np.array([[0, 4], [7, 3]]))
    state, first = jax.jit(LISTED.reset)(instance)
    assert not first.info.arrived.any() and not first.terminated
    _, second = jax.jit(LISTED.step)(state, np.array([WAIT, WAIT]))
    assert second.info.arrived.tolist() == [True, False] and second.info.goals_reached.tolist() == [1, 0]
    assert second.info.costs.sum_of_loss == 1


def test_a_fall_and_a_conflict_end_a_lifelong_episode_that_may_reach_a_goal_in_its_last_step():
    lake = Lake("fall", "end", reward=rewards.reached, goals="listed")
    instance = board(np.array([[11, 0], [12, 8]]))
    step = jax.jit(lake.step)
    state, _ = jax.jit(lake.reset)(instance)
    state, _ = step(state, np.array([DOWN, WAIT, WAIT]))
    ended, seen = step(state, np.array([RIGHT, DOWN, WAIT]))
    assert ended.terminated and seen.info.fell.tolist() == [True, False, False]
    assert seen.rewards.tolist() == seen.info.goals_reached.tolist() == [0, 1, 0]
    after, later = step(ended, np.array([UP, UP, WAIT]))
    assert later.info.goals_reached.tolist() == [0, 1, 0] and not later.info.arrived.any() and not later.rewards.any()
    assert after.instance.goals.tolist() == ended.instance.goals.tolist() == [11, 8, ABSENT]
    ended, seen = step(state, np.array([DOWN, WAIT, WAIT]))
    assert ended.terminated and seen.info.vertex_conflicts == 1 and not seen.info.goals_reached.any()


def test_a_step_may_slip_and_draw_goals():
    instance = lifelong.board(from_text("a.A\n###\n..."))

    @jax.jit
    def play(key):
        def step(state, key):
            state, seen = DRAWN.step(state, jnp.full(1, UP), key)
            return state, (state.positions[0], state.instance.goals[0], seen.info.arrived[0])

        state, _ = DRAWN.reset(instance, Params(max_steps=100, slip=1.0))
        return jax.lax.scan(step, state, jax.random.split(key, 120))[1]

    positions, goals, arrived = jax.device_get(play(jax.random.key(0)))
    before = np.concatenate([[2], goals[:-1]])
    assert set(positions.tolist()) == {0, 1, 2} and not arrived[100:].any()
    assert np.array_equal(arrived[:100], positions[:100] == before[:100]) and 8 < arrived.sum() < 60
    assert np.array_equal(goals != before, arrived)


def test_a_board_is_padded_and_stacked_with_its_lists():
    actions = np.random.default_rng(3).integers(0, 5, (60, 5))
    wider = stack([pad(board(), 6, 5), lifelong.board(random_board(0, 5, 4, 3))])[0]
    *_, (cells, goals, counts) = simulated(board(), [[11, 0, 13, 3], [3, 8]], actions)
    state, _ = play(LISTED, wider, actions)
    row, column = np.divmod([cells, goals], 4)
    assert [state.positions[:2].tolist(), state.instance.goals[:2].tolist()] == (row * 6 + column).tolist()
    assert state.goals_reached.tolist() == [*counts, 0, 0, 0]


@pytest.mark.parametrize("flooded", [False, True], ids=["table", "flood"])
def test_distances_are_those_to_the_goals_now(flooded):
    lake = Lake(observe=observations.window(1, distances=True), reward=rewards.shaped(0.5), goals="drawn")
    with_goals = board(None)
    distances = distance_fields(with_goals) if flooded else distance_tables(with_goals)
    actions = np.random.default_rng(4).integers(0, 5, (120, SLOTS))
    _, (positions, goals, steps) = play(lake, with_goals, actions, distances)
    assert steps.info.goals_reached[-1].sum() > 1
    plain = from_text(BOARD, max_agents=SLOTS)
    state, _ = Lake().reset(plain)
    see = jax.jit(observations.window(1, distances=True))
    cells, wanted = np.vstack([plain.starts[None], positions]), np.vstack([plain.goals[None], goals])
    for time in range(len(actions)):
        fields = oracle_fields(plain.replace(goals=wanted[time + 1]))
        instance = state.instance.replace(goals=wanted[time + 1])
        now = state.replace(instance=instance, positions=jnp.asarray(cells[time + 1]), distances=fields)
        assert np.array_equal(see(now), steps.observation[time]), time
        fields = oracle_fields(plain.replace(goals=wanted[time]))
        for agent in range(2):
            nearer = int(fields[agent, cells[time][agent]]) - int(fields[agent, cells[time + 1][agent]])
            assert steps.rewards[time][agent] == 0.5 * nearer + steps.info.arrived[time][agent]


def oracle_fields(instance: Instance) -> np.ndarray:
    fields = np.full((instance.max_agents, instance.max_size**2), ABSENT, np.int16)
    near = oracles.moves(instance)
    for agent, goal in enumerate(np.asarray(instance.goals).tolist()):
        if goal != ABSENT:
            for cell, steps in oracles.distances(near, goal).items():
                fields[agent, cell] = steps
    return fields


def compass(state):
    return state.steps_to_goals(jnp.arange(state.instance.max_size**2)[None])


COMPASS = Lake(observe=compass, reward=rewards.reached, goals="drawn")


def test_the_tables_of_other_boards_are_refused():
    boards = stack([lifelong.board(random_board(seed, 4, 3, 3)) for seed in range(2)])
    tables = distance_tables(boards)
    for distances in (tables, LevelBank.build(boards, with_distances=True).distances, tables[:, 0]):
        with pytest.raises(ValueError, match="distance_fields or distance_tables make them"):
            jax.eval_shape(jax.vmap(COMPASS.reset, in_axes=(0, None, None)), boards, Params(), distances)


def test_goals_are_drawn_among_those_of_each_level_of_a_bank_and_counts_begin_anew():
    """Boards of two sizes side by side; an episode that begins has reached nothing, also where an agent starts on."""
    there = lifelong.board(from_text("ab. A..\n... ...\n... .B."))
    boards = stack([there, lifelong.board(random_board(1, 5, 2, 4))])
    bank, episodes = LevelBank.build(boards, with_distances=True), AutoReset(COMPASS, "next-step")

    @jax.jit
    def run(keys, actions):
        def step(state, inputs):
            state, seen = jax.vmap(episodes.step, in_axes=(None, 0, 0, 0))(bank, state, *inputs)
            return state, (state.time, state.instance.board, state.instance.goals, seen.info, seen.observation)

        begin = jax.vmap(episodes.begin, in_axes=(None, 0, None))
        state, _ = begin(bank, jnp.arange(4) % 2, Params(max_steps=12))
        return jax.lax.scan(step, state, (actions, keys))

    actions = np.random.default_rng(6).integers(0, 5, (80, 4, 2), np.int32)
    last, played = jax.device_get(run(jax.random.split(jax.random.key(2), (80, 4)), actions))
    times, numbers, goals, info, seen = played
    assert set(numbers.ravel()) == {0, 1} and info.arrived.sum() > 10
    for index in np.ndindex(numbers.shape):
        assert np.array_equal(seen[index], oracle_fields(boards[numbers[index]].replace(goals=goals[index]))), index
    reached = np.zeros((4, 2), int)
    for time, arrived, counts in zip(times, info.arrived, info.goals_reached, strict=True):
        reached = np.where((time == 0)[:, None], 0, reached) + arrived
        assert np.array_equal(reached, counts) and not arrived[time == 0].any()
    held = last.replace(distances=jax.vmap(lambda number: bank.at(number)[1])(last.instance.board))
    assert np.array_equal(jax.vmap(compass)(held), seen[-1])
    texts = pictures(last, "ansi")
    assert [len(drawn.split("\n")[0]) for drawn in texts] == [[3, 5][number] for number in numbers[-1]]


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_episodes_of_a_bank_are_those_of_their_levels(mode):
    """The state of `AutoReset` holds no lists and tables, but plays by those of the level that was drawn."""
    lake = Lake(observe=observations.window(1, distances=True), reward=rewards.reached, goals="listed")
    boards = [lifelong.board(random_board(seed, 4, 3, 3)) for seed in range(3)]
    bank, episodes = LevelBank.build(stack(boards), with_distances=True), AutoReset(lake, mode)
    actions = jnp.asarray(np.random.default_rng(5).integers(0, 5, (30, 3)), jnp.int32)

    @jax.jit
    def run(key):
        def step(state, inputs):
            state, time_step = episodes.step(bank, state, *inputs)
            return state, (state.positions, state.instance.goals, state.instance.board, time_step)

        state, _ = episodes.reset(bank, key, Params(max_steps=10))
        assert state.distances is None and state.instance.tasks is None
        return state.instance.board, jax.lax.scan(step, state, (actions, jax.random.split(key, 30)))[1]

    drawn, (positions, goals, numbers, steps) = jax.device_get(run(jax.random.key(3)))
    begin, levels = 0, set()
    for end in np.flatnonzero(steps.truncated).tolist():
        number, episode = int(numbers[begin] if begin else drawn), slice(begin, end + 1)
        levels.add(number)
        _, alone = play(lake, boards[number], actions[episode], distance_tables(boards[number]))
        last = slice(end - begin)  # in the same step the next episode begins
        assert np.array_equal(positions[begin:end], alone[0][last]) and np.array_equal(goals[begin:end], alone[1][last])
        both = [(part.rewards, part.info, part.truncated) for part in (steps, alone[2])]
        ours = jax.tree.map(lambda leaf, episode=episode: leaf[episode], both[0])
        assert jax.tree.all(jax.tree.map(np.array_equal, ours, both[1]))
        assert np.array_equal(steps.final_observation[episode], alone[2].observation)
        begin = end + 1 + (mode == "next-step")
    assert len(levels) > 1


@pytest.mark.parametrize(
    ("mode", "times"),
    [("off", [[1, 1, 2], [1, 1, 3]]), ("same-step", [[0, 0, 2], [1, 1, 3]]), ("next-step", [[1, 1, 2], [0, 0, 3]])],
)
def test_an_episode_ends_where_the_bank_has_another_board_in_its_place(mode, times):
    """The two that change places differ in their lists alone; the third stays, and plays as if nothing had changed."""
    boards = stack([board(), board(LISTS[:, :2]), lifelong.board(random_board(0, 4, 3, 3))])
    bank, episodes = LevelBank.build(boards), AutoReset(LISTED, mode)
    step = jax.jit(jax.vmap(episodes.step, in_axes=(None, 0, 0, 0)))
    actions, keys = np.tile([DOWN, RIGHT, WAIT], (3, 1)), jax.random.split(jax.random.key(0), 3)
    begun, _ = jax.vmap(episodes.begin, in_axes=(None, 0, None))(bank, jnp.arange(3), Params())
    before, _ = step(bank, begun, actions, keys)
    changed, unchanged = (step(each, before, actions, keys) for each in (bank[[1, 0, 2]], bank))
    state, seen = changed
    assert seen.truncated.tolist() == [True, True, False] and not unchanged[1].truncated.any()
    assert not seen.rewards[:2].any() and not seen.info.arrived[:2].any()
    assert jax.tree.all(jax.tree.map(lambda one, other: np.array_equal(one[2], other[2]), changed, unchanged))
    later, _ = step(bank[[1, 0, 2]], state, actions, keys)
    assert [state.time.tolist(), later.time.tolist()] == times
    stays = mode == "off"
    assert later.done.tolist() == [stays, stays, False]
    assert mode == "same-step" or np.array_equal(state.positions[:2], before.positions[:2])


def test_a_plane_shows_the_largest_number_of_goals_that_coincide():
    instance = lifelong.board(from_text(BOARD), np.array([[7, 0], [7, 8]]))
    seen = jax.jit(lambda level: observations.planes(LISTED.reset(level)[0]))(pad(instance, 4, 3))
    assert seen[observations.GOALS].reshape(-1)[7] == 2

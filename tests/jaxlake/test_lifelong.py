"""Lifelong episodes beside a simulator in plain Python, the goals that are drawn, and what has no meaning in them."""

import functools
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxlake import (
    Action,
    AutoReset,
    AutoResetMode,
    Instance,
    Lake,
    LevelBank,
    Params,
    Plan,
    PromptStyle,
    distance_fields,
    distance_tables,
    from_text,
    lifelong,
    observations,
    pad,
    pibt,
    prompt,
    rewards,
    solve,
    stack,
    verify,
)
from jaxlake.files import record
from jaxlake.levels import build
from jaxlake.score import main as score
from jaxlake.types import ABSENT

pytestmark = pytest.mark.usefixtures("quick_compilation")

UP, DOWN, LEFT, RIGHT, WAIT = Action
BOARD = """
    a..B
    .##.
    b..A
    ...#
"""
LISTS = np.array([[11, 0, 13, 3], [3, 8, ABSENT, ABSENT]], np.int32)
SLOTS = 3
DRAWN = Lake(reward=rewards.reached, goals="drawn")
LISTED = Lake(reward=rewards.reached, goals="listed")


def board(tasks=LISTS, max_tasks=None):
    tasks = tasks if tasks is None else np.vstack([tasks, np.full_like(tasks[:1], ABSENT)])
    return lifelong.board(from_text(BOARD, max_agents=SLOTS), tasks, max_tasks)


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


def random_board(seed: int, size: int, agents: int, holes: int) -> Instance:
    """A board whose free cells are connected."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(size**2)
        free = order[holes:]
        instance = build(size, np.isin(np.arange(size**2), order[:holes]), free[:agents], free[-agents:])
        if (np.asarray(distance_fields(instance)) >= 0).sum() == agents * len(free):
            return instance


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


@pytest.mark.parametrize(("size", "agents"), [(4, 4), (5, 10)])
def test_no_two_agents_meet_and_each_has_a_goal_that_it_can_reach(size, agents):
    instance = random_board(2, size, agents, 3)
    actions = np.random.default_rng(2).integers(0, 5, (400, agents))
    endless = lifelong.board(instance)
    _, (positions, goals, steps) = play(DRAWN, endless, actions)
    assert not instance.holes[positions].any() and not instance.holes[goals].any()
    assert all(len(set(row)) == agents for row in positions.tolist())
    assert not (positions == goals)[steps.info.arrived].any()  # never the own cell
    before = np.vstack([instance.goals[None], goals[:-1]])
    assert np.array_equal(steps.info.arrived, positions == before)
    assert np.array_equal(goals == before, ~steps.info.arrived)
    assert np.array_equal(steps.info.goals_reached, np.cumsum(steps.info.arrived, axis=0))


def test_all_other_cells_in_reach_are_drawn_equally_often_and_agents_differ():
    instance = from_text("a..#.\nb..#.\n..B#.\n..A#.\n....#")  # 16 cells, and 4 that nobody reaches
    endless = lifelong.board(instance)
    draw = jax.vmap(lambda key: lifelong.next_goals(endless, jnp.array([True, False]), key).goals)
    goals = np.asarray(jax.jit(draw)(jax.random.split(jax.random.key(0), 12_000)))
    assert (goals[:, 1] == instance.goals[1]).all()
    counts = np.bincount(goals[:, 0], minlength=25)
    free = {0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17, 20, 21, 22, 23} - {int(instance.goals[0])}
    assert set(np.flatnonzero(counts)) == free
    assert np.abs(counts[list(free)] - 800).max() < 5 * np.sqrt(800)
    both = jax.vmap(lambda key: lifelong.next_goals(endless, jnp.array([True, True]), key).goals)
    pairs = np.asarray(jax.jit(both)(jax.random.split(jax.random.key(1), 12_000)))
    assert len(np.unique(pairs, axis=0)) == 15 * 15


def test_lists_of_other_lengths_are_one_program():
    actions = np.random.default_rng(0).integers(0, 5, (40, SLOTS))
    program = jitted(Lake(reward=rewards.reached, goals="listed", observe=observations.flat))
    keys = jax.random.split(jax.random.key(0), len(actions))
    for tasks in (LISTS, LISTS[:, :2], np.tile(LISTS[:, :2], (1, 6))):
        instance = board(tasks, max_tasks=24)
        state, _ = program(instance, actions, keys, None)
        *_, (_, _, expected) = simulated(instance, [[c for c in row if c >= 0] for row in tasks.tolist()], actions)
        assert state.goals_reached.tolist() == [*expected, 0]
    assert program._cache_size() == 1


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
    endless = board(None)
    distances = distance_fields(endless) if flooded else distance_tables(endless)
    actions = np.random.default_rng(4).integers(0, 5, (120, SLOTS))
    _, (positions, goals, steps) = play(lake, endless, actions, distances)
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


@pytest.mark.parametrize("mode", list(AutoResetMode), ids=lambda mode: mode.value)
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

        state, _ = episodes.reset(bank, key, Params(max_steps=30 if mode is AutoResetMode.OFF else 10))
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
        begin = end + 1 + (mode is AutoResetMode.NEXT_STEP)
    assert mode is AutoResetMode.OFF or len(levels) > 1


def test_pibt_plays_and_every_agent_reaches_goals():
    boards = stack([lifelong.board(random_board(seed, 8, 12, 8)) for seed in range(3)])
    reached = pibt.play(boards, jax.random.key(0), 120)
    assert reached.shape == (3, 12) and reached.min() > 2


def test_the_command_prints_throughput_by_agents(tmp_path, capsys):
    file = tmp_path / "maps.yaml"
    file.write_text("pair: |-\n  aB\n  bA\ntrio: |-\n  abc\n  ...\n  CAB\n")
    asked = ["--maps", str(file), "--planner", "pibt", "--lifelong"]
    picture = tmp_path / "throughput.png"
    assert score([*asked, "40", "--json", str(tmp_path / "figures.json"), "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = json.loads((tmp_path / "figures.json").read_text())["throughput"]["pibt"]
    assert [(row["agents"], row["boards"]) for row in rows] == [(2, 1), (3, 1)]
    trio = lifelong.board(from_text("abc\n...\nCAB", max_size=3))
    reached = pibt.play(stack([trio]), jax.random.key(0), 40).sum()
    assert reached > 10 and rows[1]["throughput"] == reached / 40
    assert f"pibt, 3 agents       1  {reached / 40:.3f}±0.000" in capsys.readouterr().out
    for wrong, message in (
        [["0"], "steps = 0 must be a whole number"],
        [["3", "answers.jsonl"], "no file of answers"],
        [["3", "--picture", "throughput.jpg"], "throughput.jpg: must end in .png"],
    ):
        with pytest.raises(SystemExit):
            score([*asked, *wrong])
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_a_plane_shows_the_largest_number_of_goals_that_coincide():
    instance = lifelong.board(from_text(BOARD), np.array([[7, 0], [7, 8]]))
    seen = jax.jit(lambda level: observations.planes(LISTED.reset(level)[0]))(pad(instance, 4, 3))
    assert seen[observations.GOALS].reshape(-1)[7] == 2


def endless_state():
    return LISTED.reset(board())[0]


ALONE = build(3, np.isin(np.arange(9), [5, 7]), [0, 8], [1, 8])
PLAN = Plan(
    parsable=np.array(True), num_named=np.int32(2), paths=np.zeros((SLOTS, 4), np.int32), lengths=np.ones(SLOTS, int)
)
NOWHERE = "the board is lifelong, its agents have goals without end"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: board(LISTS[:, :1]), "the list of agent 0 has 1 goals: it must have at least 2"),
        (lambda: board(np.array([[1, 2], [3, ABSENT]])), "the list of agent 1 has 1 goals"),
        (lambda: board(np.array([[1, 5], [3, 8]])), r"goal 1 of the list of agent 0, \(1,1\), is a hole"),
        (lambda: board(np.array([[1, 2], [3, 16]])), "goal 1 of the list of agent 1, 16, cannot be reached"),
        (lambda: board(np.array([[1, ABSENT, 2], [3, 8, 0]])), "goal 1 of the list of agent 0, -1, cannot be reached"),
        (lambda: board(LISTS.astype(float)), r"tasks are float64 \[3, 4\]: they must be int32 \[3, tasks\]"),
        (
            lambda: lifelong.board(from_text(BOARD), LISTS[:1]),
            r"tasks are int32 \[1, 4\]: they must be int32 \[2, tasks",
        ),
        (lambda: board(max_tasks=5), "max_tasks = 5 must be a whole number from 6 on"),
        (lambda: lifelong.board(ALONE), "agent 1 reaches no cell but its own: it must reach one for its next goal"),
        (lambda: lifelong.board(from_text("a#A\n.#.\n.#.")), r"goal of agent 0, \(0,2\), cannot be reached from its"),
        (
            lambda: stack([from_text(BOARD), lifelong.board(from_text(BOARD))]),
            "others have none: lifelong.board makes",
        ),
        (lambda: solve(board()), NOWHERE),
        (lambda: pibt.plan(stack([board()]), jax.random.key(0)), NOWHERE),
        (lambda: pibt.play(stack([from_text(BOARD)]), jax.random.key(0), 9), "needs boards with next goals"),
        (lambda: verify(board(), PLAN, np.int32(3)), NOWHERE),
        (lambda: prompt(board(), PromptStyle.GRID), NOWHERE),
        (lambda: record(board(), "a"), NOWHERE),
        (lambda: Lake().reset(board()), NOWHERE),
        (
            lambda: DRAWN.reset(from_text(BOARD)),
            "goals = 'drawn' needs a board with next goals: lifelong.board makes one",
        ),
        (lambda: DRAWN.step(DRAWN.reset(board())[0], [WAIT] * 3), "goals = 'drawn' is set: step needs a key"),
        (lambda: Lake().step(endless_state(), [WAIT] * 3), "the state is not of a lake with goals = 'once'"),
        (lambda: LISTED.step(Lake().reset(from_text(BOARD))[0], [WAIT] * 2), "not of a lake with goals = 'listed'"),
        (lambda: Lake(goals="listed").step(endless_state(), [WAIT] * 3), "rewards.sparse needs an end"),
        (
            lambda: Lake(goals="listed", reward=rewards.cost).step(endless_state(), [WAIT] * 3),
            "rewards.cost needs an end",
        ),
        (lambda: Lake(goals="twice"), "goals = 'twice' must be one of 'once', 'drawn', 'listed'"),
    ],
)
def test_what_has_no_meaning_in_a_lifelong_episode_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as fault:
        call()
    assert "\n" not in str(fault.value)

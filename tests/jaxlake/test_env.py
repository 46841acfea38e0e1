"""Episodes: costs against the solver and `verify`, ends, slip, and mixed boards in one compiled program."""

import functools
import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import random_instance

from jaxlake import observations
from jaxlake.board_text import from_text
from jaxlake.env import CLASSIC_SLIP, Lake
from jaxlake.levels import LevelBank, pad, stack
from jaxlake.rewards import cost, shaped
from jaxlake.rules import ConflictRule, HoleRule
from jaxlake.state import Params
from jaxlake.types import ABSENT, Action, Instance, Plan
from jaxlake.verify import verify

UP, DOWN, LEFT, RIGHT, WAIT = Action
MAX_SIZE, MAX_AGENTS = 10, 5
LAKE = Lake()


@functools.cache
def jitted(lake: Lake):
    return jax.jit(lake.reset), jax.jit(lake.step)


def play(board: str, *joint, lake: Lake = LAKE, params: Params = Params(max_steps=50)):  # noqa: B008
    """The states and time steps of a game, padded to one shape so that it compiles once."""
    reset, step = jitted(lake)
    game = [reset(pad(from_text(board), MAX_SIZE, MAX_AGENTS), params)]
    for moves in joint:
        game.append(step(game[-1][0], np.array([*moves] + [WAIT] * (MAX_AGENTS - len(moves)), np.int32)))
    return game


def costs(game) -> list[tuple[int, int, int]]:
    """(sum_of_costs, sum_of_loss, makespan) of the game after each of its steps."""
    return [tuple(int(x) for x in (c.sum_of_costs, c.sum_of_loss, c.makespan)) for c in (t.info.costs for _, t in game)]


def random_instances(seed: int, sizes: tuple[int, ...], agents: tuple[int, ...], max_size: int) -> Instance:
    """``[32]`` levels that run through the sizes and, more slowly, the numbers of agents."""
    rng = np.random.default_rng(seed)
    levels = []
    for index in range(32):
        size = sizes[index % len(sizes)]
        num_agents = min(agents[index // len(sizes) % len(agents)], size * size // 2)
        padding = {"max_size": max_size, "max_agents": max(agents)}
        levels.append(random_instance(rng, size, num_agents, 0.15, overlapping=False, **padding))
    return stack(levels)


def test_an_agent_that_leaves_its_goal_and_returns_is_charged_until_the_return():
    board = """
        aA..
        ....
        b..B
        ....
    """
    game = play(board, (RIGHT, WAIT), (WAIT, RIGHT), (DOWN, WAIT), (UP, RIGHT), (WAIT, RIGHT), (WAIT, WAIT))
    # Agent 0: there at 1, still there at 2 (free under loss), away at 3, back at 4. Agent 1 arrives at 5.
    assert costs(game)[:6] == [(0, 0, 0), (2, 2, 1), (3, 3, 2), (6, 5, 3), (8, 7, 4), (9, 8, 5)]
    assert [bool(t.info.solved) for _, t in game] == [False] * 5 + [True, True]
    assert costs(game)[6] == costs(game)[5] and int(game[6][0].time) == 5


def test_after_the_end_nothing_changes_and_nothing_is_rewarded():
    game = play("aA.\nbB.\n...", (RIGHT, RIGHT), (LEFT, DOWN), (DOWN, UP), lake=Lake(reward=cost))
    ended, later = game[1], game[3]
    assert ended[1].terminated and ended[1].shared_reward == -2
    assert jax.tree.all(jax.tree.map(np.array_equal, ended[0], later[0]))
    assert later[1].terminated and not later[1].truncated and not later[1].rewards.any()
    assert later[1].info.solved and not later[1].info.blocked.any()


def test_running_out_of_steps_truncates_and_does_not_terminate():
    game = play("a..\n...\n..A", (WAIT,), (WAIT,), (DOWN,), params=Params(max_steps=2))
    assert [(bool(t.terminated), bool(t.truncated)) for _, t in game] == [(False, False)] * 2 + [(False, True)] * 2
    assert int(game[-1][0].time) == 2 and (game[-1][0].positions == game[0][0].positions).all()


def test_solving_in_the_last_step_terminates_and_does_not_truncate():
    game = play("aA.\n...\n...", (RIGHT,), (LEFT,), params=Params(max_steps=1))
    assert [(bool(t.terminated), bool(t.truncated)) for _, t in game] == [(False, False), (True, False), (True, False)]


@pytest.mark.parametrize(
    ("lake", "board", "moves"),
    [
        (Lake(holes=HoleRule.FALL), "a#A\n...\n...", (RIGHT,)),
        (Lake(conflicts=ConflictRule.END), "ab.\n...\nBA.", (RIGHT, LEFT)),
    ],
    ids=["fall", "conflict"],
)
def test_a_fall_or_a_conflict_terminates_for_good_without_solving(lake, board, moves):
    game = play(board, moves, (WAIT,) * len(moves), lake=lake, params=Params(max_steps=1))
    for _, step in game[1:]:
        assert step.terminated and not step.truncated and not step.info.solved and not step.rewards.any()


def test_agents_that_all_start_on_their_goals_are_done_at_once():
    game = play("a. A.\n.b .B", (RIGHT, WAIT))
    assert game[0][1].terminated and game[0][1].info.solved and costs(game) == [(0, 0, 0)] * 2
    assert (game[1][0].positions == game[0][0].positions).all()


def test_a_number_that_is_no_action_waits():
    game = play("a..\n...\n..A", (5,), (-1,), (256,))
    assert [int(state.positions[0]) for state, _ in game] == [0] * 4


def test_without_a_slip_no_key_is_needed_and_with_one_its_absence_is_named():
    instance = from_text("a..\n...\n..A")
    with pytest.raises(ValueError, match="step needs a key"):
        jax.eval_shape(lambda: LAKE.step(LAKE.reset(instance, Params(slip=CLASSIC_SLIP))[0], jnp.array([RIGHT])))


LEVEL = from_text("aA.\nbB.\n..#", max_size=4, max_agents=3)


@functools.cache
def table():
    """Not when tests are collected, which each process does."""
    return LevelBank.build(stack([LEVEL]), with_distances=True).distances[0]


@pytest.mark.parametrize(("slip", "wide"), [(None, False), (CLASSIC_SLIP, True)])
def test_a_step_keeps_every_shape_and_dtype_whatever_those_of_the_level_are(slip, wide):
    lake, distances = Lake("fall", "end", everything, shaped(np.float64(0.1))), table()
    with jax.enable_x64(wide) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(wide):
        level = LEVEL.replace(size=3, num_agents=np.int64(2), holes=LEVEL.holes.astype(int))
        level = level.replace(starts=LEVEL.starts.astype(np.int64), goals=LEVEL.goals.astype(np.int16))
        first = jax.eval_shape(lambda: lake.reset(level, Params(max_steps=9, slip=slip), distances))
        later = jax.eval_shape(lake.step, first[0], np.zeros(3, int), jax.random.key(0))
        assert [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(first)] == [
            (x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(later)
        ]
        assert first[0].positions.dtype == np.int32 and first[1].rewards.dtype == np.float32


def everything(state):
    return observations.planes(state), observations.window(1)(state), observations.flat(state)


@pytest.mark.parametrize(
    ("play", "message"),
    [
        (lambda: LAKE.reset(stack([LEVEL, LEVEL])), r"batch axes \(2,\): it must have none; jax.vmap adds them"),
        (lambda: LAKE.reset(LEVEL, distances=table()[:2]), r"distances have the shape \[2, 16\]: distance_fields"),
        (lambda: LAKE.step(LAKE.reset(LEVEL)[0], [WAIT]), r"actions have the shape \[1\]: it must be \[3\]"),
        (lambda: paid(lambda transition: transition.info.solved), r"the rewards have the shape \[\]: it must be \[3\]"),
    ],
)
def test_a_mistake_is_named_in_one_line(play, message):
    with pytest.raises(ValueError, match=message) as fault:
        jax.eval_shape(play)
    assert "\n" not in str(fault.value)


def paid(reward):
    return Lake(reward=reward).step(LAKE.reset(LEVEL)[0], np.zeros(3, int))[1].rewards


def test_no_traced_limit_is_beyond_what_costs_are_counted_in():
    reset, step = jitted(LAKE)
    state, _ = reset(pad(from_text("a..\n...\n..A"), MAX_SIZE, MAX_AGENTS), Params(max_steps=100_000))
    late = state.replace(time=jnp.int32(32_765))
    late, time_step = step(late, np.full(MAX_AGENTS, WAIT))
    assert not time_step.truncated and time_step.info.costs.makespan == 32_766
    _, time_step = step(late, np.full(MAX_AGENTS, WAIT))
    assert time_step.truncated and time_step.info.costs.makespan == 32_767


def test_lakes_with_the_same_parts_are_one_static_argument_and_can_be_pickled():
    lakes = [Lake(observe=observations.window(radius), reward=shaped(0.1)) for radius in (1, 1, 2)]
    assert lakes[0] == lakes[1] != lakes[2] and hash(lakes[0]) == hash(lakes[1])
    assert pickle.loads(pickle.dumps(lakes[0])) == lakes[0]


@pytest.mark.parametrize("action", [*Action, -1, 5])
def test_the_classic_slip_goes_to_either_side_with_a_third_each_and_what_is_no_move_waits(action):
    sides = {UP: (LEFT, RIGHT), DOWN: (LEFT, RIGHT), LEFT: (UP, DOWN), RIGHT: (UP, DOWN)}.get(action)
    share = dict.fromkeys((action, *sides), 1 / 3) if sides else {WAIT: 1}
    draws = 9000
    counts = slipped(jnp.int32(action), jax.random.split(jax.random.key(int(action)), draws))
    for move, cell in {UP: 1, DOWN: 7, LEFT: 3, RIGHT: 5, WAIT: 4}.items():
        expected = share.get(move, 0.0)
        tolerance = 4 * np.sqrt(draws * expected * (1 - expected))
        assert abs(int(counts[cell]) - draws * expected) <= tolerance


@jax.jit
def slipped(action, keys):
    state, _ = LAKE.reset(from_text("...\n.a.\n..A"), Params(slip=CLASSIC_SLIP))
    after = jax.vmap(lambda key: LAKE.step(state, action[None], key)[0].positions[0])(keys)
    return jnp.bincount(after, length=9)


SIZES, COUNTS = tuple(range(3, 11)), (2, 3, 4, 5)


@jax.jit
def rollout(instance, actions):
    """The last state, and the time step and positions after each action ``[steps, max_agents]``."""

    def step(state, actions):
        state, time_step = LAKE.step(state, actions)
        return state, (time_step, state.positions)

    return jax.lax.scan(step, LAKE.reset(instance, Params(max_steps=10))[0], actions)


together = jax.jit(jax.vmap(rollout))


def random_actions(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 5, (32, 12, MAX_AGENTS), np.int32)


@pytest.mark.heavy
@pytest.mark.parametrize("agents", [5, 6, 7])
def test_whatever_is_kept_of_a_batch_compiles(agents):
    """With its optimizations JAX 0.10.1 to 0.12.0.1 ended the process at these numbers of agents."""
    level = from_text([chr(ord("a") + row) + "." * (agents - 2) + chr(ord("A") + row) for row in range(agents)])
    right = np.full(agents, RIGHT)

    def costs(_):
        def step(state, _):
            state, time_step = LAKE.step(state, right)
            return state, time_step.info.costs.sum_of_costs

        return jax.lax.scan(step, LAKE.reset(level)[0], length=8)[1]

    states = jax.vmap(lambda _: LAKE.reset(level)[0])(np.arange(16))
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        arrivals = jax.jit(jax.vmap(lambda state: LAKE.step(state, right)[0].arrivals))(states)
        all_costs = jax.jit(jax.vmap(costs))(np.arange(16))
    finally:
        jax.config.update("jax_disable_most_optimizations", True)
    assert arrivals.tolist() == [[1] * agents] * 16
    each_step = [agents * min(time, agents - 1) for time in range(1, 9)]
    assert all_costs.tolist() == [each_step] * 16


@pytest.mark.heavy
def test_any_walk_costs_in_play_what_verify_says_of_its_path():
    instances, actions = random_instances(4, SIZES, COUNTS, MAX_SIZE), random_actions(4)
    _, (_, walked) = together(instances, actions)
    instances = instances.replace(goals=np.asarray(walked[:, -1]))  # Wherever a walk ends, it was meant to go.
    states, (steps, positions) = together(instances, actions)
    whole = np.flatnonzero((positions == walked).all(axis=(1, 2)))  # Others met all their goals on the way.
    assert len(whole) > 24 and set(instances.num_agents[whole]) == set(COUNTS) and states.terminated[whole].all()
    paths = np.concatenate([instances.starts[..., None], np.moveaxis(positions, 1, 2)], axis=-1)
    plans = Plan(
        parsable=np.ones(32, bool),
        num_named=instances.num_agents,
        paths=paths,
        lengths=np.where(instances.starts == ABSENT, 0, paths.shape[-1]).astype(np.int32),
    )
    verdicts = verify(instances, plans, np.full(32, ABSENT, np.int32))
    assert verdicts.valid.all()
    for name in ("sum_of_costs", "sum_of_loss", "makespan"):
        assert (getattr(steps.info.costs, name)[whole, -1] == getattr(verdicts.costs, name)[whole]).all(), name
    assert (verdicts.costs.sum_of_costs > verdicts.costs.sum_of_loss).any()


@pytest.mark.heavy
def test_every_size_and_number_of_agents_plays_in_one_program_as_it_would_alone():
    instances, actions = random_instances(2, SIZES, COUNTS, MAX_SIZE), random_actions(2)
    result = together(instances, actions)
    together(random_instances(3, SIZES, COUNTS, MAX_SIZE), actions)
    assert together._cache_size() == 1
    index = 20  # on arrays of the level's own size
    instance, played, (state, (step, positions)) = jax.tree.map(lambda x: x[index], (instances, actions, result))
    size, count = int(instance.size), int(instance.num_agents)
    assert size < MAX_SIZE and count < MAX_AGENTS
    own_state, (own_step, _) = rollout(pad(instance, size, count), played[:, :count])
    assert (own_step.observation == step.observation[:, :, :size, :size]).all()
    for name in ("rewards", "legal_actions"):
        assert (getattr(own_step, name) == getattr(step, name)[:, :count]).all()
    for name in ("shared_reward", "terminated", "truncated"):
        assert (getattr(own_step, name) == getattr(step, name)).all()
    chex.assert_trees_all_equal(own_step.info.costs, step.info.costs)
    assert (own_state.arrivals == state.arrivals[:count]).all()

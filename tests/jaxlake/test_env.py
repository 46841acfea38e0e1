"""Episodes: costs against the solver and `verify`, ends, slip, and mixed boards in one compiled program."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.env import CLASSIC_SLIP, ConflictRule, HoleRule, Lake, Params
from jaxlake.levels import pad, stack
from jaxlake.render import from_text
from jaxlake.rewards import cost
from jaxlake.solve import solve
from jaxlake.types import ABSENT, Action, Instance, Status
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
        cells = rng.permutation([row * max_size + column for row in range(size) for column in range(size)])
        ends = np.full((2, max(agents)), ABSENT, np.int32)
        ends[:, :num_agents] = cells[: 2 * num_agents].reshape(2, -1)
        free = cells[2 * num_agents :]
        holes = np.zeros(max_size**2, bool)
        holes[free[: int(0.15 * len(free))]] = True
        levels.append(
            Instance(size=np.int32(size), num_agents=np.int32(num_agents), holes=holes, starts=ends[0], goals=ends[1])
        )
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


def test_an_optimal_plan_costs_in_play_what_the_solver_and_verify_say():
    instances = random_instances(
        1, (3, 4, 5), (2, 3), 5
    )  # The shape of the solver's tests, so nothing new is compiled.
    solutions = solve(instances)
    solved = np.flatnonzero(solutions.status == Status.SOLVED)
    assert len(solved) > 16
    instances, solutions = jax.tree.map(lambda x: x[solved], (instances, solutions))
    paths = solutions.plan.paths
    lengths = solutions.plan.lengths
    last = np.take_along_axis(paths, np.maximum(lengths - 1, 0)[..., None], axis=-1)
    staying = np.where(np.arange(paths.shape[-1]) < lengths[..., None], paths, last)
    offset = {-5: UP, 5: DOWN, -1: LEFT, 1: RIGHT, 0: WAIT}
    actions = np.vectorize(offset.__getitem__)(np.diff(staying, axis=-1)).astype(np.int32)

    def rollout(instance, actions):
        state, _ = LAKE.reset(instance)
        return jax.lax.scan(LAKE.step, state, actions.T)

    states, steps = jax.jit(jax.vmap(rollout))(instances, actions)
    assert states.terminated.all() and not states.truncated.any()
    assert (states.positions == instances.goals).all()
    assert (steps.info.costs.sum_of_costs[:, -1] == solutions.cost).all()
    assert not steps.info.blocked.any()
    verdict = verify(instances, solutions.plan, solutions.cost)
    assert verdict.valid.all()
    for name in ("sum_of_costs", "sum_of_loss", "makespan"):
        assert (getattr(steps.info.costs, name)[:, -1] == getattr(verdict.costs, name)).all(), name
    assert (states.time == verdict.costs.makespan).all()
    assert steps.rewards.sum(axis=(1, 2)).tolist() == instances.num_agents.tolist()


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
    state, _ = LAKE.reset(instance, Params(slip=CLASSIC_SLIP))
    with pytest.raises(ValueError, match="slip is set: step needs a key"):
        jax.jit(LAKE.step)(state, jnp.array([RIGHT]))


@pytest.mark.parametrize(
    ("action", "share"),
    [
        (RIGHT, {RIGHT: 1 / 3, UP: 1 / 3, DOWN: 1 / 3}),
        (LEFT, {LEFT: 1 / 3, UP: 1 / 3, DOWN: 1 / 3}),
        (UP, {UP: 1 / 3, LEFT: 1 / 3, RIGHT: 1 / 3}),
        (DOWN, {DOWN: 1 / 3, LEFT: 1 / 3, RIGHT: 1 / 3}),
        (WAIT, {WAIT: 1.0}),
    ],
)
def test_the_classic_slip_goes_to_either_side_with_a_third_each(action, share):
    draws = 9000
    counts = slipped(jnp.int32(action), jax.random.split(jax.random.key(int(action)), draws))
    for move, cell in {UP: 1, DOWN: 7, LEFT: 3, RIGHT: 5, WAIT: 4}.items():
        expected = share.get(move, 0.0)
        tolerance = 4 * np.sqrt(draws * expected * (1 - expected))
        assert abs(int(counts[cell]) - draws * expected) <= tolerance


def test_a_number_that_is_no_action_does_not_slip():
    for action in (-1, 5):
        counts = slipped(jnp.int32(action), jax.random.split(jax.random.key(0), 9000))
        assert counts[4] == 9000


@jax.jit
def slipped(action, keys):
    state, _ = LAKE.reset(from_text("...\n.a.\n..A"), Params(slip=CLASSIC_SLIP))
    after = jax.vmap(lambda key: LAKE.step(state, action[None], key)[0].positions[0])(keys)
    return jnp.bincount(after, length=9)


def test_every_size_and_number_of_agents_plays_in_one_program_as_it_would_alone():
    instances = random_instances(2, tuple(range(3, 11)), (2, 3, 4, 5), MAX_SIZE)
    actions = np.asarray(jax.random.randint(jax.random.key(0), (32, 12, MAX_AGENTS), 0, 5))

    def rollout(instance, actions):
        state, _ = LAKE.reset(instance, Params(max_steps=10))
        return jax.lax.scan(LAKE.step, state, actions)

    together, alone = jax.jit(jax.vmap(rollout)), jax.jit(rollout)
    states, steps = together(instances, actions)
    together(random_instances(3, tuple(range(3, 11)), (2, 3, 4, 5), MAX_SIZE), actions)
    assert together._cache_size() == 1
    for index in range(32):
        one = jax.tree.map(lambda x, index=index: x[index], (instances, actions, (states, steps)))
        chex.assert_trees_all_equal(alone(*one[:2]), one[2])

    for index in (0, 20):  # And on arrays of the level's own size.
        size, count = int(instances.size[index]), int(instances.num_agents[index])
        instance, played, (state, step) = jax.tree.map(
            lambda x, index=index: x[index], (instances, actions, (states, steps))
        )
        own_state, own_step = jax.jit(rollout)(cut(instance, size, count), played[:, :count])
        assert (own_step.observation == step.observation[:, :, :size, :size]).all()
        for name in ("rewards", "legal_actions"):
            assert (getattr(own_step, name) == getattr(step, name)[:, :count]).all()
        for name in ("shared_reward", "terminated", "truncated"):
            assert (getattr(own_step, name) == getattr(step, name)).all()
        chex.assert_trees_all_equal(own_step.info.costs, step.info.costs)
        assert (own_state.arrivals == state.arrivals[:count]).all()


def cut(instance: Instance, size: int, count: int) -> Instance:
    """The instance on arrays of its own size."""

    def renumbered(cells):
        row, column = np.divmod(np.asarray(cells[:count]), MAX_SIZE)
        return (row * size + column).astype(np.int32)

    holes = np.asarray(instance.holes).reshape(MAX_SIZE, MAX_SIZE)[:size, :size].ravel()
    return Instance(
        size=np.int32(size),
        num_agents=np.int32(count),
        holes=holes,
        starts=renumbered(instance.starts),
        goals=renumbered(instance.goals),
    )


def test_a_board_too_large_for_bytes_plays_by_the_same_rules():
    instance = pad(from_text("aA.\nbB.\n..."), 12, 2)  # 144 cells
    reset, step = jitted(LAKE)
    state, _ = reset(instance)
    state, _ = step(state, jnp.array([DOWN, DOWN]))
    assert state.positions.tolist() == [12, 24]
    state, _ = step(state, jnp.array([UP, UP]))
    assert state.positions.tolist() == [0, 12]
    state, time_step = step(state, jnp.array([RIGHT, RIGHT]))
    assert time_step.terminated and state.positions.tolist() == [1, 13]

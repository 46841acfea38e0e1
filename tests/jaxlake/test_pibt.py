"""PIBT beside the algorithm in plain Python, its guarantees, and its plans beside the checks and the optimum."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grids import neighbours, shortest_paths

from jaxlake import Action, Instance, Lake, LakeConfig, Plan, distance_fields, from_text, generate, pibt, stack, verify
from jaxlake.types import ABSENT

step = jax.jit(pibt.step)


def drawn(kind: str, hole: float, count: int, seed: int = 0) -> Instance:
    return generate(LakeConfig.uniform([kind], hole, 0.0), jax.random.key(seed), count, exact=False).instances


def plain_step(board: Instance, positions, priorities, fields, ties) -> list[int]:
    """Algorithm 1 of Okumura et al. 2022, recursive, with the ties of `pibt.step`; the agents' next cells."""
    size, agents = int(board.size), range(len(positions))
    following: dict[int, int] = {}

    def moves(agent: int, pusher: int | None) -> bool:
        def order(cell: int) -> tuple[int, bool, int, int]:
            difference = cell - positions[agent]
            action = {-size: 0, size: 1, -1: 2, 1: 3, 0: 4}[difference]
            occupied = any(positions[other] == cell for other in agents if other != agent)
            return fields[agent][cell], occupied, ties[agent][action], action

        own = positions[agent]
        for cell in sorted([*neighbours(size, board.holes, own), own], key=order):
            if cell in following.values() or (pusher is not None and cell == positions[pusher]):
                continue
            there = next((other for other in agents if positions[other] == cell), None)
            if there is not None and following.get(there) == own:
                continue
            following[agent] = cell
            if there is None or there in following or moves(there, agent):
                return True
        following[agent] = own
        return False

    for agent in sorted(agents, key=lambda agent: -priorities[agent]):
        if agent not in following:
            moves(agent, None)
    return [following[agent] for agent in agents]


def legal(board: Instance, before, after) -> bool:
    near = all(b == a or b in neighbours(int(board.size), board.holes, a) for a, b in zip(before, after, strict=True))
    swaps = any(
        a != b and (before[a], after[a]) == (after[b], before[b])
        for a, b in itertools.combinations(range(len(after)), 2)
    )
    return near and not swaps and len(set(after)) == len(after)


def after(board: Instance, positions, actions) -> list[int]:
    offsets = np.array([-board.max_size, board.max_size, -1, 1, 0])
    return (np.asarray(positions) + offsets[np.asarray(actions)]).tolist()


@pytest.mark.parametrize(
    ("kind", "hole"),
    [
        ("8x12", 0.3),
        ("rooms12x16", 0.3),
        pytest.param("16x40", 0.2, marks=pytest.mark.heavy),
        pytest.param("maze9x8", 0.5, marks=pytest.mark.heavy),
    ],
)
def test_steps_are_those_of_the_algorithm_in_plain_python_and_never_conflict(kind, hole):
    rng = np.random.default_rng(0)
    for board in drawn(kind, hole, 3):
        agents = board.max_agents
        fields = distance_fields(board)
        far = np.where(np.asarray(fields) == ABSENT, 1 << 15, np.asarray(fields, np.int32)).tolist()
        positions, priorities = board.starts.tolist(), rng.permutation(agents)
        for _ in range(25):
            ties = rng.integers(0, 4, (agents, 5))
            actions = step(board, jnp.array(positions), jnp.array(priorities), fields, jnp.array(ties))
            found = after(board, positions, actions)
            assert found == plain_step(board, positions, priorities.tolist(), far, ties.tolist())
            assert legal(board, positions, found)
            positions = found
            arrived = np.array(positions) == board.goals
            priorities = np.asarray(pibt.next_priorities(jnp.array(priorities, jnp.int32), arrived))
            assert len(set(priorities.tolist())) == agents


def test_every_joint_position_of_a_tiny_board_has_a_legal_step():
    board = from_text("A.b\n.#.\nB.a")
    fields, free = distance_fields(board), np.flatnonzero(~board.holes)
    ties = jnp.zeros((2, 5), jnp.int32)
    pairs = list(itertools.permutations(free.tolist(), 2))
    joint = jax.jit(jax.vmap(lambda cells: pibt.step(board, cells, jnp.arange(2), fields, ties)))
    actions = np.asarray(joint(jnp.array(pairs, jnp.int32)))
    for pair, chosen in zip(pairs, actions, strict=True):
        assert legal(board, pair, after(board, pair, chosen))


def test_on_a_ring_the_agent_of_the_highest_priority_always_comes_nearer():
    """Without holes a board is biconnected; here all cells but one are taken."""
    board = drawn("6x18", 0.0, 1)[0]
    fields, rng = distance_fields(board), np.random.default_rng(1)
    positions, priorities = board.starts.tolist(), rng.permutation(18)
    seen = np.zeros(18, bool)
    for _ in range(150):
        first = int(np.argmax(priorities))
        ties = jnp.array(rng.integers(0, 256, (18, 5)))
        found = after(board, positions, step(board, jnp.array(positions), jnp.array(priorities), fields, ties))
        was, now = (int(fields[first, cells[first]]) for cells in (positions, found))
        assert now == was - 1 or was == now == 0
        positions = found
        arrived = np.array(positions) == board.goals
        seen |= arrived
        priorities = np.asarray(pibt.next_priorities(jnp.array(priorities, jnp.int32), arrived))
    assert seen.all()  # reachability: everybody is on its goal at some time


@pytest.mark.heavy
def test_padding_and_absent_agents_change_nothing():
    small, large = drawn("6x4", 0.2, 1)[0], drawn("9x7", 0.2, 1)[0]
    both = stack([small, large])
    padded = both[0]
    ties = np.random.default_rng(0).integers(0, 256, (7, 5))
    alone = pibt.step(small, small.starts, jnp.arange(4), distance_fields(small), jnp.array(ties[:4]))
    among = pibt.step(padded, padded.starts, jnp.arange(7), distance_fields(padded), jnp.array(ties))
    assert among[:4].tolist() == alone.tolist() and among[4:].tolist() == [Action.WAIT] * 3
    plans = pibt.plan(both, jax.random.key(0), max_steps=100)
    assert np.all(verify(both, plans, np.int32(ABSENT)).checks[:, :7])


@pytest.mark.heavy
def test_actions_of_a_policy_lead_through_the_lake_as_planned():
    board, lake = drawn("8x8", 0.2, 1)[0], Lake()
    state, _ = lake.reset(board)
    fields, priorities = distance_fields(board), jnp.arange(8)
    play = jax.jit(lake.step)
    for time in range(60):
        ties = jax.random.randint(jax.random.key(time), (8, 5), 0, 256)
        actions = step(state.instance, state.positions, priorities, fields, ties)
        expected = after(board, state.positions, actions)
        state, seen = play(state, actions)
        assert not seen.info.blocked.any()
        assert state.done or state.positions.tolist() == expected
        priorities = pibt.next_priorities(priorities, seen.info.arrived)
    assert bool(state.terminated)


@pytest.mark.heavy
def test_plans_are_valid_and_more_orders_are_never_worse():
    boards = drawn("12x16", 0.2, 24)
    bounds = [
        sum(
            shortest_paths(12, board.holes, int(start))[int(goal)]
            for start, goal in zip(board.starts, board.goals, strict=True)
        )
        for board in boards
    ]
    costs = []
    for orders in (1, 4):
        plans = pibt.plan(boards, jax.random.key(0), orders=orders, max_steps=200)
        verdicts = verify(boards, plans, np.int32(ABSENT))
        assert np.all(np.asarray(verdicts.checks)[:, :7])
        cost = np.asarray(verdicts.cost)
        assert np.all((cost == ABSENT) | (cost >= bounds))
        costs.append(cost)
    assert np.mean(costs[1] != ABSENT) > 0.9
    assert np.sum(costs[1] != ABSENT) >= np.sum(costs[0] != ABSENT)


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_a_plan_depends_on_its_board_and_number_alone(kind, monkeypatch):
    """Under ``vmap`` JAX draws by the first key of a batch where keys are not threefry's."""
    boards, key = stack([from_text("a..B\n....\n.cC.\nb..A")] * 3), jax.random.key(0, impl=kind)
    whole = pibt.plan(boards, key, orders=3, max_steps=20)
    assert (
        whole.paths.tolist() != pibt.plan(boards, jax.random.key(1, impl=kind), orders=3, max_steps=20).paths.tolist()
    )
    assert len(np.unique(whole.paths, axis=0)) == 3  # of one board
    first = pibt.plan(boards[:1], key, orders=3, max_steps=20)
    jax.tree.map(np.testing.assert_array_equal, first, whole[:1])
    monkeypatch.setattr(pibt, "_BYTES", 1)  # one board at a time
    jax.tree.map(np.testing.assert_array_equal, pibt.plan(boards, key, orders=3, max_steps=20), whole)


def test_of_orders_of_thousands_of_agents_the_one_with_most_of_them_home_is_kept():
    """2,049 agents away cost more than 2 ** 31 steps of 512: in int32 that would be less than 2,046."""
    away = np.ones((3, 3, 2049), bool)
    away[0, 0, :3] = away[1, 1:, :3] = away[2, :, 0] = False
    arrivals = np.full(away.shape, 512, np.int32)
    arrivals[1, 2, 0] = 511  # of two with as many home, the cheaper
    arrivals[2, :, 0] = 7, 5, 5  # else the first
    assert pibt._best(away, arrivals).tolist() == [0, 2, 1]


@pytest.mark.heavy
def test_plans_cost_at_least_the_optimum_and_little_more():
    found = generate(LakeConfig.uniform(["8x4"], 0.2, 0.0), jax.random.key(0), 60)
    plans = pibt.plan(found.instances, jax.random.key(1), orders=8, max_steps=100)
    verdicts = verify(found.instances, plans, found.solutions.cost)
    ratio = (np.asarray(verdicts.cost) / found.solutions.cost)[np.asarray(verdicts.valid)]
    assert len(ratio) >= 55 and ratio.min() >= 1 and ratio.mean() < 1.15


@pytest.mark.heavy
@pytest.mark.parametrize("agents", [6, 9])
def test_verdicts_of_many_agents_are_those_of_few(agents):
    """Agents beyond five are judged by another program: absent ones must not change a verdict."""
    few = drawn("6x3", 0.2, 40)
    wide = drawn(f"6x{agents}", 0.0, 1)[0]
    many = jax.tree.map(lambda *parts: np.stack(parts), *[stack([board, wide])[0] for board in few])
    rng = np.random.default_rng(0)
    paths = np.full((40, agents, 9), ABSENT, np.int32)
    paths[:, :3] = rng.integers(-2, 36, (40, 3, 9))
    good = pibt.plan(few, jax.random.key(0), max_steps=8).paths
    paths[::2, :3] = good[::2]
    paths[::4, 0, 2] = paths[::4, 1, 2]
    lengths = np.where(np.arange(agents) < 3, (paths != ABSENT).argmin(axis=2), 0).astype(np.int32)
    lengths[:, :3][lengths[:, :3] == 0] = 9

    def judged(boards: Instance, slots: int) -> np.ndarray:
        plans = Plan(
            parsable=np.ones(40, bool),
            num_named=np.full(40, 3, np.int32),
            paths=paths[:, :slots],
            lengths=lengths[:, :slots],
        )
        return np.asarray(verify(boards, plans, np.int32(ABSENT)).checks)

    expected = judged(few, 3)
    assert np.array_equal(judged(many, agents), expected)
    assert not expected.all(axis=0)[3:].all() and expected.any(axis=0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"orders": 0}, "orders = 0 must be a whole number from 1 on"),
        ({"max_steps": 20000}, "max_steps = 20000 must be a whole number from 1 to 16384"),
    ],
)
def test_numbers_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        pibt.plan(drawn("5x2", 0.0, 1), jax.random.key(0), **arguments)
    with pytest.raises(ValueError, match="must have none|plan needs one"):
        pibt.plan(drawn("5x2", 0.0, 1)[0], jax.random.key(0))

"""PIBT beside the algorithm in plain Python, its guarantees, and its plans beside the checks and the optimum."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxlake import Action, Instance, LakeConfig, distance_fields, from_text, generate, pibt, stack, verify
from jaxlake.levels import build
from jaxlake.types import ABSENT

step = jax.jit(pibt.step)


def drawn(kind: str, hole: float, count: int, seed: int = 0) -> Instance:
    return generate(LakeConfig.uniform([kind], hole, 0.0), jax.random.key(seed), count, exact=False).instances


def plain_step(board: Instance, positions, priorities, fields, ties) -> list[int]:
    """Algorithm 1 of Okumura et al. 2022, recursive, with the ties of `pibt.step`; the agents' next cells."""
    size, agents, near = int(board.size), range(len(positions)), oracles.moves(board)
    following: dict[int, int] = {}

    def moves(agent: int, pusher: int | None) -> bool:
        def order(cell: int) -> tuple[int, bool, int, int]:
            difference = cell - positions[agent]
            action = {-size: 0, size: 1, -1: 2, 1: 3, 0: 4}[difference]
            occupied = any(positions[other] == cell for other in agents if other != agent)
            return fields[agent][cell], occupied, ties[agent][action], action

        own = positions[agent]
        for cell in sorted(near[own], key=order):
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
    beside = oracles.moves(board)
    swaps = any((before[a], after[a]) == (after[b], before[b]) for a, b in itertools.combinations(range(len(after)), 2))
    near = all(b in beside[a] for a, b in zip(before, after, strict=True))
    return near and not swaps and len(set(after)) == len(after)


def after(board: Instance, positions, actions) -> list[int]:
    offsets = np.array([-board.max_size, board.max_size, -1, 1, 0])
    return (np.asarray(positions) + offsets[np.asarray(actions)]).tolist()


def simulated(board: Instance, rng: np.random.Generator, steps: int):
    """Positions and priorities before each step of a board, the ties that are drawn, and the positions after it."""
    fields, goals = distance_fields(board), board.goals
    positions, priorities = board.starts.tolist(), rng.permutation(board.max_agents)
    for _ in range(steps):
        ties = rng.integers(0, 4, (board.max_agents, 5))
        found = after(board, positions, step(board, jnp.array(positions), jnp.array(priorities), fields, ties))
        yield positions, priorities, ties, found
        positions = found
        arrived = np.array(positions) == goals
        priorities = np.asarray(pibt.next_priorities(jnp.array(priorities, jnp.int32), arrived))


@pytest.mark.parametrize(("size", "agents", "holes"), [(6, 18, 9), pytest.param(16, 40, 60, marks=pytest.mark.heavy)])
def test_steps_are_those_of_the_algorithm_in_plain_python_and_never_conflict(size, agents, holes):
    rng = np.random.default_rng(0)
    for board in [crowd(rng, size, agents, holes) for _ in range(3)]:
        fields = np.asarray(distance_fields(board), np.int32)
        far = np.where(fields == ABSENT, 1 << 15, fields).tolist()
        for positions, priorities, ties, found in simulated(board, rng, 25):
            assert len(set(priorities.tolist())) == board.max_agents
            assert found == plain_step(board, positions, priorities.tolist(), far, ties.tolist())
            assert legal(board, positions, found)


def crowd(rng: np.random.Generator, size: int, agents: int, holes: int) -> Instance:
    """A board on which agents may be cut off from their goals."""
    order = rng.permutation(size**2)
    free = order[holes:]
    return build(size, np.isin(np.arange(size**2), order[:holes]), free[:agents], rng.permutation(free)[:agents])


def test_without_holes_the_agent_of_the_highest_priority_always_comes_nearer():
    """Such a board is biconnected; here half of its cells are taken."""
    rng = np.random.default_rng(1)
    board = crowd(rng, 6, 18, 0)
    fields, seen = distance_fields(board), np.zeros(18, bool)
    for positions, priorities, _, found in simulated(board, rng, 150):
        first = int(np.argmax(priorities))
        was, now = (int(fields[first, cells[first]]) for cells in (positions, found))
        assert now == was - 1 or was == now == 0
        seen |= np.array(found) == board.goals
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


BOARDS, ASKED = stack([from_text("a..B\n....\n.cC.\nb..A")] * 3), {"orders": 3, "max_steps": 20}


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_plans_of_one_board_differ_by_its_number_and_the_key(kind):
    """Under ``vmap`` JAX draws by the first key of a batch where keys are not threefry's."""
    one, other = (pibt.plan(BOARDS, jax.random.key(seed, impl=kind), **ASKED).paths for seed in (0, 1))
    assert one.tolist() != other.tolist() and len(np.unique(one, axis=0)) == 3


@pytest.mark.heavy
def test_a_plan_depends_on_no_other_board(monkeypatch):
    key = jax.random.key(0)
    whole = pibt.plan(BOARDS, key, **ASKED)
    jax.tree.map(np.testing.assert_array_equal, pibt.plan(BOARDS[:1], key, **ASKED), whole[:1])
    monkeypatch.setattr(pibt, "_BYTES", 1)  # one board at a time
    jax.tree.map(np.testing.assert_array_equal, pibt.plan(BOARDS, key, **ASKED), whole)


@pytest.mark.heavy
def test_plans_cost_at_least_the_optimum_and_little_more():
    found = generate(LakeConfig.uniform(["8x4"], 0.2, 0.0), jax.random.key(0), 60)
    plans = pibt.plan(found.instances, jax.random.key(1), orders=8, max_steps=100)
    verdicts = verify(found.instances, plans, found.solutions.cost)
    ratio = (np.asarray(verdicts.cost) / found.solutions.cost)[np.asarray(verdicts.valid)]
    assert len(ratio) >= 55 and ratio.min() >= 1 and ratio.mean() < 1.15


def test_a_horizon_beyond_the_number_format_is_refused():
    with pytest.raises(ValueError, match="max_steps = 20000 must be a whole number from 1 to 16384"):
        pibt.plan(stack([from_text("a.B\n...\nb.A")]), jax.random.key(0), max_steps=20000)

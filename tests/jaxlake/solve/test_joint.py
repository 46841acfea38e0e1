"""The tables of costs-to-go against Dijkstra from every joint position, and plays that follow them."""

import heapq
import itertools

import jax
import numpy as np
import oracles
import pytest

from jaxlake.board_text import from_text
from jaxlake.levels import stack
from jaxlake.solve.joint import INFINITE, action_values, joint_values, value
from jaxlake.solve.pairs import search_pairs
from jaxlake.solve.tree import UNBOUNDED
from jaxlake.types import ABSENT, Instance, Objective

STEPS, WAIT = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)]), 4


def random_boards(seed: int, count: int, size: int, agents: int) -> Instance:
    """Boards of one side, and of the next smaller one if that has room, with any starts and goals."""
    shapes = [(side, agents) for side in (size, size - 1) if side > agents or side == size]
    return oracles.random_boards(np.random.default_rng(seed), count, shapes, 0.4, max_size=size, max_agents=agents)


Places = tuple[int, ...]


def costs_to_go(instance: Instance) -> tuple[dict[Places, int], dict]:
    """By Dijkstra backwards over places: a cell, or ``cells`` for an agent that has parked; and what steps cost."""
    near = oracles.moves(instance)
    _, goals = oracles.ends(instance)
    cells = instance.max_size**2
    places = [*sorted(near), cells]
    before: dict[Places, list] = {}
    steps = {}
    for state in itertools.product(places, repeat=len(goals)):
        at = tuple(goal if place == cells else place for place, goal in zip(state, goals, strict=True))
        if len(set(at)) < len(at):
            continue
        parked = tuple(place == cells for place in state)
        for after in oracles.joint_moves(near, at, parked):
            end = tuple(cells if p else a for p, a in zip(parked, after, strict=True))
            steps[state, end] = parked.count(False)
            before.setdefault(end, []).append((steps[state, end], state))
        for agent, (place, goal) in enumerate(zip(state, goals, strict=True)):
            if place == goal:
                before.setdefault(state[:agent] + (cells,) + state[agent + 1 :], []).append((0, state))
    found, queue = {}, [(0, (cells,) * len(goals))]
    while queue:
        cost, state = heapq.heappop(queue)
        if state not in found:
            found[state] = cost
            for step, earlier in before.get(state, []):
                heapq.heappush(queue, (cost + step, earlier))
    return found, steps


@pytest.mark.heavy
@pytest.mark.parametrize(("size", "agents"), [(4, 1), (4, 2), (3, 3)])
def test_every_value_and_action_value_equals_dijkstra(size, agents):
    instances, rng = random_boards(size + agents, 6, size, agents), np.random.default_rng(0)
    joint, actions = joint_values(instances, agents), jax.jit(action_values)
    for index in range(6):
        table = joint[index]
        found, steps = costs_to_go(table.instances)
        assert {
            tuple(map(int, at)): int(table.values[tuple(at)]) for at in np.argwhere(table.values < INFINITE)
        } == found
        for places in rng.permutation(list(found))[:10]:
            q = np.asarray(actions(table, places))
            for chosen in itertools.product(range(5), repeat=agents):
                parks = [  # on its goal, before it waits
                    (place, size**2) if action == WAIT and place == goal else (place,)
                    for place, action, goal in zip(places.tolist(), chosen, table.instances.goals, strict=True)
                ]
                joint_steps = [
                    (state, tuple(after(place, action, size) for place, action in zip(state, chosen, strict=True)))
                    for state in itertools.product(*parks)
                ]
                costs = [steps[step] + found[step[1]] for step in joint_steps if step in steps and step[1] in found]
                assert q[chosen] == min(costs, default=INFINITE)


def after(place: int, action: int, size: int) -> int:
    """The place that an action leads to, -1 for none; whoever has parked can only wait."""
    row, column = np.divmod(place, size) + STEPS[action]
    if place == size**2 or action == WAIT:
        return place if action == WAIT else -1
    return int(row * size + column) if 0 <= row < size and 0 <= column < size else -1


@pytest.mark.heavy
def test_value_of_the_start_is_the_optimum_of_the_search():
    instances = random_boards(7, 40, 6, 2)
    joint = joint_values(instances, 2)
    bounds = np.full(40, UNBOUNDED, np.int32)
    found = search_pairs(instances, bounds, np.bool_(True), 64, Objective.SUM_OF_COSTS)
    values = np.asarray(jax.vmap(value)(joint, instances.starts))
    np.testing.assert_array_equal(np.where(values == INFINITE, ABSENT, values), found.cost)


def test_swapping_and_leaving_the_board_are_impossible():
    instance = from_text("ab.\nBA.\n...", max_size=3, max_agents=2)  # a goes to (1,1), b to (1,0)
    joint = joint_values(stack([instance]), 2)[0]
    q = np.asarray(action_values(joint, instance.starts))
    up, down, left, right, wait = range(5)
    assert q[right, left] == INFINITE  # they would change places
    assert q[up, wait] == INFINITE and q[wait, left] == INFINITE  # off the board; onto the other one's cell
    assert q.min() == value(joint, instance.starts) == 4
    # a goes down and right, b follows it to the left and then down; if both wait first, each of them pays a step.
    assert q[down, left] == 4 and q[wait, wait] == 6


def test_a_parked_agent_lets_nobody_pass():
    # Corridor (0,0)..(0,4) with a bay under (0,1); agent 1 is on its goal (0,1), in agent 0's way.
    holes = np.ones(25, bool)
    holes[[0, 1, 2, 3, 4, 6]] = False
    ends = dict(starts=np.array([0, 1], np.int32), goals=np.array([4, 1], np.int32))
    batch = stack([Instance(size=np.int32(5), num_agents=np.int32(2), holes=holes, **ends)])
    costs = joint_values(batch, 2)[0]
    parked = 25
    assert value(costs, ends["starts"]) == 4 + 2
    assert value(costs, np.array([2, parked])) == 2 and value(costs, np.array([0, parked])) == INFINITE


def test_a_size_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="3 agents on boards with max_size 7: 1 or 2 reach 10, 3 reach 6"):
        joint_values(random_boards(0, 2, 7, 3), 3)

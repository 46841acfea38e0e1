"""The rules as the table in docs/environment.md has them, and against a plain Python step for every joint action."""

import functools
import itertools
import pathlib
import re

import jax
import numpy as np
import pytest
from oracles import random_instance

from jaxlake.board_text import from_text
from jaxlake.env import Lake
from jaxlake.levels import pad, stack
from jaxlake.rules import ConflictRule, HoleRule, legal_actions, move
from jaxlake.types import ABSENT, Action, Instance

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "environment.md").read_text()
TRUTH_TABLE = re.search(r"^```text\n(what happens .*?)\n```", PAGE, re.DOTALL | re.MULTILINE)[1]
ROWS = [[cell.strip() for cell in line.split("|")] for line in TRUTH_TABLE.split("\n")[1:]]

MAX_SIZE, MAX_AGENTS = 4, 6
LAKES = {pair: Lake(holes=pair[0], conflicts=pair[1]) for pair in itertools.product(HoleRule, ConflictRule)}


@functools.cache
def jitted(lake: Lake):
    return jax.jit(lake.reset), jax.jit(lake.step)


@pytest.mark.heavy
@pytest.mark.parametrize("conflicts", ConflictRule)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_truth_table(row, conflicts):
    _, board, words, block, end, vertex, swap, fall = row
    lake = LAKES[HoleRule.FALL if fall else HoleRule.IMPASSABLE, conflicts]
    reset, step = jitted(lake)
    instance = pad(from_text(board.split("/")), MAX_SIZE, MAX_AGENTS)
    state, _ = reset(instance)
    seen = np.zeros(2, int)
    for word in words.split():
        letters = "UDLRW"
        actions = np.array([letters.index(letter) for letter in word.ljust(MAX_AGENTS, "W")], np.int32)
        state, time_step = step(state, actions)
        seen += [time_step.info.vertex_conflicts, time_step.info.swap_conflicts]

    expected = block if conflicts is ConflictRule.BLOCK else end
    assert drawn(instance, state.positions) == expected
    assert seen.tolist() == [int(vertex), int(swap)]
    fallen = [agent in fall for agent in "abcdef"]
    assert time_step.info.fell.tolist() == state.fallen.tolist() == fallen
    in_conflict = int(vertex) + int(swap) > 0
    assert bool(time_step.terminated) == (any(fallen) or (conflicts is ConflictRule.END and in_conflict))
    assert not time_step.info.solved and not time_step.truncated


def drawn(instance: Instance, positions: jax.Array) -> str:
    size = int(instance.size)
    board = np.where(np.asarray(instance.holes).reshape(MAX_SIZE, MAX_SIZE), "#", ".")
    for agent in range(int(instance.num_agents)):
        board[divmod(int(positions[agent]), MAX_SIZE)] = "abcdef"[agent]
    return "/".join("".join(row) for row in board[:size, :size])


def plain_step(
    instance: Instance, cells: list[int], actions: tuple[int, ...], holes: HoleRule, conflicts: ConflictRule
):
    """Positions, (vertex, swap) pairs and who fell; walks along queues, with no fixed point."""
    size, agents = int(instance.size), range(len(cells))

    def target(agent):
        row, column = divmod(cells[agent], instance.max_size)
        down, right = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}.get(actions[agent], (0, 0))
        if not (0 <= row + down < size and 0 <= column + right < size):
            return cells[agent]
        cell = (row + down) * instance.max_size + column + right
        return cells[agent] if instance.holes[cell] and holes is HoleRule.IMPASSABLE else cell

    targets = [target(agent) for agent in agents]
    vertex = {pair for pair in itertools.combinations(agents, 2) if targets[pair[0]] == targets[pair[1]]}
    swap = {(i, j) for i, j in itertools.combinations(agents, 2) if (targets[i], targets[j]) == (cells[j], cells[i])}
    guilty = {agent for pair in vertex | swap for agent in pair}

    def may_move(agent, asking=()):
        if agent in asking:
            return True  # A whole ring that moves.
        if agent in guilty or targets[agent] == cells[agent]:
            return False
        return targets[agent] not in cells or may_move(cells.index(targets[agent]), (*asking, agent))

    stop = conflicts is ConflictRule.END and guilty
    after = [targets[agent] if may_move(agent) and not stop else cells[agent] for agent in agents]
    fell = [after[agent] != cells[agent] and bool(instance.holes[after[agent]]) for agent in agents]
    return after, (len(vertex), len(swap)), fell


FALL_BLOCK, FALL_END, FIRM_BLOCK, FIRM_END = LAKES


@pytest.mark.parametrize(
    ("size", "agents", "rules"),
    [
        (4, 6, FALL_END),  # unrolled, as all are that have at most eight slots
        (11, 6, FIRM_BLOCK),  # 144 cells do not fit int8
        (9, 33, FALL_BLOCK),
        (18, 130, FIRM_END),
        *(pytest.param(4, 6, rules, marks=pytest.mark.heavy) for rules in (FALL_BLOCK, FIRM_BLOCK, FIRM_END)),
        pytest.param(9, 33, FIRM_BLOCK, marks=pytest.mark.heavy),
        pytest.param(18, 130, FALL_END, marks=pytest.mark.heavy),
    ],
)
def test_a_crowd_moves_as_in_a_plain_step(size, agents, rules):
    """Crowded: half of the free cells have an agent, and so queues are long; 130 agents do not fit int8."""
    rng = np.random.default_rng(agents)
    padding = {"max_size": size + 1, "max_agents": agents + 2}
    holes = rng.uniform(0, 1 if agents < 9 else 0.4, 64 if agents < 9 else 4)
    batch = stack([random_instance(rng, size, agents, ratio, overlapping=True, **padding) for ratio in holes])
    actions = rng.integers(0, 5, (len(batch), 8, agents + 2))

    def play(level, turns):
        moved = jax.vmap(lambda chosen: move(level, level.starts, chosen, *rules))(turns)
        return moved, legal_actions(level, level.starts, rules[0])

    outcome, legal = jax.device_get(jax.jit(jax.vmap(play))(batch, actions))
    for board, turn in itertools.product(range(len(batch)), range(8)):
        level, seen = batch[board], jax.tree.map(lambda part, at=(board, turn): part[at], outcome)
        cells, chosen = level.starts[:agents].tolist(), actions[board, turn, :agents].tolist()
        after, conflicts, fell = plain_step(level, cells, chosen, *rules)
        assert seen.positions.tolist() == [*after, ABSENT, ABSENT]
        assert (seen.vertex_conflicts, seen.swap_conflicts) == conflicts and seen.in_conflict == (conflicts != (0, 0))
        assert seen.entered_hole.tolist() == [*fell, False, False]
        home = [cells[agent] == after[agent] == level.goals[agent] for agent in range(agents)]
        assert seen.rested.tolist() == [*home, True, True] and seen.solved == (after == level.goals[:agents].tolist())
        for agent, action in enumerate(chosen):
            alone, _, _ = plain_step(level, [cells[agent]], (action,), rules[0], ConflictRule.BLOCK)
            assert legal[board, agent, action] == (action == Action.WAIT or alone != [cells[agent]])
            assert seen.blocked[agent] == (alone != [cells[agent]] and after[agent] == cells[agent])

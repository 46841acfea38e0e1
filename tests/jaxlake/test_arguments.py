"""Arguments: an enum is its word wherever a public function takes one, and whole numbers are whole numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import (
    Action,
    AnswerFormat,
    AutoReset,
    AutoResetMode,
    ConflictRule,
    Family,
    GoalRule,
    HoleRule,
    Kind,
    Lake,
    LakeConfig,
    Objective,
    PromptStyle,
    answer,
    from_text,
    generate,
    needs_wait,
    parse,
    prompt,
    rewards,
    rules,
    solve,
    stack,
    verify,
    without_waiting,
)
from jaxlake.adapters.text import trl_rows, verl_rows
from jaxlake.arguments import whole_number
from jaxlake.benchmark import load, score
from jaxlake.types import Solution, Status

# Agent 0 waits for agent 1 to leave its only way, or agent 1 goes round: a sum of costs or a makespan.
BOARD = from_text(["a.B", ".#.", "bA."])
BOARDS = stack([BOARD])
# Agents 0 and 1 are about to meet, agent 2 to fall or to be stopped by the hole.
THREE = from_text(["a.b", "A#B", "Cc."])
CONFIG = LakeConfig.uniform((3,), 0.1, 0.5)


PLAN = parse("0:(0,0)(1,0)(2,0)(2,1)\n1:(2,0)(2,1)(2,2)(1,2)(0,2)", max_size=3, max_agents=2, max_steps=64)
SOLVED = jax.tree.map(  # by hand
    lambda leaf: np.asarray(leaf)[None],
    Solution(status=int(Status.SOLVED), plan=PLAN, cost=7, lower_bound=7, expansions=0),
)


def drawn(objective):
    return generate(CONFIG, jax.random.key(0), 4, objective=objective)


def moved(third, holes, conflicts):
    actions = jnp.array([Action.RIGHT, Action.LEFT, third])
    return rules.move(THREE, THREE.starts, actions, holes, conflicts)


ENTRIES = {
    "solve": (Objective, lambda word: solve(BOARDS, word)),
    "needs_wait": (Objective, lambda word: needs_wait(BOARDS, SOLVED, word)),
    "without_waiting": (Objective, lambda word: without_waiting(BOARDS, SOLVED, word)),
    "verify": (Objective, lambda word: verify(BOARDS, SOLVED.plan, SOLVED.cost, word)),
    "generate": (Objective, lambda word: dataclasses.astuple(drawn(word))[:3]),
    "score, objective": (Objective, lambda word: score({}, load("validation"), objective=word).to_json()),
    "prompt, style": (PromptStyle, lambda word: prompt(BOARD, word)),
    "prompt, format": (AnswerFormat, lambda word: prompt(BOARD, "verbose", word)),
    "answer": (AnswerFormat, lambda word: answer(SOLVED.plan[0], 3, word)),
    "trl_rows, style": (PromptStyle, lambda word: trl_rows(BOARDS, SOLVED.cost, word)),
    "trl_rows, format": (AnswerFormat, lambda word: trl_rows(BOARDS, SOLVED.cost, answer_format=word)),
    "verl_rows, style": (PromptStyle, lambda word: verl_rows(BOARDS, SOLVED.cost, "test", word)),
    "verl_rows, format": (AnswerFormat, lambda word: verl_rows(BOARDS, SOLVED.cost, "test", answer_format=word)),
    "Lake, holes": (HoleRule, lambda word: Lake(holes=word).holes.name),
    "Lake, conflicts": (ConflictRule, lambda word: Lake(conflicts=word).conflicts.name),
    "Lake, goals": (GoalRule, lambda word: Lake(goals=word, reward=rewards.reached).goals.name),
    "AutoReset": (AutoResetMode, lambda word: AutoReset(Lake(), word).mode.name),
    "rules.move, holes": (HoleRule, lambda word: moved(Action.UP, word, "block")),
    "rules.move, conflicts": (ConflictRule, lambda word: moved(Action.RIGHT, "fall", word)),
    "rules.legal_actions": (HoleRule, lambda word: rules.legal_actions(THREE, THREE.starts, word)),
    "Kind": (Family, lambda word: str(Kind(word, 6))),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", ENTRIES)
def test_a_word_is_as_good_as_its_member(name):
    kind, call = ENTRIES[name]
    results = []
    for member in kind:
        results.append(jax.tree.map(np.asarray, call(member)))
        jax.tree.map(np.testing.assert_array_equal, results[-1], jax.tree.map(np.asarray, call(member.value)))
    if name not in ("needs_wait", "without_waiting", "solve", "generate", "verify", "score, format"):
        # The words are not all one, as they were while a word was compared with members.
        assert len({repr(result) for result in results}) == len(kind)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_wrong_word_is_no_other_branch(name):
    kind, call = ENTRIES[name]
    with pytest.raises(ValueError, match=f"'sum_of_cost' is not a valid {kind.__name__}"):
        call("sum_of_cost")


def test_a_whole_number_of_any_type_is_taken_and_its_range_is_named():
    for hundred in (100, np.int64(100), np.uint8(100), np.array(100), jnp.int32(100)):
        assert type(whole_number("count", hundred, 1)) is int and whole_number("count", hundred, 1, 200) == 100
    for wrong in (-1, 0, 201):
        with pytest.raises(ValueError, match=f"^count = {wrong} must be a whole number from 1 to 200$"):
            whole_number("count", wrong, 1, 200)

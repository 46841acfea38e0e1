"""Arguments: a public function that takes an enum turns its word into a member, and whole numbers are whole numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake import (
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

BOARD = from_text(["a.B", ".#.", "bA."])
BOARDS = stack([BOARD])
CONFIG = LakeConfig.uniform((3,), 0.1, 0.5)


PLAN = parse("0:(0,0)(1,0)(2,0)(2,1)\n1:(2,0)(2,1)(2,2)(1,2)(0,2)", max_size=3, max_agents=2, max_steps=64)
SOLVED = jax.tree.map(  # by hand
    lambda leaf: np.asarray(leaf)[None],
    Solution(status=int(Status.SOLVED), plan=PLAN, cost=7, lower_bound=7, expansions=0),
)


ENTRIES = {
    "solve": (Objective, lambda word: solve(BOARDS, word)),
    "needs_wait": (Objective, lambda word: needs_wait(BOARDS, SOLVED, word)),
    "without_waiting": (Objective, lambda word: without_waiting(BOARDS, SOLVED, word)),
    "verify": (Objective, lambda word: verify(BOARDS, SOLVED.plan, SOLVED.cost, word)),
    "generate": (Objective, lambda word: generate(CONFIG, jax.random.key(0), 4, objective=word)),
    "score, objective": (Objective, lambda word: score({}, load("validation"), objective=word)),
    "prompt, style": (PromptStyle, lambda word: prompt(BOARD, word)),
    "prompt, format": (AnswerFormat, lambda word: prompt(BOARD, "verbose", word)),
    "answer": (AnswerFormat, lambda word: answer(SOLVED.plan[0], 3, word)),
    "trl_rows, style": (PromptStyle, lambda word: trl_rows(BOARDS, SOLVED.cost, word)),
    "trl_rows, format": (AnswerFormat, lambda word: trl_rows(BOARDS, SOLVED.cost, answer_format=word)),
    "verl_rows, style": (PromptStyle, lambda word: verl_rows(BOARDS, SOLVED.cost, "test", word)),
    "verl_rows, format": (AnswerFormat, lambda word: verl_rows(BOARDS, SOLVED.cost, "test", answer_format=word)),
    "Lake, holes": (HoleRule, lambda word: Lake(holes=word)),
    "Lake, conflicts": (ConflictRule, lambda word: Lake(conflicts=word)),
    "Lake, goals": (GoalRule, lambda word: Lake(goals=word, reward=rewards.reached)),
    "AutoReset": (AutoResetMode, lambda word: AutoReset(Lake(), word)),
    "rules.move, holes": (HoleRule, lambda word: rules.move(BOARD, BOARD.starts, BOARD.starts, word, "block")),
    "rules.move, conflicts": (ConflictRule, lambda word: rules.move(BOARD, BOARD.starts, BOARD.starts, "fall", word)),
    "rules.legal_actions": (HoleRule, lambda word: rules.legal_actions(BOARD, BOARD.starts, word)),
    "Kind": (Family, lambda word: Kind(word, 6)),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_word_becomes_a_member(name):
    """Else it would be compared by identity and take another branch in silence."""
    kind, call = ENTRIES[name]
    with pytest.raises(ValueError, match=f"'sum_of_cost' is not a valid {kind.__name__}"):
        call("sum_of_cost")


def test_a_whole_number_of_any_type_is_taken_and_its_range_is_named():
    for hundred in (100, np.int64(100), np.uint8(100), np.array(100), jnp.int32(100)):
        assert type(whole_number("count", hundred, 1)) is int and whole_number("count", hundred, 1, 200) == 100
    for wrong in (-1, 0, 201):
        with pytest.raises(ValueError, match=f"^count = {wrong} must be a whole number from 1 to 200$"):
            whole_number("count", wrong, 1, 200)

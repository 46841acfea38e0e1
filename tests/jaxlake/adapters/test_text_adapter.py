"""The rows and rewards for TRL and verl, called as those libraries call them, on answers worked out by hand."""

import json

import jax
import numpy as np
import pytest

from jaxlake import from_text
from jaxlake.adapters.text import compute_score, path_reward, trl_rows, verl_rows
from jaxlake.levels import stack
from jaxlake.text import AnswerFormat, PromptStyle, prompt

# Both go around the hole in four steps, clockwise one behind the other, so the optimum is 8.
BOARD = """
a.B
.#.
b.A
"""
BEST = "0:(0,0)(0,1)(0,2)(1,2)(2,2)\n1:(2,0)(1,0)(0,0)(0,1)(0,2)"
LATER = "0:(0,0)(0,1)(0,2)(1,2)(2,2)\n1:(2,0)(2,0)(1,0)(0,0)(0,1)(0,2)"  # Agent 1 waits once.
CLASH = "0:(0,0)(0,1)(0,2)(1,2)(2,2)\n1:(2,0)(2,1)(2,2)(1,2)(0,2)"  # Both on (1,2) after three steps.
OPTIMUM, MOST = 8, 16
ONE_MORE = 1 - 0.7 / MOST


@pytest.fixture(scope="module")
def instances():
    return stack([from_text(BOARD), from_text("aA\n..")])


@pytest.fixture(scope="module")
def optimum():
    return np.array([OPTIMUM, 1])


def test_trl_pays_completions_by_their_cost(instances, optimum):
    rows = trl_rows(instances, optimum)
    level = [rows[0]["level"]] * 4
    completions = [BEST, LATER, CLASH, f"<think>{CLASH}</think>\n{LATER}"]
    conversations = [[{"role": "assistant", "content": text}] for text in completions]
    columns = {"completion_ids": [[1]] * 4, "trainer_state": None, "log_extra": print, "log_metric": print}
    for given in (completions, conversations):
        rewards = path_reward(prompts=[rows[0]["prompt"]] * 4, completions=given, level=level, **columns)
        assert all(type(reward) is float for reward in rewards)
        assert rewards == pytest.approx([1, ONE_MORE, 0, ONE_MORE])


def test_a_plan_longer_than_any_of_the_solvers_is_paid_the_least(instances, optimum):
    waiting = BEST.replace("1:", "1:" + "(2,0)" * 100)
    assert path_reward(completions=[waiting], level=[trl_rows(instances, optimum)[0]["level"]]) == pytest.approx([0.3])


def test_boards_of_different_sizes_are_paid_together(instances, optimum):
    levels = [row["level"] for row in trl_rows(instances, optimum)]
    assert path_reward(completions=["0:(0,0)(0,1)", BEST], level=levels[::-1]) == [1, 1]
    assert path_reward(completions=["0:(0,0)(0,1)", BEST], level=levels) == [0, 0]


def test_trls_rows_hold_a_conversation_and_plain_values(instances, optimum):
    rows = trl_rows(instances, optimum, PromptStyle.GRID)
    for index, row in enumerate(rows):
        instance = jax.tree.map(lambda leaf, at=index: leaf[at], instances)
        assert row["prompt"] == [{"role": "user", "content": prompt(instance, PromptStyle.GRID)}]
        assert set(row) == {"prompt", "level"} and type(row["level"]) is str
    assert json.loads(rows[1]["level"])["goals"] == [[0, 1]]


def test_verl_pays_an_answer_by_its_cost(instances, optimum):
    rows = json.loads(json.dumps(verl_rows(instances, optimum, "train")))
    assert [set(row) for row in rows] == [{"data_source", "prompt", "ability", "reward_model", "extra_info"}] * 2
    assert rows[1]["extra_info"] == {"split": "train", "index": 1}
    for answer, expected in ((BEST, 1), (LATER, ONE_MORE), (CLASH, 0), ("", 0)):
        score = compute_score(
            data_source=rows[0]["data_source"],
            solution_str=answer,
            ground_truth=rows[0]["reward_model"]["ground_truth"],
            extra_info=rows[0]["extra_info"] | {"num_turns": None, "rollout_reward_scores": {}},
        )
        assert type(score) is float and score == pytest.approx(expected)


def test_answers_in_moves_are_asked_for_and_read(instances, optimum):
    row = verl_rows(instances, optimum, "test", answer_format=AnswerFormat.MOVES)[0]
    assert "U for up" in row["prompt"][0]["content"]
    for answer, expected in (("0: R R D D\n1: U U R R", 1), ("0: R R D D\n1: W U U R R", ONE_MORE), (BEST, 1)):
        assert compute_score("jaxlake", answer, row["reward_model"]["ground_truth"]) == pytest.approx(expected)


def test_an_instance_without_optimum_is_named(instances):
    with pytest.raises(ValueError, match="instance 1 has no known optimum: it must be solved"):
        trl_rows(instances, np.array([8, -1]))

"""Prompts, answers and the tolerant reader of answers."""

import time

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake.render import from_text
from jaxlake.text import PromptStyle, answer, parse, parse_batch, prompt
from jaxlake.types import ABSENT, OUTSIDE, Plan

MAX_SIZE, MAX_AGENTS, MAX_STEPS = 6, 3, 9
LIMITS = {"max_size": MAX_SIZE, "max_agents": MAX_AGENTS, "max_steps": MAX_STEPS}

BOARD = """
    a.B.
    .#..
    b..#
    ...A
"""


def read(text: str) -> dict[int, list[tuple[int, int]]] | None:
    """The paths of a parsed text as coordinates, None where it is not parsable."""
    plan = parse(text, **LIMITS)
    if not plan.parsable:
        assert not plan.lengths.any() and plan.num_named == 0 and (plan.paths == ABSENT).all()
        return None
    return {
        agent: [divmod(int(cell), MAX_SIZE) if cell != OUTSIDE else (OUTSIDE, OUTSIDE) for cell in path[:length]]
        for agent, (path, length) in enumerate(zip(plan.paths, plan.lengths, strict=True))
        if length
    }


def test_the_terse_prompt_names_holes_in_row_major_order_and_each_agents_ends():
    instance = from_text(BOARD, max_size=MAX_SIZE, max_agents=MAX_AGENTS)
    assert prompt(instance, PromptStyle.COORDINATES) == "4x4 holes(1,1)(2,3) 0(0,0)(3,3) 1(2,0)(0,2)"


def test_the_terse_prompt_without_holes():
    assert prompt(from_text(["a.", "A."]), PromptStyle.COORDINATES) == "2x2 holes 0(0,0)(1,0)"


def test_the_verbose_prompt_draws_the_board_and_states_tasks_and_format():
    text = prompt(from_text(BOARD, max_size=MAX_SIZE), PromptStyle.VERBOSE)
    assert "\na.B.\n.#..\nb..#\n...A\n" in text
    assert "4x4 board" in text and "(3,3) the bottom right" in text
    assert "Agent 0 goes from (0,0) to (3,3).\nAgent 1 goes from (2,0) to (0,2)." in text
    example = text[text.index("For example:") :]
    assert read(example) == {0: [(0, 0), (0, 1), (0, 1), (1, 1)], 1: [(2, 2), (1, 2), (0, 2)]}


plans = st.lists(
    st.lists(st.integers(0, MAX_SIZE**2 - 1), min_size=1, max_size=MAX_STEPS + 1), min_size=1, max_size=MAX_AGENTS
)


@given(plans)
def test_an_answer_is_read_back_as_the_plan(named):
    missing = MAX_AGENTS - len(named)
    plan = Plan(
        parsable=np.bool_(True),
        num_named=np.int32(len(named)),
        paths=np.array(
            [path + [ABSENT] * (MAX_STEPS + 1 - len(path)) for path in named] + [[ABSENT] * (MAX_STEPS + 1)] * missing,
            np.int32,
        ),
        lengths=np.array([len(path) for path in named] + [0] * missing, np.int32),
    )
    jax.tree.map(np.testing.assert_array_equal, parse(answer(plan, MAX_SIZE), **LIMITS), plan)


@pytest.mark.parametrize(
    "text",
    [
        "0:(0,0)(0,1)\n1:(2,0)(2,1)",
        "0: (0,0) -> (0, 1)\n1: (2,0) -> (2, 1)",
        "Agent 0: [(0,0), (0,1)]\nAgent 1: [(2,0), (2,1)]",
        "```\n0:(0,0)(0,1)\n1:(2,0)(2,1)\n```",
        "Here you are.\n\n  - **Agent 0**: (0,0), ( 0 , 1 )\n  - **Agent 1**: (2,0), (2,1)\nGood luck!",
        "<think>\n0:(5,5)\n</think>\n0:(0,0)(0,1)\n1:(2,0)(2,1)",
        "thoughts without an opening 2:(1,1)\n</think>0:(0,0)(0,1)\n1:(2,0)(2,1)",
        "1:(2,0)(2,1)\r\n0:(3,3)\r\n0:(0,0)(0,1)",
        "00:(00,0)(0,01)\n01:(2,0)(2,1)",
    ],
)
def test_many_ways_to_write_the_same_plan(text):
    assert read(text) == {0: [(0, 0), (0, 1)], 1: [(2, 0), (2, 1)]}


@pytest.mark.parametrize(
    "text",
    ["", "no idea", "0:\n1:(2,0)", "Agent 0: stays", "<think>0:(0,0)", "</think><think>\n0:(0,0)", "0:" + "(0,0)" * 11],
    ids=["empty", "words", "bare line", "no coordinate", "still thinking", "thinking again", "too long"],
)
def test_what_cannot_be_parsed(text):
    assert read(text) is None


def test_coordinates_off_the_padded_board_are_outside():
    off = (OUTSIDE, OUTSIDE)
    assert read(f"0:(0,0)(-1,0)(0,6)(6,0)({'9' * 5000},0)(5,5)") == {0: [(0, 0), off, off, off, off, (5, 5)]}


def test_agents_beyond_the_arrays_are_counted_and_not_held():
    plan = parse("0:(0,0)\n3:(1,1)\n99999999999999999999:(1,1)\n003:(2,2)", **LIMITS)
    assert plan.parsable and plan.num_named == 3
    assert plan.lengths.tolist() == [1, 0, 0]


fragments = st.sampled_from(
    [
        "0:",
        "1:",
        "Agent 2:",
        "(0,0)",
        "(-1,99)",
        "(",
        ")",
        ",",
        "->",
        "\n",
        " ",
        "<think>",
        "</think>",
        "```",
        "٣",
        "²",
        ":",
    ]
)


@given(st.one_of(st.text(), st.lists(st.one_of(fragments, st.text(max_size=3))).map("".join)))
def test_parsing_never_raises_and_always_gives_full_arrays(text):
    plan = parse(text, **LIMITS)
    assert plan.paths.shape == (MAX_AGENTS, MAX_STEPS + 1) and plan.paths.dtype == np.int32
    held = np.arange(MAX_STEPS + 1) < plan.lengths[:, None]
    assert ((plan.paths == ABSENT) == ~held).all()
    assert plan.parsable == (plan.num_named > 0)


@pytest.mark.parametrize("piece", ["(", "( 1", "1", " ", "(1,", "0:", "- ", "0" * 9 + " "])
def test_parsing_takes_linear_time(piece):
    started = time.perf_counter()
    parse("0:" + piece * 200_000, **LIMITS)
    parse(piece * 200_000, **LIMITS)
    assert time.perf_counter() - started < 2  # Quadratic time would be hours.


def test_a_batch_is_parsed_like_its_members():
    texts = ["0:(0,0)\n1:(1,1)(1,2)", "nothing", "2:(0,9)"]
    batch = parse_batch(texts, **LIMITS)
    stacked = jax.tree.map(lambda *parts: np.stack(parts), *(parse(text, **LIMITS) for text in texts))
    jax.tree.map(np.testing.assert_array_equal, batch, stacked)
    assert parse_batch([], **LIMITS).paths.shape == (0, MAX_AGENTS, MAX_STEPS + 1)

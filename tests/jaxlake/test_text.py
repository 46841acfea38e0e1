"""Prompts, answers and the tolerant reader of answers."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake.board_text import from_text
from jaxlake.text import AnswerFormat, PromptStyle, answer, parse, parse_batch, prompt, read
from jaxlake.types import ABSENT, OUTSIDE, Plan

MAX_SIZE, MAX_AGENTS, MAX_STEPS = 6, 3, 9
LIMITS = {"max_size": MAX_SIZE, "max_agents": MAX_AGENTS, "max_steps": MAX_STEPS}

BOARD = """
    a.B.
    .#..
    b..#
    ...A
"""


STARTS = [0, 2 * MAX_SIZE, ABSENT]


def paths(text: str, starts: list[int] | None = None) -> dict[int, list[tuple[int, int]]] | None:
    """The paths of a parsed text as coordinates, None where it is not parsable."""
    reading = read(text, starts=starts, **LIMITS)
    plan = reading.plan
    if not plan.parsable:
        assert not plan.lengths.any() and plan.num_named == 0 and (plan.paths == ABSENT).all() and reading.problems
        return None
    return {
        agent: [divmod(int(cell), MAX_SIZE) if cell != OUTSIDE else (OUTSIDE, OUTSIDE) for cell in path[:length]]
        for agent, (path, length) in enumerate(zip(plan.paths, plan.lengths, strict=True))
        if length
    }


def test_prompts_are_those_of_the_golden_texts(golden):
    """In every style and format, of a board that is drawn once and of one whose starts are goals, drawn twice."""
    boards = from_text(BOARD, max_size=MAX_SIZE, max_agents=MAX_AGENTS), from_text(["a. A.", ".b .B"])
    texts = [
        f"=== {style.value}, {answer_format.value}\n{prompt(board, style, answer_format)}\n"
        for board in boards
        for style in PromptStyle
        for answer_format in AnswerFormat
    ]
    golden("prompts.txt", "\n".join(texts))


def test_the_example_of_a_prompt_is_read_as_a_plan():
    for answer_format in AnswerFormat:
        text = prompt(from_text(BOARD, max_size=MAX_SIZE), PromptStyle.VERBOSE, answer_format)
        assert paths(text[text.index("For example:") :], [0, 2 * MAX_SIZE + 2, ABSENT]) == {
            0: [(0, 0), (0, 1), (0, 1), (1, 1)],
            1: [(2, 2), (1, 2), (0, 2)],
        }


def plan_of(named: list[list[int]]) -> Plan:
    missing = MAX_AGENTS - len(named)
    return Plan(
        parsable=np.bool_(True),
        num_named=np.int32(len(named)),
        paths=np.array(
            [path + [ABSENT] * (MAX_STEPS + 1 - len(path)) for path in named] + [[ABSENT] * (MAX_STEPS + 1)] * missing,
            np.int32,
        ),
        lengths=np.array([len(path) for path in named] + [0] * missing, np.int32),
    )


plans = st.lists(
    st.lists(st.integers(0, MAX_SIZE**2 - 1), min_size=1, max_size=MAX_STEPS + 1), min_size=1, max_size=MAX_AGENTS
)


@given(plans)
def test_an_answer_in_coordinates_is_read_back_as_the_plan(named):
    is_read_back(plan_of(named), AnswerFormat.COORDINATES)


def is_read_back(plan: Plan, answer_format: AnswerFormat) -> None:
    starts = plan.paths[:, 0] if answer_format is AnswerFormat.MOVES else None
    reading = read(answer(plan, MAX_SIZE, answer_format), starts=starts, **LIMITS)
    jax.tree.map(np.testing.assert_array_equal, reading.plan, plan)
    assert reading.problems == ()


def walk(start: int, moves: list[int]) -> list[int]:
    """Cells of a walk that stays where it is at the edge of the board."""
    row, column = divmod(start, MAX_SIZE)
    path = [start]
    for move in moves:
        down, right = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))[move]
        if 0 <= row + down < MAX_SIZE and 0 <= column + right < MAX_SIZE:
            row, column = row + down, column + right
        path.append(row * MAX_SIZE + column)
    return path


walks = st.builds(walk, st.integers(0, MAX_SIZE**2 - 1), st.lists(st.integers(0, 4), max_size=MAX_STEPS))


@given(st.lists(walks, min_size=1, max_size=MAX_AGENTS))
def test_an_answer_in_moves_is_read_back_as_the_plan(named):
    is_read_back(plan_of(named), AnswerFormat.MOVES)


def test_a_jump_cannot_be_written_in_moves():
    with pytest.raises(ValueError, match=r"the path \(0,0\)\(0,2\) is no sequence of moves"):
        answer(plan_of([[0, 2]]), MAX_SIZE, AnswerFormat.MOVES)
    with pytest.raises(ValueError, match="no sequence of moves"):
        answer(plan_of([[0, OUTSIDE]]), MAX_SIZE, AnswerFormat.MOVES)


NO_LINE = "no line begins with an agent's number and a colon"
LAST = "0:(0,0)(0,1)\n1:(2,0)(2,1)"


@pytest.mark.parametrize(
    "text",
    [
        f"0:(3,3)\n1:(4,4)\nNo, better:\n{LAST}",
        f"0:(3,3)\n1:(4,4)\n0:(3,4)\nFinal answer:\n{LAST}",
        f"0:(0,0)(3,3)\n1:(4,4)\nCorrection:\n{LAST}",
        f"{LAST}\nFinal answer:\n0:(0,0)(0,1)\n1:(2,0)(2,",
        f"{LAST}\nIn words:\nAgent 0: goes right.\nAgent 1: does the same.",
        f"Agent 0: must go first.\n{LAST}",
    ],
    ids=["two", "three", "correction", "cut off", "explained", "explained before"],
)
def test_the_last_complete_answer_counts(text):
    assert paths(text) == {0: [(0, 0), (0, 1)], 1: [(2, 0), (2, 1)]}


@pytest.mark.parametrize(
    ("text", "starts", "problems"),
    [
        ("no idea", None, [NO_LINE]),
        ("<think>0:(0,0)", None, ["a <think> is not closed"]),
        ("0:" + "(0,0)" * 11, None, ["agent 0: 11 cells, where at most 10 are held"]),
        ("0:(0,0)(-1,0)(0,6)", None, ["agent 0: off the board of 6 x 6 in step 1"]),
        (f"{LAST}\n0:(3,3)", None, ["answer 2 of 2 contradicts another, and no word says which one is meant"]),
        ("0:(0,0)\n" * 9000, None, ["only the last 12480 of 72000 characters are read"]),
        ("0: R jumps D\n1: U", STARTS, ["agent 0: 'jumps' within a path"]),
        ("0:(0,0)...(1,1)", None, ["agent 0: steps are left out"]),
        ("t=1: Agent 0: (0,1)\nt=3: Agent 0: (0,2)", None, ["agent 0: 1 steps at time 3, after time 1"]),
    ],
)
def test_what_could_not_be_read_is_said(text, starts, problems):
    assert list(read(text, starts=starts, **LIMITS).problems) == problems


def test_coordinates_off_the_padded_board_are_outside():
    off = (OUTSIDE, OUTSIDE)
    assert paths(f"0:(0,0)(-1,0)(0,6)(6,0)({'9' * 5000},0)(5,5)") == {0: [(0, 0), off, off, off, off, (5, 5)]}


def test_agents_beyond_the_arrays_are_counted_and_not_held():
    plan = parse("0:(0,0)\n3:(1,1)\n99999999999999999999:(1,1)\n003:(1,1)", **LIMITS)
    assert plan.parsable and plan.num_named == 3
    assert plan.lengths.tolist() == [1, 0, 0]


def test_a_batch_is_parsed_like_its_members():
    texts = ["0:(0,0)\n1:(1,1)(1,2)", "nothing", "2:(0,9)"]
    batch = parse_batch(texts, **LIMITS)
    stacked = jax.tree.map(lambda *parts: np.stack(parts), *(parse(text, **LIMITS) for text in texts))
    jax.tree.map(np.testing.assert_array_equal, batch, stacked)
    assert parse_batch([], **LIMITS).paths.shape == (0, MAX_AGENTS, MAX_STEPS + 1)

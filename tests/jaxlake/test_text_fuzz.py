"""The reader of answers on broken, random and hostile texts."""

import random
import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake.text import parse, parse_batch, read
from jaxlake.types import ABSENT, OUTSIDE

MAX_SIZE, MAX_AGENTS, MAX_STEPS = 10, 5, 24
LIMITS = {"max_size": MAX_SIZE, "max_agents": MAX_AGENTS, "max_steps": MAX_STEPS}
STARTS = [0, 11, 22, 33, ABSENT]

PIECES = (
    *("0:", "1:", "2: ", "\n0:", "\n1:", "\nAgent 3: ", '{"0": ', ', "1": ', "- **Agent 4**: ", "9" * 20 + ":"),
    *("(0,0)", "(0, 1)", "[2,3]", "(-1,99)", "(row 1, col 2)", "[[", "]]", "(", ")", ",", " -> ", "9" * 30, "-", ";"),
    *("R", " U D", "RRDW", " wait", "left ", "→", "↓", "\n", "\r\n", "\u2028", "\x00", "\x1c", "\t", " " * 9),
    *("<think>", "</think>", "</thinking>", "```", "```json\n", "Therefore", "In step 3: "),
    *("٣", "²", "１", "\U0001f600", "\ud800"),
)


def sources(rng: random.Random) -> list[str]:
    """Answers of two to five agents in both formats, written in several ways."""
    found = []
    for _ in range(40):
        cells = [
            [(rng.randrange(MAX_SIZE), rng.randrange(MAX_SIZE)) for _ in range(rng.randint(1, 12))]
            for _ in range(rng.randint(2, 5))
        ]
        found += [
            "\n".join(f"{agent}:" + "".join(f"({r},{c})" for r, c in path) for agent, path in enumerate(cells)),
            "\n".join(f"Agent {agent}: {path}" for agent, path in enumerate(cells)),
            str({str(agent): [list(cell) for cell in path] for agent, path in enumerate(cells)}).replace("'", '"'),
            "<think>\nHm.\n</think>\n"
            + "\n".join(f"{agent}: " + " ".join(rng.choices("UDLRW", k=len(p))) for agent, p in enumerate(cells)),
        ]
    return found


def mutated(rng: random.Random, text: str, other: str) -> str:
    """The text after up to five cuts, insertions and splices."""
    for _ in range(rng.randrange(6)):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        match rng.randrange(5):
            case 0:
                text = text[:at] + rng.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[min(end, at + 9) :]
            case 2:
                text = text[:at] + text[at:end] * 2 + text[end:]
            case 3:
                text = text[:at] + other[rng.randrange(len(other)) :]
            case _:
                text = text[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0x110000)))) + text[at:]
    return text


@pytest.mark.parametrize(
    "count", [3_000, pytest.param(30_000, marks=pytest.mark.heavy), pytest.param(100_000, marks=pytest.mark.slow)]
)
def test_broken_answers_are_read_without_an_error_into_full_arrays(count):
    rng = random.Random(0)
    pool = sources(rng)
    texts = [mutated(rng, rng.choice(pool), rng.choice(pool)) for _ in range(count)]
    readable = []
    for starts in (None, [STARTS] * count):
        plans = parse_batch(texts, starts=starts, **LIMITS)
        held = np.arange(MAX_STEPS + 1) < plans.lengths[..., None]
        assert ((plans.paths == ABSENT) == ~held).all()
        assert (plans.paths[held] < MAX_SIZE**2).all() and (plans.paths[held] >= OUTSIDE).all()
        assert (plans.parsable == (plans.num_named > 0)).all()
        assert ((plans.lengths > 0).sum(axis=1) <= plans.num_named).all()
        readable.append(plans.parsable.mean())
    assert 0.2 < readable[0] < 0.9 and 0.1 < readable[1] < 0.7  # The texts are neither all intact nor all destroyed.
    for text in texts[:500]:
        for starts in (None, STARTS):
            reading = read(text, starts=starts, **LIMITS)
            assert reading.plan.parsable or reading.problems
            "\n".join(reading.problems).encode(errors="replace")


lines = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=30).filter(
    lambda line: (
        len(line.splitlines()) <= 1
        and any(character.isascii() and character.isalpha() for character in line)
        and not re.search(r"</?\w+>", line)  # a thought that opens or ends hides what stands before it, too
        and not re.search(r"a\w*\W*\d", line, re.IGNORECASE)  # A0 and agent 1 do name one
        and not re.search(r"\ds|s\d", line, re.IGNORECASE)  # 2S stays twice
        and not re.search("up|down|left|right|wait|stay|north|south|west|east", line, re.IGNORECASE)  # are moves
    )
)


@given(st.lists(lines, max_size=4), st.lists(lines, max_size=4))
def test_an_answer_is_found_among_any_lines_that_name_no_agent(before, after):
    answer = ["0:(0,0)(0,1)", "1:(1,1)(2,1)"]
    plan = parse("\n".join([*before, *answer, *after]), **LIMITS)
    assert plan.num_named == 2 and plan.lengths.tolist() == [2, 2, 0, 0, 0]
    assert plan.paths[:2, :2].tolist() == [[0, 1], [11, 21]]


MEGABYTE = 1_000_000
HOSTILE = [
    *("(", "[", "( 1", "1", " ", "(1,", "(1,1", "0:", "0:\n", "0:(0,0)\n", "0:x\n", "0 :\n"),
    *("0:(0,0),1:", ",1:", "- ", '"', "*", "1. ", "agent ", "<think>", "</think>", "\n", "((\n"),
    *("(row 1,", "up ", "U", '"1"', "}1  ", ":", "|", "| 0 |\n", "$", "\\boxed{", "&amp;", "<a "),
    *("t=1:", "agent 0 ", "x2 ", "3R", "[a(", "start (0,0) ", "路"),
]


@pytest.mark.heavy
@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("starts", [None, STARTS], ids=["coordinates", "moves"])
def test_a_hostile_megabyte_takes_no_time(piece, starts):
    body = piece * (MEGABYTE // len(piece))
    # The end of what can be read, too, because of a longer text the end is all that is read.
    for text in (body, "0:" + body, "0:" + body[:30_000], "0:\n" + body[:30_000] + "x"):
        seconds = []
        for _ in range(2):
            started = time.process_time()
            read(text, starts=starts, **LIMITS)
            seconds.append(time.process_time() - started)
        assert min(seconds) < 0.25  # 0.02 on a quiet core; quadratic time would be minutes.

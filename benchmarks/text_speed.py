"""How long answers take to read, in microseconds each, and hostile texts of a
megabyte; compares with no peer.

Answers have 2 to 5 agents with 10 to 20 cells. Times are processor time, the
best of several rounds.

examples:
  python benchmarks/text_speed.py
  python benchmarks/text_speed.py --quick --json text_speed.json
"""

import json
import random
import time
from collections.abc import Callable

from side_by_side import read_options, write_rows

from jaxlake.text import parse, parse_batch, read

LIMITS = {"max_size": 10, "max_agents": 5, "max_steps": 64}
ASKED, OTHER, HOSTILE = 20.0, 250.0, 50.0  # Targets: microseconds an answer, milliseconds a megabyte.
MOVES = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1), "W": (0, 0)}
WORDS = {"U": "up", "D": "down", "L": "left", "R": "right", "W": "wait"}

Paths = list[tuple[list[tuple[int, int]], list[str]]]
COORDINATES: dict[str, Callable[[Paths], str]] = {
    "as asked for": lambda a: "\n".join(f"{i}:" + "".join(f"({r},{c})" for r, c in p) for i, (p, _) in enumerate(a)),
    "after a thought": lambda a: (
        "<think>" + "Agent 0 goes first. " * 50 + "</think>\n" + COORDINATES["as asked for"](a)
    ),
    "with arrows": lambda a: "\n".join(f"Agent {i}: " + " -> ".join(map(str, p)) for i, (p, _) in enumerate(a)),
    "in Markdown": lambda a: (
        "The plan:\n```\n" + "\n".join(f"- **Agent {i}**: {p}" for i, (p, _) in enumerate(a)) + "\n```"
    ),
    "in JSON": lambda a: json.dumps({str(i): p for i, (p, _) in enumerate(a)}),
}
IN_MOVES: dict[str, Callable[[Paths], str]] = {
    "moves as asked for": lambda a: "\n".join(f"{i}: " + " ".join(moves) for i, (_, moves) in enumerate(a)),
    "moves in words": lambda a: "\n".join(
        f"Agent {i}: " + ", ".join(WORDS[m] for m in ms) for i, (_, ms) in enumerate(a)
    ),
}
PIECES = ("(", "[", "1", " ", "0:", "0:\n", "0:(0,0)\n", "0:x\n", "0:(0,0),1:", '"', "- ", "<think>", "\n", "up ", "U")


def main() -> None:
    """Run the command line."""
    options = read_options(__doc__, quick="fewer answers and rounds")
    count, rounds = (300, 3) if options.quick else (2000, 9)
    rng = random.Random(0)
    answers = [[walk(rng) for _ in range(rng.randint(2, 5))] for _ in range(count)]
    begin = [[p[0][0] * 10 + p[0][1] for p, _ in a] + [-1] * (5 - len(a)) for a in answers]
    rows = []
    for name, write in (COORDINATES | IN_MOVES).items():
        texts = [write(a) for a in answers]
        starts = begin if name in IN_MOVES else None
        batch = best(lambda t=texts, s=starts: parse_batch(t, starts=s, **LIMITS), rounds) / count * 1e6
        single = best(lambda t=texts, s=starts: one_by_one(t, s), rounds) / count * 1e6
        target = ASKED if "asked" in name or "thought" in name else OTHER
        rows += [row(f"{name}, together", batch, target, "us"), row(f"{name}, one by one", single, target, "us")]
    worst = max(
        (best(lambda t=text, s=starts: read(t, starts=s, **LIMITS), 3) * 1e3, repr(piece))
        for piece in PIECES
        for text in (piece * (1_000_000 // len(piece)), "0:" + piece * (1_000_000 // len(piece)))
        for starts in (None, begin[0])
    )
    rows.append(row(f"the worst megabyte, of {worst[1]}", worst[0], HOSTILE, "ms"))
    for entry in rows:
        print(f"{entry['name']:<36} {entry['ours']:>8.1f} {entry['unit']}   target {entry['target']:g}  {entry['met']}")
    write_rows(rows, options.json)


def walk(rng: random.Random) -> tuple[list[tuple[int, int]], list[str]]:
    """Draw a path of 10 to 20 cells on a 10 x 10 board, and its moves."""
    cells, moves = [(rng.randrange(10), rng.randrange(10))], []
    for _ in range(rng.randint(9, 19)):
        row, column = cells[-1]
        legal = [m for m, (r, c) in MOVES.items() if 0 <= row + r < 10 and 0 <= column + c < 10]
        moves.append(rng.choice(legal))
        cells.append((row + MOVES[moves[-1]][0], column + MOVES[moves[-1]][1]))
    return cells, moves


def one_by_one(texts: list[str], starts: list[list[int]] | None) -> None:
    """Read each text on its own."""
    for index, text in enumerate(texts):
        parse(text, starts=None if starts is None else starts[index], **LIMITS)


def best(work: Callable[[], object], rounds: int) -> float:
    """Seconds of processor time of the quickest round."""
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def row(name: str, ours: float, target: float, unit: str) -> dict[str, object]:
    """Return a line of the table."""
    return {
        "name": name,
        "ours": ours,
        "peer": None,
        "ratio": None,
        "target": target,
        "met": ours <= target,
        "unit": unit,
    }


if __name__ == "__main__":
    main()

"""The command ``python -m jaxlake.solve``: an optimal plan for every board of a file. Searches nothing itself."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake import files, levels
from jaxlake.arguments import whole_number
from jaxlake.commands import command_parser, mistakes_in_one_line
from jaxlake.solve import solve, without_waiting
from jaxlake.solve.tree import MAX_HORIZON
from jaxlake.types import MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Status

_EXAMPLE = """\
examples:
  python -m jaxlake.solve boards.txt -o solved.jsonl
  python -m jaxlake.solve boards.jsonl -o solved.jsonl --max-steps 30

Each board gets a status, solved, unsolvable (proved) or out_of_budget, and if
it is solved its least sum of costs, the sum of the agents' shortest paths, an
optimal plan, and whether every optimal plan waits.
"""

_BOARDS = 4096
"""Solved at once, then told on the terminal: the search fills its batches from as many boards as it is given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = command_parser("jaxlake.solve", "Finds optimal plans for the boards of a file.", _EXAMPLE)
    parser.add_argument("boards", help="a file of boards, .jsonl or .txt")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="ends in .jsonl")
    parser.add_argument(
        "--max-steps", type=int, default=MAX_STEPS, help=f"longest plan that is looked for (default: {MAX_STEPS})"
    )
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, "stopped, nothing is written"):
        files.check_target(options.output)
        if Path(options.output).suffix.lower() != ".jsonl":
            raise ValueError(f"{options.output}: plans need a file that ends in .jsonl")
        whole_number("--max-steps", options.max_steps, 1, MAX_HORIZON)
        entries = files.read_records(options.boards, MAX_SIZE, MAX_AGENTS)
        instances = levels.stack([files.from_record(entry) for entry in entries])
        solved: list[files.Record] = []
        for begin in range(0, len(entries), _BOARDS):
            part = instances[begin : begin + _BOARDS]
            solved += _solved(entries[begin : begin + _BOARDS], part, options.max_steps)
            if sys.stderr.isatty():
                print(f"\r{len(solved)} of {len(entries)} boards", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print(file=sys.stderr)
        files.write(options.output, solved)
    print(_table(solved))
    return 0


def _solved(entries: Sequence[files.Record], instances: Instance, max_steps: int) -> list[files.Record]:
    """The records with what the search found in place of what they held."""
    solutions = solve(instances, max_steps=max_steps)
    without = without_waiting(instances, solutions)
    found = []
    for entry, instance, solution, proof in zip(entries, instances, solutions, without, strict=True):
        known: dict[str, Any] = {}
        if solution.status == Status.SOLVED:
            known = {"optimum": solution.cost, "lower_bound": solution.lower_bound, "plan": solution.plan}
            if proof != Status.OUT_OF_BUDGET:
                known["needs_wait"] = proof == Status.UNSOLVABLE
        kept = {key: value for key, value in entry.items() if key not in files.KNOWN}
        found.append(kept | files.record(instance, entry["id"], status=Status(int(solution.status)), **known))
    return found


def _table(entries: Sequence[files.Record]) -> str:
    """Per size how many boards ended how, and means over those that were solved."""
    lines = [
        "                                           means of the solved       need a wait",
        " size boards  solved  unsolvable  undecided  optimum  shortest paths      share",
    ]
    for size in sorted({entry["size"] for entry in entries}):
        rows = [entry for entry in entries if entry["size"] == size]
        solved = [entry for entry in rows if "optimum" in entry]
        numbers = [
            sum(entry["status"] == status for entry in rows) for status in ("solved", "unsolvable", "out_of_budget")
        ]
        line = f"{size:>5} {len(rows):>6} {numbers[0]:>7} {numbers[1]:>11} {numbers[2]:>10}"
        if solved:
            optimum, paths = (np.mean([entry[key] for entry in solved]) for key in ("optimum", "lower_bound"))
            waits = [entry["needs_wait"] for entry in solved if "needs_wait" in entry]
            line += f" {optimum:>8.2f} {paths:>15.2f} {sum(waits) / max(len(waits), 1):>10.1%}"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

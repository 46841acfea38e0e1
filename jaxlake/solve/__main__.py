"""The command ``python -m jaxlake.solve``: an optimal plan for every board of a file. Searches nothing itself."""

import collections
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlake import files, levels
from jaxlake.commands import command_parser, mistakes_in_one_line
from jaxlake.solve import solve, without_waiting
from jaxlake.types import MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance, Status

_EXAMPLE = """\
examples:
  python -m jaxlake.solve boards.txt -o solved.jsonl
  python -m jaxlake.solve boards.jsonl -o solved.jsonl --max-steps 30

Each board gets a status, solved, unsolvable (proved) or out_of_budget, and if
it is solved its least sum of costs, the sum of the agents' shortest paths, an
optimal plan, and whether every optimal plan waits.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser("jaxlake.solve", "Finds optimal plans for the boards of a file.", _EXAMPLE)
    parser.add_argument("boards", help="file of boards, .jsonl or .txt")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, .jsonl")
    parser.add_argument("--max-steps", type=int, default=MAX_STEPS, help=f"most steps of a plan (default: {MAX_STEPS})")
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, "stopped, nothing is written"):
        files.check_target(options.output)
        if Path(options.output).suffix.lower() != ".jsonl":
            raise ValueError(f"{options.output}: plans need a file that ends in .jsonl")
        entries = files.read_records(options.boards, MAX_SIZE, MAX_AGENTS)
        instances = levels.stack([files.from_record(entry) for entry in entries])
        solved = _solved(entries, instances, options.max_steps)
        files.write(options.output, solved)
    print(_summary(solved))
    return 0


def _solved(entries: Sequence[files.Record], instances: Instance, max_steps: int) -> list[files.Record]:
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


def _summary(entries: Sequence[files.Record]) -> str:
    ends = collections.Counter(entry["status"] for entry in entries)
    waits = [entry["needs_wait"] for entry in entries if "needs_wait" in entry]
    return (
        f"{len(entries)} boards: {ends['solved']} solved, of which {sum(waits) / max(len(waits), 1):.1%} need a wait; "
        f"{ends['unsolvable']} unsolvable, {ends['out_of_budget']} undecided"
    )


if __name__ == "__main__":
    sys.exit(main())

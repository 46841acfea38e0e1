"""The command ``python -m jaxlake.generate``: boards to quotas, solved, into a file. Draws nothing itself."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from jaxlake import files
from jaxlake.arguments import seed_key, whole_number
from jaxlake.commands import command_parser, mistakes_in_one_line
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, generate
from jaxlake.kinds import Family, Kind, read_kinds
from jaxlake.types import MAX_AGENTS, MAX_SIZE

_EXAMPLE = """\
examples:
  python -m jaxlake.generate -o boards.jsonl
  python -m jaxlake.generate --kinds 4x3,8x3 --waits .8 -o boards.txt
  python -m jaxlake.generate --kinds rooms6,corridor6-8x3 -o mixed.jsonl
  python -m jaxlake.generate --kinds 32x32,warehouse64x128 --bounded -o large.jsonl

A .jsonl file takes boards with optimal plans, a .txt file the boards alone.
The same command writes the same file.
"""

_MOST = 1_000_000  # Boards: a GB of arrays. Repeating few boards a billion times would take a TB.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser(
        "jaxlake.generate",
        "Draws solvable boards, as many of each kind, of which a share makes an agent\nwait.",
        _EXAMPLE,
    )
    parser.add_argument(
        "--kinds",
        type=_kinds,
        default="3-6",
        help="[family]side[xagents], such as 3-6,8x3 or rooms6,corridor8x3 (default: 3-6, random with 2 agents); "
        f"families: {', '.join(family.value for family in Family)}",
    )
    parser.add_argument(
        "--holes",
        type=float,
        default=0.2,
        help="density; on random boards the share of holes among the cells without start or goal (default: .2)",
    )
    parser.add_argument(
        "--waits", type=float, help="share of boards on which every optimal plan waits (default: .5, with --bounded 0)"
    )
    parser.add_argument(
        "--bounded",
        action="store_true",
        help="boards of any size, up to 64x128, with lower bounds instead of optima and plans",
    )
    parser.add_argument("--count", type=int, default=100, help="number of boards (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default: 0)")
    parser.add_argument("--exclude", metavar="FILE", help="file of boards that must not occur, .jsonl or .txt")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, .jsonl or .txt")
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, "stopped, nothing is written"):
        whole_number("--count", options.count, 1, _MOST)
        whole_number("--seed", options.seed, 0, 2**32 - 1)
        files.check_target(options.output)
        waits = options.waits if options.waits is not None else 0.0 if options.bounded else 0.5
        dataset = generate(
            LakeConfig.uniform(options.kinds, options.holes, waits),
            seed_key(options.seed),
            options.count,
            exclude=None if options.exclude is None else files.read(options.exclude, MAX_SIZE, MAX_AGENTS)[0],
            exact=not options.bounded,
        )
        files.write(options.output, _records(dataset, exact=not options.bounded))
    print(_summary(dataset))
    return 0


def _kinds(text: str) -> tuple[Kind, ...]:
    try:
        return read_kinds(text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _records(dataset: Dataset, exact: bool) -> Iterator[files.Record]:
    solved = zip(dataset.instances, dataset.solutions, dataset.needs_wait, strict=True)
    for index, (instance, solution, needs_wait) in enumerate(solved):
        known: dict[str, Any] = {
            "status": solution.status,
            "optimum": solution.cost,
            "needs_wait": needs_wait,
            "plan": solution.plan,
        }
        yield files.record(instance, str(index), lower_bound=solution.lower_bound, **(known if exact else {}))


def _summary(dataset: Dataset) -> str:
    lines = [
        f"{entry.kind}: {entry.realised} boards with {entry.holes:.3g} holes ({entry.hole_ratio:.1%}), "
        f"{entry.realised_waits} of {entry.requested_waits} need a wait; {entry.candidates} tried, "
        f"{entry.solvable:.1%} solvable, {entry.undecided} undecided"
        for entry in dataset.report
    ]
    return "\n".join([*lines, *dataset.shortfalls()])


if __name__ == "__main__":
    sys.exit(main())

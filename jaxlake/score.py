"""The command ``python -m jaxlake.score``: tables of the scores of answers in plain text. Knows no model."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxlake.benchmark import SETS, load, load_maps, score
from jaxlake.benchmark.external_maps import MAPS_HELP, warn_skipped
from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from jaxlake.files import Record, from_json, lines, read_parts, write_whole
from jaxlake.types import Objective

_EPILOG = """\
examples:
  python -m jaxlake.score answers.jsonl
  python -m jaxlake.score answers.jsonl --set families --json scores.json
  python -m jaxlake.score answers.jsonl --maps scenarios.yaml

The file has a JSON object a line; several lines with one id are samples:

  {"id": "3ag_4x4_hr0.2_007", "answer": "0:(0,0)(0,1)..."}

Ids, boards and prompts come from python -m jaxlake.benchmark export lake, with
the same --maps for scenarios of other projects.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser(
        "jaxlake.score",
        "Scores a model's answers to a fixed set of boards, or to scenarios of other\n"
        "projects: valid and optimal per number of agents, board size and need of waits\n"
        "or family.",
        _EPILOG,
    )
    parser.add_argument("answers", type=local_path, help="file of JSON lines with id and answer")
    boards = parser.add_mutually_exclusive_group()
    boards.add_argument("--set", choices=SETS, default="test", help="fixed set of the boards (default: test)")
    boards.add_argument("--maps", type=local_path, metavar="FILE", help=MAPS_HELP)
    parser.add_argument(
        "--objective",
        choices=[objective.value for objective in Objective],
        default="sum_of_costs",
        help="cost that an optimal plan minimises (default: sum_of_costs)",
    )
    parser.add_argument("--json", type=local_path, metavar="FILE", help="file for the figures")
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, needs="pip install pyyaml, which scenarios in YAML need"):
        answers = read_answers(options.answers)
        benchmark = load_maps(options.maps) if options.maps else load(options.set)
        warn_skipped(benchmark)
        scores = score(answers, benchmark, objective=Objective(options.objective))
        if options.json:
            write_whole(options.json, (json.dumps(scores.to_json(), indent=1) + "\n").encode())
    print(scores.to_text())
    return 0


def read_answers(path: Path) -> dict[str, list[str]]:
    """Return the answers of a file by id, in its order.

    Raises:
      OSError: if it cannot be read.
      ValueError: naming the file, the line and the fault.
    """

    def read(line: str) -> Record:
        entry = from_json(line)
        if not (isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("id", "answer"))):
            raise ValueError("it must be an object with the texts id and answer")
        return entry

    answers: dict[str, list[str]] = {}
    for entry in read_parts(path, lines, read, "answer"):
        answers.setdefault(entry["id"], []).append(entry["answer"])
    return answers


if __name__ == "__main__":
    sys.exit(main())

"""The command ``python -m jaxlake.score``: tables of the scores of answers in plain text. Knows no model."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxlake.benchmark import SETS, load, score
from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from jaxlake.files import Record, from_json, lines, read_parts, write_whole
from jaxlake.types import Objective

_EPILOG = """\
examples:
  python -m jaxlake.score answers.jsonl
  python -m jaxlake.score answers.jsonl --set families --json scores.json

The file has a JSON object a line; several lines with one id are samples:

  {"id": "3ag_4x4_hr0.2_007", "answer": "0:(0,0)(0,1)..."}

Ids, boards and prompts come from python -m jaxlake.benchmark export lake.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser(
        "jaxlake.score",
        "Scores a model's answers to a fixed set of boards: valid and optimal per number\n"
        "of agents, board size and need of waits or family.",
        _EPILOG,
    )
    parser.add_argument("answers", type=local_path, help="file of JSON lines with id and answer")
    parser.add_argument("--set", choices=SETS, default="test", help="fixed set of the boards (default: test)")
    parser.add_argument(
        "--objective",
        choices=[objective.value for objective in Objective],
        default="sum_of_costs",
        help="cost that an optimal plan minimises (default: sum_of_costs)",
    )
    parser.add_argument("--json", type=local_path, metavar="FILE", help="file for the figures")
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser):
        answers = read_answers(options.answers)
        scores = score(answers, load(options.set), objective=Objective(options.objective))
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

"""The command ``python -m jaxlake.render``: a board of a file on the terminal or as a picture. Draws nothing itself."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxlake import files
from jaxlake.board_text import to_text
from jaxlake.commands import command_parser, mistakes_in_one_line
from jaxlake.render import animate, png, svg
from jaxlake.types import Instance, Plan

_EXAMPLE = """\
examples:
  python -m jaxlake.render solved.jsonl
  python -m jaxlake.render solved.jsonl --index 3 -o board.svg
  python -m jaxlake.render solved.jsonl --index 3 -o plan.svg --animate

The output's ending chooses its form, with the plan's paths: .txt, .svg or .png
(needs Pillow). With --animate the agents walk in an .svg.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser("jaxlake.render", "Draws a board of a file, with its plan if it has one.", _EXAMPLE)
    parser.add_argument("boards", help="file of boards, .jsonl or .txt")
    parser.add_argument("--index", type=int, default=0, help="number of the board in the file (default: 0)")
    parser.add_argument("--animate", action="store_true", help="let the agents walk (.svg)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write, .txt, .svg or .png (default: the terminal)"
    )
    options = parser.parse_args(arguments)
    suffix = Path(options.output).suffix.lower() if options.output else ".txt"
    with mistakes_in_one_line(parser, needs=".png needs Pillow, .svg does not"):
        if suffix not in _DRAWERS:
            raise ValueError(f"{options.output} must end in {', '.join(_DRAWERS)}")
        if options.animate and suffix != ".svg":
            raise ValueError("--animate is for an output that ends in .svg")
        entries = files.read_records(options.boards)
        if not 0 <= options.index < len(entries):
            raise ValueError(f"--index {options.index}: {options.boards} has the boards 0 to {len(entries) - 1}")
        entry = entries[options.index]
        instance, plan = files.from_record(entry), files.plan_of(entry)
        if not options.animate:
            content = _DRAWERS[suffix](instance, plan)
        elif plan is None:
            raise ValueError(f"{options.boards}: board {options.index} has no plan; python -m jaxlake.solve finds one")
        else:
            content = animate(instance, plan).encode()
        if options.output:
            files.write_whole(options.output, content)
    if not options.output:
        print(content.decode(), end="")
    return 0


_DRAWERS: dict[str, Callable[[Instance, Plan | None], bytes]] = {
    ".txt": lambda instance, plan: f"{to_text(instance, plan)}\n".encode(),
    ".svg": lambda instance, plan: svg(instance, plan).encode(),
    ".png": lambda instance, plan: png(instance, plan),
}


if __name__ == "__main__":
    sys.exit(main())

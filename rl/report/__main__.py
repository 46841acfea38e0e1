"""The command ``python -m rl.report``: one HTML page on one run, several, or a comparison."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from rl.report.page import FILE, write, write_several

_EPILOG = """\
examples:
  python -m rl.report runs/tiny
  python -m rl.report runs/tiny runs/seed1 -o two.html
  python -m rl.report runs/compare-tiny
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser(
        "rl.report", "Writes one HTML page that stands alone. Its pictures are also files beside it.", _EPILOG
    )
    directory = "directory of rl.train or rl.compare"
    parser.add_argument("runs", type=local_path, nargs="+", metavar="RUN", help=directory)
    default = f"in report/ of RUN; of several RUNs {FILE} in the current directory"
    parser.add_argument(
        "-o", type=local_path, metavar="FILE", dest="file", help=f"file of the page (default: {default})"
    )
    options = parser.parse_args(arguments)
    first, *others = options.runs
    with mistakes_in_one_line(parser):
        if others:
            path = write_several(options.runs, options.file or Path(FILE))
        elif (first / "compare.yaml").exists():
            from rl.report import comparison  # imports the student and its trainer

            path = comparison.write(first, comparison.read(first), options.file)
        else:
            path = write(first, options.file)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

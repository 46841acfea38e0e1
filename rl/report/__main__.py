"""The command ``python -m rl.report``: one HTML page on one run, several, a comparison, or branches."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from rl.branching.gains import FILE as GAINS
from rl.report import branch
from rl.report.page import FILE, write, write_several

_EPILOG = """\
examples:
  python -m rl.report runs/tiny
  python -m rl.report runs/tiny runs/seed1 -o two.html
  python -m rl.report runs/compare-tiny
  python -m rl.report runs/lab/branches
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser(
        "rl.report", "Write one HTML page that stands alone, and its pictures as PNG files beside it.", _EPILOG
    )
    directory = "a directory of rl.train, rl.compare or rl.branch"
    parser.add_argument("runs", type=local_path, nargs="+", metavar="RUN", help=directory)
    default = f"RUN/report/{FILE}; of several RUNs {FILE} in the current directory"
    parser.add_argument("-o", type=local_path, metavar="FILE", dest="file", help=f"the page (default: {default})")
    options = parser.parse_args(arguments)
    first, *others = options.runs
    file = options.file or (Path(FILE) if others else first / "report" / FILE)
    with mistakes_in_one_line(parser):
        if not others and (first / GAINS).exists():
            branch.write(first, file)
        elif others or (first / "compare.yaml").exists():
            write_several(options.runs, file)
        else:
            write(first, file)
    print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())

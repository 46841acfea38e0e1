"""The command ``python -m rl.report``: one HTML page on one run, several, or a comparison."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rl.report.page import FILE, write
from rl.report.several import write_several

_EPILOG = f"""\
The page of one RUN is RUN/report/{FILE}, that of several is
{FILE} here, where -o names no other.

examples:
  python -m rl.report runs/tiny
  python -m rl.report runs/tiny runs/seed1 -o two.html
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rl.report",
        description="Writes one HTML page that stands alone, and its pictures as PNG files beside it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directory of a run, or of a comparison")
    parser.add_argument("-o", type=Path, metavar="FILE", dest="file", help="the page")
    options = parser.parse_args(arguments)
    first, *others = options.runs
    file = options.file or (Path(FILE) if others else first / "report" / FILE)
    try:
        if others or (first / "compare.yaml").exists():
            write_several(options.runs, file)
        else:
            write(first, file)
        print(file)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

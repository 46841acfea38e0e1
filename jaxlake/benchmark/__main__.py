"""The command ``python -m jaxlake.benchmark``: writes the fixed sets for other programs."""

import sys
from collections.abc import Sequence

from jaxlake.benchmark.export import FORMATS, export
from jaxlake.benchmark.external_maps import AGENTS_HELP, MAPS_HELP, load_maps, warn_skipped
from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from jaxlake.fixed_sets import SETS, load

_EXAMPLES = """\
examples:
  python -m jaxlake.benchmark export lake --format jsonl
  python -m jaxlake.benchmark export lake
  python -m jaxlake.benchmark export lake --maps scenarios.yaml

The first writes lake/test.jsonl, lake/validation.jsonl and lake/families.jsonl,
the second the same as Parquet, the third lake/scenarios.parquet.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser("jaxlake.benchmark", "Writes the fixed sets of boards for other programs.", _EXAMPLES)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("export", help="writes the sets with their prompts, one file each")
    command.add_argument("folder", type=local_path, help="folder to write; made if missing")
    command.add_argument("--format", choices=FORMATS, default="parquet", help="form of the files (default: parquet)")
    command.add_argument("--maps", type=local_path, metavar="FILE", help=MAPS_HELP)
    command.add_argument("--agents", type=int, nargs="+", metavar="N", help=AGENTS_HELP)
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, needs="Parquet needs pyarrow (--format jsonl does not), YAML needs pyyaml"):
        for benchmark in [load_maps(options.maps, options.agents)] if options.maps else map(load, SETS):
            warn_skipped(benchmark.name, benchmark.account.get("left_out", {}))
            print(export(benchmark, options.folder, options.format))
    return 0


if __name__ == "__main__":
    sys.exit(main())

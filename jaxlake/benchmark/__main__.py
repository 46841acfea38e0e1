"""The command ``python -m jaxlake.benchmark``: writes the fixed sets for other programs, or draws them anew."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.benchmark.build import RECIPES, build
from jaxlake.benchmark.export import FORMATS, export
from jaxlake.benchmark.external_maps import MAPS_HELP, load_maps, warn_skipped
from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from jaxlake.fixed_sets import POOLS, SETS, content_hash, load, store

_EXAMPLES = """\
examples:
  python -m jaxlake.benchmark export lake --format jsonl
  python -m jaxlake.benchmark export lake
  python -m jaxlake.benchmark export lake --maps scenarios.yaml
  python -m jaxlake.benchmark check

The first writes lake/test.jsonl, lake/validation.jsonl and lake/families.jsonl,
the second the same as Parquet, the third lake/scenarios.parquet. The last takes
an hour of a core.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser(
        "jaxlake.benchmark", "Writes the fixed sets of boards for other programs, or draws them anew.", _EXAMPLES
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("export", help="writes the sets with their prompts, one file each")
    command.add_argument("folder", type=local_path, help="folder to write; made if missing")
    command.add_argument("--format", choices=FORMATS, default="parquet", help="form of the files (default: parquet)")
    command.add_argument("--maps", type=local_path, metavar="FILE", help=MAPS_HELP)
    command = commands.add_parser("build", help="draws and solves the sets anew; writes the package's files")
    command.add_argument("folder", type=local_path, help="folder to write; made if missing")
    commands.add_parser("check", help="draws and solves the sets anew; status 1 if the package's are not the same")
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, needs="Parquet needs pyarrow (--format jsonl does not), YAML needs pyyaml"):
        if options.command == "export":
            for benchmark in [load_maps(options.maps)] if options.maps else map(load, SETS):
                warn_skipped(benchmark)
                print(export(benchmark, options.folder, options.format))
            return 0
        return _build(options.folder) if options.command == "build" else _check()


def _build(folder: Path) -> int:
    """Draw all sets into a folder, which is made before the work, not after it."""
    folder.mkdir(parents=True, exist_ok=True)
    store({name: _built(name) for name in (*SETS, *POOLS)}, folder)
    return 0


def _check() -> int:
    """Return 0 if the sets drawn anew, without the boards that were undecided at first, are those of the files."""
    shipped = {name: load(name).account for name in (*SETS, *POOLS)}
    differing = [name for name in shipped if content_hash(_built(name, shipped[name])[0]) != shipped[name]["sha256"]]
    for name in shipped:
        print(f"{name}: {'differs' if name in differing else 'the same'}")
    return 1 if differing else 0


def _built(name: str, account: Mapping[str, Any] | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Build a set and print its time."""
    began = time.perf_counter()
    built = build(RECIPES[name], account)
    print(f"{name}: {built[1]['instances']:,} instances in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return built


if __name__ == "__main__":
    sys.exit(main())

"""Trains a policy on the lake in rounds, and owns every command line and file of a run; needs the extra `train`."""

import sys


def main() -> int:
    """The command `jaxlake-train`, which is also there where only the environment was installed."""
    try:
        from rl.train import main
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed; training needs pip install 'jaxlake[train]'", file=sys.stderr)
        return 2
    return main()

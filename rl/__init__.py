"""Trains a policy on the lake in rounds, and owns every command line and file of a run; needs the extra `train`."""

import importlib.util
import sys
import warnings

warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm's, in a notebook without ipywidgets

NEEDED = [
    *("flax", "llguidance", "matplotlib", "optax", "orbax"),
    *("pydantic", "rich", "safetensors", "transformers", "yaml"),
]
"""Modules that the extra brings."""


def _is_complete() -> bool:
    """Whether the extra is installed; says in one line what is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"error: {missing[0]} is not installed; training needs pip install 'jaxlake[train]'", file=sys.stderr)
    return not missing


# While Python looks for the module of `python -m rl.train`, say; `python -m rl` needs nothing, and other programs may
# import this before they begin.
if sys.argv[0] == "-m" and any(word.startswith("rl.") for word in sys.orig_argv) and not _is_complete():
    sys.exit(2)

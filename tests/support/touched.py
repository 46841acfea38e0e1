"""Which heavy tests a change runs: those that import a file of its commits, and which of them come first."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("jaxlake", "engineer", "rl")
HOURS = 4
"""Without a base, a change is what has been committed in so many hours before the newest commit."""
_IMPORT = re.compile(r"^\s*(?:from ([\w.]+) )?import (\([^)]*\)|.+)", re.MULTILINE)  # also in programs within texts


def commits_since(base: str) -> list[list[str]]:
    """List the paths of each commit since ``base``, or of the last hours where it is empty; the newest commit first."""

    def log(*options: str) -> str:
        return subprocess.run(["git", "log", *options], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    since = f"--since=@{int(log('-1', '--format=%ct')) - 3600 * HOURS}"
    commits = log("--format=%x00", "--name-only", f"{base}..HEAD" if base else since).split("\0")
    return [paths for commit in commits if (paths := commit.split("\n")[2:-1])]


def weigh(commits: Iterable[Iterable[str]]) -> dict[str, float]:
    """Return each path's weight: 1 for the newest commit's, 1/2 for those of the commit before it, then 1/3."""
    weights: dict[str, float] = {}
    for age, commit in enumerate(commits, 1):
        for path in commit:
            weights.setdefault(path, 1 / age)
    return weights


def relevance(test: str, case: str, weights: Mapping[str, float]) -> float:
    """Rate a test by its path and the id of its parameters; 0 where no commit touches what it covers.

    The rate is the mean weight of what the test covers, and the highest weight of what it is named after on top of it:
    itself, ``rl/students/player/ppo.py`` for ``test_player.py``, a page or a notebook for the case of its name.
    """
    shares, named = covers(test), {test, case, f"docs/{case}", f"notebooks/{case}.ipynb"}
    name = Path(test).stem.removeprefix("test_")
    for path in weights:
        if path.startswith(PRODUCT) and name in Path(path).with_suffix("").parts:
            named.add(path)
    mean = sum(share * weights.get(path, 0) for path, share in shares.items()) / sum(shares.values())
    return mean + max(weights.get(path, 0) for path in named)


@cache
def covers(test: str) -> dict[str, float]:
    """Return what a test covers: itself and what it imports with the share 1, what these import with the share 1/4."""
    near = _imported(test)
    return dict.fromkeys(frozenset().union(*map(_imported, near)), 1 / 4) | dict.fromkeys(near, 1.0)


@cache
def _imported(importer: str) -> frozenset[str]:
    """Return the paths of a file and of what it imports, and what that imports if it belongs to the tests."""
    paths = {importer}
    for module, names in _IMPORT.findall((ROOT / importer).read_text(encoding="utf-8")):
        for name in re.findall(r"([\w.]+)(?: as \w+)?", names):
            path = _source(module, name) if module else _file(name)
            paths |= _imported(path) if path.startswith("tests") else {path} - {""}
    return frozenset(paths)


def _file(module: str) -> str:
    """Return the path of a module of the product or of ``tests/support``, or an empty text."""
    for start in ("", "tests/support/"):
        path = start + module.replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if (ROOT / file).exists():
                return file
    return ""


def _source(module: str, name: str) -> str:
    """Return the path of the file that defines what ``from module import name`` imports, or an empty text."""
    if file := _file(f"{module}.{name}"):
        module += f".{name}"  # `jaxlake.solve` is a package and a function of it
    else:
        file = _file(module)
    if file.endswith("/__init__.py"):
        for origin, names in _IMPORT.findall((ROOT / file).read_text(encoding="utf-8")):
            if origin not in ("", module) and re.search(rf"\b{name}\b", names):
                return _source(origin, name)
    return file

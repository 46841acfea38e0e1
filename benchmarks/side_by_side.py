"""What benchmarks share: our packages, options, missing peers, turns with a peer, rows. Measures nothing by itself.

A peer is a script in `peers/` that answers JSON lines with JSON lines (`peers/protocol.py`). Where it must not share
our packages it gets a virtual environment of its own. Where it is missing, ours is measured alone.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
# An installation that is not editable has `jaxlake` alone. Programs that a benchmark starts find all three here, too.
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def read_options(
    description: str, quick: str, peers: bool = False, only: bool = False, picture: bool = False
) -> argparse.Namespace:
    """Read a benchmark's --quick and --json.

    Args:
      description: for --help.
      quick: what --quick does.
      peers: whether there is --peers, too, for peers with virtual environments of their own.
      only: whether there is --only, too, for benchmarks whose cases take minutes each.
      picture: whether there is --picture, too.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    if peers:
        folder = Path(tempfile.gettempdir()) / "jaxlake_peers"
        text = "where the peers' virtual environments are kept"
        parser.add_argument("--peers", type=Path, default=folder, metavar="DIR", help=text)
    if only:
        parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose names contain it")
    if picture:
        parser.add_argument("--picture", type=Path, metavar="FILE.png", help="also draw it there")
    return parser.parse_args()


def installed(module: str, package: str) -> bool:
    """Return whether a peer's module is here; where it is not, say in one line what to install."""
    found = importlib.util.find_spec(module) is not None
    if not found:
        print(f"no peer, ours alone: pip install {package}")
    return found


def fail(reason: object) -> NoReturn:
    """End the benchmark with one line."""
    print(f"{Path(sys.argv[0]).stem}: error: {reason}", file=sys.stderr)
    sys.exit(2)


class Unavailable(SystemExit):
    """The reason why a peer could not be measured; ends a benchmark that does not catch it with this one line."""


class Peer:
    """A running script of `peers/`; a context manager, which ends it.

    Args:
      script: its name in `peers/`.
      arguments: of the script.
      python: the interpreter that runs it.
    """

    def __init__(self, script: str, *arguments: object, python: str | Path = sys.executable) -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the process
        command = [str(python), str(Path(__file__).parent / "peers" / script), *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process = subprocess.Popen(command, text=True, **pipes)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def ask(self, **request: object) -> dict:
        """Send a request and return its answer; raises as `answer` does."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and its last words follow
        return self.answer()

    def answer(self) -> dict:
        """Return the next answer; what the peer prints besides JSON is passed over.

        Raises:
          Unavailable: with the last line of the peer's errors, if it has ended.
        """
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._log.seek(0)
        raise Unavailable(last_line(self._log.read()))


def connect(
    script: str, *arguments: object, python: str | Path | None
) -> contextlib.AbstractContextManager[Peer | None]:
    """Start a peer's script; without an interpreter that has what it needs the context is None."""
    return Peer(script, *arguments, python=python) if python else contextlib.nullcontext()


def interpreter(folder: Path, packages: Sequence[str], install: bool) -> Path | None:
    """Return what `environment` returns; where there is none, say why in one line and return None."""
    try:
        return environment(folder, packages, install)
    except Unavailable as reason:
        print(f"no peer, ours alone: {reason}")
        return None


def environment(folder: Path, packages: Sequence[str], install: bool) -> Path:
    """Return the interpreter of a peer's virtual environment; made, with `packages` from pip, if it is missing.

    Raises:
      Unavailable: if it is missing and `install` is False, or pip fails.
    """
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists() or complete.read_text(encoding="utf-8").split() != [*packages]:
        if not install:
            raise Unavailable(f"not installed in {folder}; the same command without --quick installs it")
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        result = subprocess.run(pip, capture_output=True, text=True)
        if result.returncode:
            raise Unavailable(last_line(result.stderr))
        complete.write_text("\n".join(packages), encoding="utf-8")
    return python


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: rates (more is better), the median ratio of ours to the peer's, and its quartiles.

    Without a peer ratio and quartiles are None, too. `facts` is what else is worth writing down.
    """

    name: str
    ours: float
    peer: float | None
    ratio: float | None
    spread: tuple[float, float] | None
    target: float | None
    facts: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        return None if self.target is None or self.ratio is None else bool(self.ratio >= self.target)

    def as_json(self) -> dict:
        fields = dataclasses.asdict(self)
        return fields | fields.pop("facts") | {"met": self.met}

    def line(self) -> str:
        target = "-" if self.target is None else f">= {self.target:.1f}x"
        met = {None: "-", True: "yes", False: "no"}[self.met]
        peer, ratio, spread = "-", "-", "-"
        if self.ratio is not None:
            peer, ratio = f"{self.peer:,.0f}", f"{self.ratio:.2f}x"
            spread = f"{self.spread[0]:.2f}-{self.spread[1]:.2f}"
        return f"{self.name:34} {self.ours:10,.0f} {peer:>10} {ratio:>7} {spread:>11} {target:>8} {met:>4}"


def header(unit: str, peer: str) -> str:
    return f"{unit:34} {'jaxlake':>10} {peer:>10} {'ratio':>7} {'quartiles':>11} {'target':>8} {'met':>4}"


def alternate(
    ours: Callable[[], dict[str, float]],
    peer: Callable[[], dict[str, float]] | None,
    targets: dict[str, float | None],
    repeats: int,
) -> list[Row]:
    """Call ours and the peer in turn and compare their rates, one row a rate.

    Args:
      ours, peer: one repeat each, already warm; rates by the name of their row. None: ours is measured alone.
      targets: of the ratio, by the name of the row.
      repeats: how often each is called, at least 2.
    """
    turns = [(ours(), peer() if peer else None) for _ in range(repeats)]
    return [
        row(name, [mine[name] for mine, _ in turns], [theirs[name] for _, theirs in turns] if peer else None, target)
        for name, target in targets.items()
    ]


def row(name: str, ours: Sequence[float], peer: Sequence[float] | None, target: float | None, **facts: object) -> Row:
    """Compare both sides' rates, turn by turn: their medians, and that of their ratios."""
    if peer is None:
        return Row(name, statistics.median(ours), None, None, None, target, facts)
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Row(name, statistics.median(ours), statistics.median(peer), middle, (low, high), target, facts)


def report(rows: Sequence[Row], file: Path | None) -> None:
    """Print how many targets are met, and write the rows as JSON if a file is given."""
    judged = [row.met for row in rows if row.met is not None]
    print(f"{sum(judged)} of {len(judged)} targets met")
    write_rows([row.as_json() for row in rows], file)


def write_rows(rows: Sequence[dict], file: Path | None) -> None:
    """Write the rows as JSON, if a file is given."""
    if file is not None:
        file.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1]

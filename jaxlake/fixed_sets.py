"""The fixed sets on disk: reading them and checking their content. Builds none."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.kinds import Family, Kind
from jaxlake.types import MAX_SIZE, Instance

SETS = ("test", "validation", "families")
"""Names: ``test``, 3 to 5 agents, the paper's benchmark by its description; ``validation``, 2 agents, our choice;
``families``, boards of every ``Family`` with 2 to 5 agents."""

POOLS = ("pool", "pool_families")
"""Names of the stocks of training boards, see ``jaxlake.generate.pool``: random boards with 2 to 5 agents, and those of
the other families with 2 and 3."""

FOLDER = Path(__file__).parent / "benchmark"
_MANIFEST = FOLDER / "manifest.json"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A fixed set of solved instances; numpy arrays.

    Attributes:
      name: one of ``SETS`` or ``POOLS``.
      ids: ``[n]``, ``5ag_10x10_hr0.5_007``: agents, size, hole ratio, and a serial number among those that runs over
        the wait subsets; in a set of several families the family before it, ``rooms_5ag_10x10_hr0.5_003``. Each occurs
        once in all the sets.
      instances: ``[n]``, of ``max_size`` 10.
      optimum: int32 ``[n]``, the least sum of costs.
      lower_bound: int32 ``[n]``, the sum of the agents' independent shortest paths.
      makespan: int32 ``[n]``, the least makespan (of plans that may have a higher sum of costs); ``ABSENT`` where the
        search for it ran out of its budget.
      needs_wait: bool ``[n]``, every plan of the least sum of costs has a wait before an arrival.
      family: str ``[n]``, the word of the boards' ``Family``.
      hole_ratio: float64 ``[n]``, as asked for; random boards have ``floor(ratio * free cells)`` holes, of others it is
        the density.
      wait_subset: float64 ``[n]``, share of those with ``needs_wait`` that the instance's subset was made to have; in a
        set without subsets the share that came.
      account: origin of each group of instances, as in ``manifest.json``.
    """

    name: str
    ids: tuple[str, ...]
    instances: Instance
    optimum: np.ndarray
    lower_bound: np.ndarray
    makespan: np.ndarray
    needs_wait: np.ndarray
    family: np.ndarray
    hole_ratio: np.ndarray
    wait_subset: np.ndarray
    account: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def kinds(self) -> np.ndarray:
        """The ``Kind`` of each instance, object ``[n]``."""
        columns = (self.family, self.instances.size, self.instances.num_agents)
        return np.array([Kind(*row) for row in zip(*(x.tolist() for x in columns), strict=True)], object)


@functools.cache
def load(name: str = "test") -> Benchmark:
    """Load a set of the package, with read-only arrays; ValueError if the file has changed."""
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {field: file[field] for field in file.files}
    account = json.loads(_MANIFEST.read_text(encoding="utf-8"))[name]
    if content_hash(arrays) != account["sha256"]:
        raise ValueError(f"{FOLDER / name}.npz does not have the content that {_MANIFEST.name} names: install it anew")
    benchmark = _unpacked(name, arrays, account)
    for value in (*vars(benchmark).values(), *vars(benchmark.instances).values()):
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return benchmark


def content_hash(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and values; not of a file, since compressed bytes differ between zlibs."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _unpacked(name: str, arrays: Mapping[str, np.ndarray], account: Mapping[str, Any]) -> Benchmark:
    count = len(arrays["size"])
    family = arrays.get("family", np.full(count, Family.RANDOM.value))
    prefixes = [f"{word}_" for word in family] if "family" in arrays else [""] * count
    columns = (arrays[field].tolist() for field in ("num_agents", "size", "hole_percent", "serial"))
    holes = np.unpackbits(arrays["holes"], axis=1, count=MAX_SIZE**2).astype(bool)
    size, num_agents, starts, goals, optimum, lower_bound, makespan = (
        arrays[field].astype(np.int32)
        for field in ("size", "num_agents", "starts", "goals", "optimum", "lower_bound", "makespan")
    )
    needs_wait = arrays["needs_wait"]
    return Benchmark(
        name=name,
        ids=tuple(
            f"{prefix}{agents}ag_{side}x{side}_hr{percent / 100:.1f}_{serial:03d}"
            for prefix, agents, side, percent, serial in zip(prefixes, *columns, strict=True)
        ),
        instances=Instance(size=size, num_agents=num_agents, holes=holes, starts=starts, goals=goals),
        optimum=optimum,
        lower_bound=lower_bound,
        makespan=makespan,
        needs_wait=needs_wait,
        family=family,
        hole_ratio=arrays["hole_percent"] / 100,
        wait_subset=arrays["wait_percent"] / 100 if "wait_percent" in arrays else np.full(count, needs_wait.mean()),
        account=account,
    )
